"""The service as a process: killed, ended, and asked while it loads."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import socket
import time

import numpy as np
import pytest

import command_line
import ctta
from ctta.client import ServiceError
from small_service import SMALL, pixels

GIVEN = [f"{name}={value}" for name, value in SMALL.items() if name not in ("model", "size", "method")]


class Service:
    """`ctta serve` in a process of its own."""

    def __init__(self, folder, *words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ("--state", folder, "--port", self.port, *words, *(part for one in GIVEN for part in ("--set", one)))
        self.process = command_line.start("serve", "tiny:network", "--size", 8, "--method", "tent", *words)
        self.client = ctta.Client(f"http://127.0.0.1:{self.port}", model="m", stream="cam")

    def ready(self):
        deadline = time.monotonic() + command_line.PATIENCE
        while True:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the service was not ready in time"
            try:
                self.client._json("GET", "/v2/health/ready")
                return self
            except ServiceError:
                time.sleep(0.05)

    def end(self, number):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=command_line.PATIENCE)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path):
    started = []

    def make(*words):
        started.append(Service(tmp_path / "state", *words))
        return started[-1].ready()

    yield make
    for service in started:
        if service.process.poll() is None:
            service.process.kill()
        service.process.communicate()
        service.client.close()


@pytest.mark.slow
def test_a_killed_service_goes_on_from_its_last_save(start, tmp_path):
    service = start("--set", "save_updates=4", "--set", "save_seconds=1000000")
    expected = [service.client(pixels(seed, 32)).probabilities for seed in range(11)]
    assert service.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = start()
    step = again.client.predict(pixels(0, 32)).step
    assert 11 - 4 <= step < 11, "what was lost is at most what is said"
    found = [again.client(pixels(seed, 32)).probabilities for seed in range(step, 11)]
    assert np.array_equal(found, expected[step:])


@pytest.mark.slow
def test_the_end_is_graceful(start):
    service = start("--set", "save_updates=1000", "--set", "save_seconds=1000000")
    for seed in range(3):
        service.client(pixels(seed, 32))
    service.client.act("freeze")
    events = http.client.HTTPConnection("127.0.0.1", service.port, timeout=command_line.PATIENCE)
    events.request("GET", "/streams/cam/events")
    listened = events.getresponse()
    assert listened.getheader("content-type").startswith("text/event-stream")
    said = b""
    while b"\n\n" not in said.partition(b"id: 1\n")[2]:
        said += listened.fp.read1(1000)
    assert b"event: freeze\n" in said
    service.client.act("resume")
    while b"event: resume\n" not in said:
        said += listened.fp.read1(1000)
    code, out, err = service.end(signal.SIGTERM)
    listened.close()
    events.close()
    assert code in (0, -signal.SIGTERM), err
    assert "A killed process loses at most 1000 updates" in out
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert {"time", "level", "message", "path", "status", "seconds"} <= lines[-1].keys()
    assert "Traceback" not in err
    again = start()
    assert again.client.predict(pixels(0, 32)).step == 3, "it was saved though no save was due"


def test_answers_do_not_wait_for_an_acknowledgement():
    """asyncio sends at once only on sockets that name their protocol; on others each answer waits 40 ms."""
    from ctta.serving.server import _listen

    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


@pytest.fixture
def logs():
    """The logs are as they were, whatever a command has done to them."""
    loggers = [logging.getLogger(name) for name in ("ctta", "uvicorn")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "There is no model 'nothing'"),
        (["tiny:network"], "The size of the images is not known"),
        (["tiny:network", "--size", "8", "--mean", "0.5"], "mean and std belong together"),
        (["--mean", "half", "--std", "1"], "'mean' of ServeSettings must be a list, each entry a number"),
        (["--host", "0.0.0.0"], "Set CTTA_INFER_TOKEN"),
        (["--set", "bach=3"], "Did you mean 'batch'?"),
        (["--key", "key.pem"], "TLS needs a certificate and its key"),
        (["--method", "rmt"], "needs labelled source data"),
    ],
)
def test_what_has_to_be_fixed_is_said_in_a_sentence(words, said, monkeypatch, logs):
    from typer.testing import CliRunner

    from ctta.cli.app import app

    monkeypatch.delitem(os.environ, "CTTA_INFER_TOKEN", raising=False)
    result = CliRunner().invoke(app, ["serve", "--port", "0", *words])
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())


def test_the_normalisation_of_a_model_is_given_as_to_adapt(monkeypatch, logs):
    from typer.testing import CliRunner

    from ctta.cli.app import app

    served = []
    monkeypatch.setattr("ctta.serving.server.run", lambda settings, *_: served.append(settings))
    words = ["serve", "tiny:network", "--size", "8", "--mean", "0.5,0.4,.25", "--std", "1,2,3"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    (settings,) = served
    assert (settings.mean, settings.std) == ((0.5, 0.4, 0.25), (1, 2, 3))


def test_all_settings_are_listed():
    from typer.testing import CliRunner

    from ctta.cli.app import app

    result = CliRunner().invoke(app, ["serve", "--settings"])
    assert result.exit_code == 0
    assert "max_delay: " in result.output
