"""The protocol on the wire, with bytes written by hand."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from ctta.serving.messages import Answer
from ctta.serving.refusals import Refused
from ctta.serving.wire import Wanted, encode, parse

SHAPE, NAME = (1, 2, 2), "images"


def request(**changes):
    tensor = {"name": NAME, "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [0.0, 0.25, 0.5, 1.0]}
    return json.dumps({"inputs": [{**tensor, **changes}]}).encode()


@pytest.mark.parametrize("data", [[0.0, 0.25, 0.5, 1.0], [[[[0.0, 0.25], [0.5, 1.0]]]], [[0, 0.25], [0.5, 1]]])
def test_data_are_flat_or_nested(data):
    question, wanted = parse(request(data=data), None, SHAPE, NAME)
    assert question.x.tolist() == [[[[0.0, 0.25], [0.5, 1.0]]]]
    assert (question.stream, question.adapt, question.start, question.end) == ("default", True, False, False)
    assert wanted == Wanted()


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("FP32", struct.pack("<4f", 0, 0.25, 0.5, 1), [0, 0.25, 0.5, 1]),
        ("FP16", struct.pack("<4e", 0, 0.25, 0.5, 1), [0, 0.25, 0.5, 1]),
        ("FP64", struct.pack("<4d", 0, 0.25, 0.5, 1), [0, 0.25, 0.5, 1]),
        ("UINT8", bytes([0, 51, 102, 255]), [0, 0.2, 0.4, 1]),
    ],
)
def test_binary_data_of_every_kind(kind, content, expected):
    tensor = {"name": NAME, "shape": [1, 1, 2, 2], "datatype": kind, "parameters": {"binary_data_size": len(content)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"sequence_id": 3, "timeout": 2_000_000}}).encode()
    question, _ = parse(head + content, str(len(head)), SHAPE, NAME)
    assert question.x.ravel() == pytest.approx(expected)
    assert (question.stream, question.timeout) == ("3", 2.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "other"}, "one input, 'images'"),
        ({"datatype": "INT64"}, "FP32, FP16, FP64, UINT8"),
        ({"shape": [1, 1, 2, 3]}, "has 6 values. Got 4"),
        ({"shape": [1, 1, -2, -2]}, "at least 1"),
        ({"data": ["0", "1", "2", "3"]}, "must be numbers"),
        ({"data": [True, False, True, False]}, "must be numbers"),
        ({"data": [[1, 2], [3]]}, "must be numbers"),
        ({"data": None}, "must be numbers"),
        ({"datatype": "UINT8", "data": [0, 1, 2, 256]}, "0 to 255"),
        ({"shape": "1"}, "shape"),
        ({"parameters": {"binary_data_size": 16}}, "takes 16 bytes behind the JSON"),
    ],
)
def test_what_is_wrong_is_said(changes, said):
    with pytest.raises(Refused, match=said) as caught:
        parse(request(**changes), None, SHAPE, NAME)
    assert caught.value.status == 400


def test_an_answer_in_json_and_in_bytes():
    probabilities = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    answer = Answer("cam", probabilities, None, 4, 3, True, "ok", 2)
    content, headers = encode(answer, Wanted("q"), "m", ())
    assert headers == {"Content-Type": "application/json"}
    assert json.loads(content) == {
        "model_name": "m",
        "model_version": "3",
        "id": "q",
        "parameters": {"stream": "cam", "step": 4, "version": 3, "adapted": True, "guard": "ok", "batch": 2},
        "outputs": [
            {"name": "probabilities", "datatype": "FP32", "shape": [2, 2], "data": [0.25, 0.75, 0.5, 0.5]},
            {"name": "labels", "datatype": "INT64", "shape": [2], "data": [1, 0]},
        ],
    }
    binary = frozenset(("probabilities", "labels"))
    content, headers = encode(answer, Wanted(binary=binary), "m", ())
    tail = content[int(headers["Inference-Header-Content-Length"]) :]
    assert tail == struct.pack("<4f2q", 0.25, 0.75, 0.5, 0.5, 1, 0)
    content, headers = encode(answer, Wanted(outputs=("probabilities",), binary=binary, best=1), "m", ("a", "b"))
    tail = content[int(headers["Inference-Header-Content-Length"]) :]
    length = struct.unpack("<I", tail[:4])[0]
    assert tail[4 : 4 + length] == b"0.750000:1:b"
