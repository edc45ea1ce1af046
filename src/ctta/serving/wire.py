"""The Open Inference Protocol V2 on the wire: tensors as JSON or as binary data behind it.

Streams are Triton's sequences: `sequence_id`, `sequence_start` and `sequence_end` among the request's parameters;
`adapt: false` predicts without learning, and `timeout` is in microseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ctta.base.text import one_line, quoted, shorten
from ctta.serving.messages import Answer, Floats, Question, stream_name
from ctta.serving.refusals import BAD, Refused

HEADER = "Inference-Header-Content-Length"
KINDS = {"FP32": "<f4", "FP16": "<f2", "FP64": "<f8", "UINT8": "|u1"}
OUTPUTS = ("probabilities", "labels")  # of every answer that names none
ASKED = (*OUTPUTS, "source_probabilities", "source_labels")


class Part(BaseModel):
    """What requests and tensors have in common; what is not known is left alone, as the protocol says."""

    model_config = ConfigDict(strict=True, extra="ignore")
    parameters: dict[str, Any] = Field(default_factory=dict)


class Input(Part):
    name: str = Field(max_length=256)
    shape: list[int] = Field(max_length=8)
    datatype: str = Field(max_length=16)
    data: Any = None


class Output(Part):
    name: str = Field(max_length=256)


class InferRequest(Part):
    id: str = Field(default="", max_length=256)
    inputs: list[Input] = Field(min_length=1, max_length=16)
    outputs: list[Output] = Field(default_factory=list, max_length=16)


@dataclass(frozen=True)
class Wanted:
    """How an answer is to be written."""

    id: str = ""
    outputs: tuple[str, ...] = OUTPUTS
    binary: frozenset[str] = frozenset()
    best: int = 0  # so many classes with their names instead of probabilities: Triton's classification


def parse(body: bytes, header: str | None, shape: Sequence[int], name: str) -> tuple[Question, Wanted]:
    """A request of the protocol; `shape` and `name` are those of the model's input."""
    length = len(body) if header is None else _length(header, len(body))
    try:
        request = InferRequest.model_validate_json(body[:length])
    except ValidationError as error:
        raise Refused(BAD, f"The request is not as the protocol wants it: {_first(error)}.") from error
    except (RecursionError, ValueError) as error:
        raise Refused(BAD, "The request is no JSON.") from error
    if [given.name for given in request.inputs] != [name]:
        found = ", ".join(quoted(given.name) for given in request.inputs)
        raise Refused(BAD, f"The model has one input, {name!r}. Got {found}.")
    x = _tensor(request.inputs[0], body[length:], shape)
    wanted = _wanted(request)
    return question(x, request.parameters, source=any(one.startswith("source") for one in wanted.outputs)), wanted


def question(x: Floats, parameters: Mapping[str, Any], *, source: bool = False) -> Question:
    """Samples with the parameters of a request."""
    flags = {name: parameters.get(name, name == "adapt") for name in ("adapt", "sequence_start", "sequence_end")}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise Refused(BAD, f"The parameter {key!r} must be true or false. Got {quoted(value)}.")
    timeout = parameters.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int) or timeout < 0):
        raise Refused(BAD, f"The parameter 'timeout' must be a whole number of microseconds. Got {quoted(timeout)}.")
    stream = stream_name(parameters.get("sequence_id"))
    adapt, start, end = flags.values()
    return Question(stream, x, adapt, start, end, source, timeout / 1e6 if timeout else None)


def encode(answer: Answer, wanted: Wanted, model: str, names: Sequence[str]) -> tuple[bytes, dict[str, str]]:
    """The body of an answer, and its headers."""
    arrays: dict[str, NDArray[Any]] = {
        "probabilities": answer.probabilities,
        "labels": answer.probabilities.argmax(1).astype(np.int64),
    }
    if answer.source is not None:
        arrays |= {"source_probabilities": answer.source, "source_labels": answer.source.argmax(1).astype(np.int64)}
    kinds, outputs, tail = {"f": "FP32", "i": "INT64", "O": "BYTES"}, list[dict[str, Any]](), b""
    for name in wanted.outputs:
        array = arrays[name]
        if wanted.best and array.dtype.kind == "f":
            array = _best(array, wanted.best, names)
        entry: dict[str, Any] = {"name": name, "datatype": kinds[array.dtype.kind], "shape": list(array.shape)}
        if name in wanted.binary:
            content = _bytes(array)
            entry["parameters"] = {"binary_data_size": len(content)}
            tail += content
        else:
            entry["data"] = array.ravel().tolist()
        outputs.append(entry)
    about = {name: getattr(answer, name) for name in ("stream", "step", "version", "adapted", "guard", "batch")}
    given = {"id": wanted.id} if wanted.id else {}
    head = {"model_name": model, "model_version": str(answer.version), **given, "parameters": about, "outputs": outputs}
    content = json.dumps(head).encode()
    if not tail:
        return content, {"Content-Type": "application/json"}
    return content + tail, {"Content-Type": "application/octet-stream", HEADER: str(len(content))}


def _length(header: str, whole: int) -> int:
    if not (header.isascii() and header.isdigit() and len(header) < 12 and int(header) <= whole):
        raise Refused(BAD, f"{HEADER} must be the length of the JSON before the tensors. Got {quoted(header)}.")
    return int(header)


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, found["loc"]))
    return shorten(one_line(f"{place}: {found['msg']}" if place else found["msg"]))


def _tensor(given: Input, tail: bytes, shape: Sequence[int]) -> Floats:
    """The samples, as float32 in the order that the model takes."""
    if given.datatype not in KINDS:
        raise Refused(BAD, f"The datatype must be one of {', '.join(KINDS)}. Got {quoted(given.datatype)}.")
    if not given.shape or any(size < 1 for size in given.shape):
        raise Refused(BAD, f"A shape has sizes of at least 1. Got {quoted(given.shape)}.")
    count, kind = math.prod(given.shape), np.dtype(KINDS[given.datatype])
    if (size := given.parameters.get("binary_data_size")) is not None:
        if given.data is not None or size != len(tail) or size != count * kind.itemsize:
            raise Refused(
                BAD,
                f"Shape {given.shape} of {given.datatype} takes {count * kind.itemsize} bytes behind the JSON, and no "
                f"data in it. Got {len(tail)} bytes; binary_data_size is {quoted(size)}.",
            )
        values: NDArray[Any] = np.frombuffer(tail, kind)
    else:
        values = _numbers(given, len(tail))
    if values.size != count:
        raise Refused(BAD, f"Shape {given.shape} has {count} values. Got {values.size}.")
    values = values.reshape(given.shape)
    if given.datatype == "UINT8":
        channels, *sides = shape
        if len(shape) == 3 and list(values.shape[1:]) == [*sides, channels] != list(shape):
            values = values.transpose(0, 3, 1, 2)  # as pictures are stored
        values = values / np.float32(255)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, np.float32)


def _numbers(given: Input, behind: int) -> NDArray[Any]:
    if behind:
        raise Refused(BAD, f"There are {behind} bytes behind the JSON, which no input claims by binary_data_size.")
    try:
        values = np.asarray(given.data)
    except (ValueError, OverflowError, RecursionError):
        values = np.empty(0, object)
    if values.dtype.kind not in "fiu" or values.size == 0:
        raise Refused(BAD, "The data must be numbers, flat or nested as the shape is. Send them as a list.")
    if given.datatype == "UINT8" and (values.dtype.kind == "f" or values.min() < 0 or values.max() > 255):
        raise Refused(BAD, "Values of UINT8 are whole numbers from 0 to 255.")
    return values


def _wanted(request: InferRequest) -> Wanted:
    names = tuple(dict.fromkeys(output.name for output in request.outputs)) or OUTPUTS
    if unknown := [name for name in names if name not in ASKED]:
        raise Refused(BAD, f"There is no output {quoted(unknown[0])}. Choose from: {', '.join(ASKED)}.")
    default, best = request.parameters.get("binary_data_output", False), 0
    binary = set(names) if default is True else set[str]()
    for output in request.outputs:
        if (asked := output.parameters.get("binary_data", default)) is True:
            binary.add(output.name)
        elif asked is False:
            binary.discard(output.name)
        count = output.parameters.get("classification", 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise Refused(BAD, f"The parameter 'classification' must be a number of classes. Got {quoted(count)}.")
        best = max(best, count)
    return Wanted(request.id, names, frozenset(binary), best)


def _best(probabilities: NDArray[Any], count: int, names: Sequence[str]) -> NDArray[Any]:
    """The best classes of each sample, as `value:index:name`."""
    order = np.argsort(-probabilities, 1, kind="stable")[:, :count]
    rows = [
        [f"{row[i]:f}:{i}" + (f":{names[i]}" if names else "") for i in best]
        for row, best in zip(probabilities, order.tolist(), strict=True)
    ]
    return np.array(rows, object)


def _bytes(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [text.encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
