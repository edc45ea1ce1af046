"""The same network behind LitServe and BentoML, without adaptation: what `benchmarks.serving` compares with.

Both get a batch of 32 images as text (base64 of float32) in JSON, since neither takes raw tensors without more code.
"""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

COMMON = """
import base64
import numpy as np
import torch
from ctta.models.load import embedded_model

torch.set_num_threads(1)


def answer(model, text):
    x = torch.from_numpy(np.frombuffer(base64.b64decode(text), np.float32).reshape(-1, 3, 32, 32).copy())
    with torch.inference_mode():
        return model(x).softmax(1).tolist()
"""
LITSERVE = f"""{COMMON}
import sys
import litserve


class Api(litserve.LitAPI):
    def setup(self, device):
        self.model = embedded_model().eval()

    def decode_request(self, request):
        return request["x"]

    def predict(self, text):
        return answer(self.model, text)

    def encode_response(self, probabilities):
        return {{"probabilities": probabilities}}


if __name__ == "__main__":
    server = litserve.LitServer(Api(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)
"""
BENTOML = f"""{COMMON}
import bentoml


@bentoml.service(workers=1)
class Api:
    def __init__(self):
        self.model = embedded_model().eval()

    @bentoml.api
    def predict(self, x: str) -> list:
        return answer(self.model, x)
"""
SERVERS = {
    "litserve": (LITSERVE, ["api.py", "{port}"]),
    "bentoml": (BENTOML, ["-m", "bentoml", "serve", "api:Api", "--host", "127.0.0.1", "--port", "{port}"]),
}
PATIENCE = 120.0


def installed() -> list[str]:
    return [name for name in SERVERS if importlib.util.find_spec(name) is not None]


class Other:
    """One of them, asked over one connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def __call__(self, x: torch.Tensor) -> bytes:
        content = json.dumps({"x": base64.b64encode(x.numpy().tobytes()).decode()})
        self.connection.request("POST", "/predict", content, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise ConnectionError(f"{response.status}: {body[:200]!r}")
        return body


@contextmanager
def running(name: str, x: torch.Tensor) -> Iterator[Other]:
    """Start it, wait until it answers, and end it."""
    code, words = SERVERS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "api.py").write_text(code)
        command = [sys.executable, *(word.format(port=port) for word in words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "BENTOML_DO_NOT_TRACK": "True"}
        null = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=null, stderr=null)
        deadline = time.monotonic() + PATIENCE
        try:
            while True:
                other = Other(port)
                try:
                    other(x)
                    break
                except (OSError, http.client.HTTPException):
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise
                    time.sleep(0.5)
            other.connection.close()  # servers end idle ones; it opens again by itself
            yield other
        finally:
            process.terminate()
            process.wait(60)
