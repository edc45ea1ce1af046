"""The client, against a service of this process behind a real socket."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch
from PIL import Image

import ctta
import tiny
from small_service import SMALL, pixels


@pytest.fixture(scope="module")
def address():
    from ctta.serving.house import LocalHouse
    from ctta.serving.security import Tokens
    from ctta.serving.server import Serving
    from ctta.serving.settings import ServeSettings

    settings = ServeSettings.make({**SMALL, "port": 0, "queue": 1})
    found, listens = [], threading.Event()
    serving = Serving(settings, Tokens(), LocalHouse(settings), lambda place: (found.append(place), listens.set()))
    thread = threading.Thread(target=lambda: asyncio.run(serving.run()), daemon=True)
    thread.start()
    assert listens.wait(120)
    yield found[0]
    serving.end()
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def client(address):
    with ctta.Client(address, model="m", stream="mine") as client:
        yield client


def test_it_answers_as_the_adapter_does(client):
    guard = ctta.Guard(ctta.TENT(tiny.network(), preset="auto", boundaries="detected"))
    for seed in range(3):
        x = torch.from_numpy(pixels(seed, 32))
        expected = guard(x).softmax(1).numpy()
        got = client(x)
        assert np.array_equal(got.probabilities, expected)
        assert np.array_equal(got.labels, expected.argmax(1))
        assert (got.stream, got.step, got.version, got.adapted, got.guard) == ("mine", seed + 1, seed + 1, True, "ok")
    assert not client.predict(x).adapted


def test_management(client):
    client(pixels(0), stream=7)
    assert "7" in [stream["name"] for stream in client.streams()]
    assert client.act("freeze", 7)["guard"] == "frozen"
    assert client.show(7)["frozen"]
    client.delete(7)
    with pytest.raises(ConnectionError, match="There is no stream '7'") as caught:
        client.show(7)
    assert caught.value.status == 404


def test_8_bit_values_and_pictures(client, tmp_path):
    image = (pixels(0, 1)[0].transpose(1, 2, 0) * 255).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    tensor, array = client.predict((image / np.float32(255)).transpose(2, 0, 1)[None]), client.predict(image[None])
    assert np.array_equal(array.probabilities, tensor.probabilities)
    for given in (tmp_path / "a.png", (tmp_path / "a.png").read_bytes()):
        assert np.allclose(client.predict(given).probabilities, tensor.probabilities, atol=1e-6)


def test_errors_are_those_of_the_library(client):
    with pytest.raises(ctta.InputError, match="Pixels must lie in"):
        client(pixels(0) * 9)
    with pytest.raises(ctta.ConfigError, match="http://localhost:8000"):
        ctta.Client("localhost:8000")
    with pytest.raises(ConnectionError, match="Is it running"):
        ctta.Client("http://localhost:1")(pixels(0))
