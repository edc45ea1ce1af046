"""The addresses, asked as a client does."""

from __future__ import annotations

import io
import json
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

import ctta
import tiny
from ctta.serving.app import make_app
from ctta.serving.house import LocalHouse
from ctta.serving.messages import Question
from ctta.serving.security import Tokens
from ctta.serving.settings import ServeSettings
from small_service import INFER, SMALL, LocalClient, body, pixels


def outputs(response):
    assert response.status_code == 200, response.text
    return {
        one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in response.json()["outputs"] if "data" in one
    }


def picture(kind="PNG", size=(20, 12)):
    content = io.BytesIO()
    Image.fromarray((pixels(1, 1)[0].transpose(1, 2, 0) * 255).astype(np.uint8)).resize(size).save(content, kind)
    return content.getvalue()


@pytest.fixture
def client(service):
    return service()


def test_the_protocol_s_questions_about_the_server(client):
    assert client.get("/v2").json()["name"] == "ctta"
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/health/ready"):
        assert client.get(path).status_code == 200
    about = client.get("/v2/models/m").json()
    assert about["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
    assert about["outputs"][0] == {"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}
    assert client.post("/v2/repository/index").json()[0]["state"] == "READY"


@pytest.mark.parametrize("path", ["/v2/models/other", "/v2/models/m/versions/9", "/nowhere"])
def test_what_is_not_there_is_said_in_the_protocol_s_form(client, path):
    response = client.get(path)
    assert response.status_code == 404
    assert list(response.json()) == ["error"]


def test_answers_are_those_of_a_guarded_adapter(client):
    guard = ctta.Guard(ctta.TENT(tiny.network(), preset="auto", boundaries="detected"))
    for seed in range(5):
        x = pixels(seed, 20)
        expected = guard(torch.from_numpy(x)).softmax(1).numpy()
        response = client.post(INFER, json=body(x, sequence_id=42))
        found = outputs(response)
        assert np.array_equal(found["probabilities"].astype(np.float32), expected)
        assert np.array_equal(found["labels"], expected.argmax(1))
        said = response.json()
        assert said["id"] == "7"
        assert said["model_version"] == str(seed + 1)
        assert said["parameters"] == {
            "stream": "42", "step": seed + 1, "version": seed + 1, "adapted": True, "guard": "ok", "batch": 20,
        }  # fmt: skip


def test_binary_tensors_go_both_ways(client):
    x = pixels(0)
    tensor = {"name": "images", "shape": list(x.shape), "datatype": "FP32"}
    head = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": x.nbytes}}],
        "outputs": [{"name": "labels"}, {"name": "probabilities", "parameters": {"binary_data": True}}],
        "parameters": {"adapt": False},
    }
    content = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(content)), "Content-Type": "application/octet-stream"}
    response = client.post(INFER, content=content + x.tobytes(), headers=headers)
    length = int(response.headers["Inference-Header-Content-Length"])
    said, tail = json.loads(response.content[:length]), response.content[length:]
    assert said["outputs"][1]["parameters"]["binary_data_size"] == len(tail) == 4 * 10 * 4
    probabilities = np.frombuffer(tail, "<f4").reshape(4, 10)
    assert said["outputs"][0]["data"] == probabilities.argmax(1).tolist()
    plain = outputs(client.post(INFER, json=body(x, adapt=False)))
    assert np.array_equal(plain["probabilities"].astype(np.float32), probabilities)


def test_8_bit_values_are_pixels_in_either_layout(client):
    x = (pixels(3) * 255).astype(np.uint8)
    found = []
    for layout in (x, x.transpose(0, 2, 3, 1)):
        given = body(layout, adapt=False)
        given["inputs"][0]["datatype"] = "UINT8"
        found.append(outputs(client.post(INFER, json=given))["probabilities"])
    plain = outputs(client.post(INFER, json=body((x / np.float32(255)).astype(np.float32), adapt=False)))
    assert np.array_equal(found[0], plain["probabilities"])
    assert np.array_equal(found[1], plain["probabilities"])


def test_pictures_as_they_are(client):
    one = client.post(
        f"{INFER}?stream=cam&adapt=false&source=true", content=picture("JPEG"), headers=kind("image/jpeg")
    )
    assert set(outputs(one)) == {"probabilities", "labels", "source_probabilities", "source_labels"}
    files = [("a", ("a.png", picture(), "image/png")), ("b", ("b.png", picture(), "image/png"))]
    two = client.post(INFER, files=files, data={"stream": "cam", "adapt": "false"})
    assert outputs(two)["labels"].shape == (2,)
    assert two.json()["parameters"]["stream"] == "cam"
    raw = client.post(INFER, content=picture(), headers=kind("application/octet-stream"))
    assert outputs(raw)["labels"].shape == (1,)


def kind(name):
    return {"Content-Type": name}


def test_the_best_classes_with_their_names(service, tmp_path):
    names = [f"class {i}" for i in range(10)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    client = service(classes=str(tmp_path / "names.txt"))
    asked = [{"name": "probabilities", "parameters": {"classification": 2}}]
    response = client.post(INFER, json={**body(pixels(0)), "outputs": asked}).json()["outputs"][0]
    assert (response["datatype"], response["shape"]) == ("BYTES", [4, 2])
    value, index, name = response["data"][0].split(":")
    assert name == names[int(index)]
    assert float(value) >= float(response["data"][1].split(":")[0])


def test_predicting_alone_changes_nothing(client):
    client.post(INFER, json=body(pixels(0)))
    before = client.get("/streams/default").json()
    for _ in range(3):
        said = client.post(INFER, json=body(pixels(1), adapt=False)).json()["parameters"]
        assert not said["adapted"]
        assert (said["step"], said["version"]) == (before["step"], before["version"])
    assert client.get("/streams/default").json()["history"] == before["history"]


def test_a_sequence_begins_and_ends(client):
    x = pixels(0, 32)
    first = [outputs(client.post(INFER, json=body(x, sequence_id="a")))["probabilities"] for _ in range(3)]
    again = client.post(INFER, json=body(x, sequence_id="a", sequence_start=True))
    assert np.array_equal(outputs(again)["probabilities"], first[0])
    assert again.json()["parameters"]["step"] == 1
    client.post(INFER, json=body(x, sequence_id="a", sequence_end=True))
    assert client.get("/streams/a").json() == {"name": "a", "resident": False}
    back = client.post(INFER, json=body(x, sequence_id="a"))
    assert back.json()["parameters"]["step"] == 3
    assert np.array_equal(outputs(back)["probabilities"], first[2])


def test_streams_do_not_know_each_other(service):
    x, y = pixels(0, 32), pixels(1, 32)
    alone = service(state=None)
    expected = [outputs(alone.post(INFER, json=body(x)))["probabilities"] for _ in range(4)]
    shared = service(state=None)
    for want in expected:
        shared.post(INFER, json=body(y, sequence_id="stranger"))
        assert np.array_equal(outputs(shared.post(INFER, json=body(x)))["probabilities"], want)


def test_management(client):
    assert client.get("/streams").json()["streams"] == []
    x = pixels(0, 32)
    start = outputs(client.post(INFER, json=body(x)))["probabilities"]
    assert client.post("/streams/default/freeze").json()["guard"] == "frozen"
    frozen = client.post(INFER, json=body(x)).json()["parameters"]
    assert (frozen["adapted"], frozen["guard"], frozen["step"]) == (False, "frozen", 1)
    assert client.post("/streams/default/resume").json()["guard"] == "ok"
    moved = client.post(INFER, json=body(x)).json()["parameters"]
    assert (moved["adapted"], moved["step"], moved["version"]) == (True, 2, 2)
    client.post("/streams/default/rollback")
    back = client.get("/streams/default").json()
    assert (back["guard"], back["version"]) == ("rolled back", 3)
    assert client.post("/streams/default/checkpoint").json()["unsaved_updates"] == 0
    client.post("/streams/default/reset")
    anew = client.post(INFER, json=body(x))
    assert np.array_equal(outputs(anew)["probabilities"], start)
    assert anew.json()["parameters"]["version"] == 5, "a reset is a change, too"
    kinds = [event["kind"] for event in client.get("/streams/default").json()["events"]]
    assert kinds == ["freeze", "resume", "roll-back", "rollback", "reset"]
    assert client.delete("/streams/default").json()["deleted"]
    assert client.get("/streams/default").status_code == 404


def test_what_cannot_be_done_is_refused(client):
    assert client.post("/streams/nobody/freeze").status_code == 404
    client.post(INFER, json=body(pixels(0)))
    response = client.post("/streams/default/explode")
    assert response.status_code == 404
    assert "freeze, resume, reset, rollback, checkpoint" in response.json()["error"]
    assert client.get("/streams/..%2f..%2fetc").status_code in (400, 404)
    assert client.get("/streams/a b").status_code == 400


def test_the_page_s_data(client):
    for seed in range(12):
        client.post(INFER, json=body(pixels(seed, 32)))
    shown = client.get("/streams/default").json()
    assert [point["step"] for point in shown["history"]] == list(range(1, 13))
    assert all(0 < point["confidence"] <= 1 for point in shown["history"])
    assert len(shown["seen"]) == 8
    assert shown["seen"][0]["picture"].startswith("data:image/png;base64,")


def test_metrics(client):
    for seed in range(3):
        client.post(INFER, json=body(pixels(seed)))
    client.post(INFER, json=body(pixels(0), adapt=False))
    client.post(INFER, content=b"{}")
    text = client.get("/metrics").text
    for line in (
        'ctta_requests_total{code="200",model="m"} 4.0',
        'ctta_requests_total{code="400",model="m"} 1.0',
        'ctta_updates_total{model="m"} 3.0',
        'ctta_skipped_updates_total{model="m",reason="not_asked_for"} 1.0',
        'ctta_streams{model="m"} 1.0',
        'ctta_guard_state{model="m",stream="default"} 0.0',
        'ctta_batch_size_sum{model="m"} 16.0',
    ):
        assert line in text, line
    assert "ctta_confidence_ratio{" in text
    assert "ctta_request_duration_seconds_bucket{" in text


def test_streams_are_named_in_metrics_only_as_far_as_they_are_bounded(service):
    client = service(labelled_streams=2)
    for stream in range(1, 6):
        client.post(INFER, json=body(pixels(0), sequence_id=stream))
    assert client.get("/metrics").text.count("ctta_confidence_ratio{") == 2


def test_while_the_model_is_loaded_the_service_is_alive_and_not_ready():
    settings = ServeSettings.make(SMALL)
    client = LocalClient(make_app(LocalHouse(settings), settings, Tokens()))
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/health/ready").status_code == 503
    refused = client.post(INFER, json=body(pixels(0)))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


def test_a_full_line_is_told_when_to_come_back(service):
    client = service(stream_queue=1)
    held = threading.Event()
    process = client.home.streams.seat.process
    client.home.streams.seat.process = lambda *given, **more: (held.wait(60), process(*given, **more))[1]
    first = client.home.ask(Question("a", pixels(0)))
    deadline = time.monotonic() + 60
    while len(client.home.queue):  # until the worker holds it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = client.home.ask(Question("a", pixels(0)))
    refused = client.post(INFER, json=body(pixels(0), sequence_id="a"))
    held.set()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert [first.result(60).step, second.result(60).step] == [1, 2]


def test_a_model_that_fails_is_an_error_without_a_traceback(service):
    client = service()

    def fail(*_, **__):
        raise ZeroDivisionError("secret")

    client.home.streams.seat.process = fail
    response = client.post(INFER, json=body(pixels(0)))
    assert response.status_code == 500
    assert response.json() == {"error": "Something unexpected happened. The log of the service says more."}
    assert "secret" not in response.text
