"""What serving costs and stands: `python -m benchmarks.serving --out results/serving.json`.

overhead   time of a batch of 32 raw tensors over HTTP, over that of the same guarded adapter in process, in turns
others     a batch of 32 without adaptation behind this service, and behind LitServe and BentoML if they are installed
load       requests per second, and the time of an answer, with 1, 8 and 64 streams that ask without a pause
memory     bytes that a stream adds: of its state, and of the process
kills      20 times SIGKILL under load: updates that were answered and are gone after the restart
malformed  10,000 damaged requests over HTTP: how they were answered
soak       the load of 8 streams for so many minutes: memory of the process along the way

The service is a process of its own, on the embedded network; every process has one thread of torch.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

import ctta
from benchmarks import other_servers
from benchmarks.origin import embedded, origin
from benchmarks.timing import medians
from ctta.client import ServiceError
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.models.load import embedded_model

BATCH, PATIENCE = 32, 300.0


class Service:
    """`ctta serve` with the embedded network, in a process of its own."""

    def __init__(self, method: str, *words: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "ctta", "serve", "--method", method, "--port", str(self.port), *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(command, env=environment, stdout=null, stderr=null)
        self.url = f"http://127.0.0.1:{self.port}"
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        with self.client() as client:
            while True:
                try:
                    client._json("GET", "/v2/health/ready")
                    return
                except ServiceError:
                    if time.monotonic() > deadline or self.process.poll() is not None:
                        raise
                    time.sleep(0.1)

    def client(self, stream: str = "bench") -> ctta.Client:
        return ctta.Client(self.url, stream=stream, timeout=PATIENCE)

    @property
    def megabytes(self) -> float:
        """Memory of the process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE)


@contextmanager
def serving(method: str, *words: str) -> Iterator[Service]:
    service = Service(method, *words)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end()


def images(count: int, batch: int = BATCH) -> list[torch.Tensor]:
    data = Data(domains=("gaussian_noise",), images=count * batch, batch=batch)
    return [each.x for each in open_stream(data)]


def overhead(methods: tuple[str, ...] = ("tent", "dss"), rounds: int = 25) -> dict[str, Any]:
    """The ratio of times, median of turns."""
    found, batches = {}, images(10)
    for method in methods:
        guard = ctta.Guard(ctta.create(method, embedded_model(), preset="auto", boundaries="detected"))
        with serving(method) as service, service.client() as client:

            def turn(ask: Callable[[torch.Tensor], Any], count: list[int]) -> Callable[[], None]:
                def run() -> None:
                    ask(batches[count[0] % len(batches)])
                    count[0] += 1

                return run

            turns = {"in process": turn(guard, [0]), "served": turn(client, [0])}
            seconds = medians(turns, rounds=rounds * (4 if method == "tent" else 1), warm_up=12)
            plain = medians({"predict": lambda: client.predict(batches[0])}, rounds=10, warm_up=2)
        found[method] = {
            "ratio": round(seconds["served"] / seconds["in process"], 3),
            "milliseconds_in_process": round(1000 * seconds["in process"], 2),
            "milliseconds_served": round(1000 * seconds["served"], 2),
            "milliseconds_of_predicting_served": round(1000 * plain["predict"], 2),
        }
    return found


def others(rounds: int = 40) -> dict[str, Any]:
    """The network without adaptation, behind this service and those that are installed, in turns; over our time."""
    x = images(1)[0]
    with ExitStack() as stack:
        service = stack.enter_context(serving("source", "--set", "guard=false"))
        turns: dict[str, Callable[[], Any]] = {"ctta": partial(stack.enter_context(service.client()), x)}
        for name in other_servers.installed():
            turns[name] = partial(stack.enter_context(other_servers.running(name, x)), x)
        seconds = medians(turns, rounds=rounds, warm_up=5)
    found = {name: round(value / seconds["ctta"], 2) for name, value in seconds.items()}
    return {"milliseconds_of_ctta": round(1000 * seconds["ctta"], 2), "ratios": found}


def asked_for(service: Service, name: str, until: float, batches: list[torch.Tensor]) -> list[float]:
    """Ask as soon as there is an answer, until a time; gives the seconds of each."""
    times: list[float] = []
    with service.client(name) as client:
        while time.monotonic() < until:
            began = time.perf_counter()
            client(batches[len(times) % len(batches)])
            times.append(time.perf_counter() - began)
    return times


def load(streams: tuple[int, ...] = (1, 8, 64), seconds: float = 20.0, method: str = "tent") -> dict[str, Any]:
    """Closed loops: every stream asks as soon as it has its answer."""
    found, batches = {}, images(4, 8)
    for number in streams:
        with serving(method) as service, ThreadPoolExecutor(number) as pool:
            began = time.monotonic()
            asked = [pool.submit(asked_for, service, f"s{i}", began + seconds, batches) for i in range(number)]
            times = [one for each in asked for one in each.result()]
            took = time.monotonic() - began
        found[str(number)] = {
            "requests_per_second": round(len(times) / took, 1),
            "samples_per_second": round(8 * len(times) / took, 1),
            "p50_milliseconds": round(1000 * median(times), 1),
            "p99_milliseconds": round(1000 * quantiles(times, n=100)[98], 1),
        }
    return {"samples_per_request": 8, "method": method, "streams": found}


def memory(number: int = 200, methods: tuple[str, ...] = ("tent", "roid", "dss")) -> dict[str, Any]:
    """What `number` streams add to the service."""
    found = {}
    x = images(1, 8)[0]
    for method in methods:
        few = number if method != "dss" else number // 10
        words = ("--set", "changes.views=1") if method == "dss" else ()
        with serving(method, *words) as service, service.client() as client:
            for i in range(3):  # so that what is made once is there
                client(x, stream=f"first-{i}")
            before = service.megabytes
            for i in range(few):
                client(x, stream=f"s{i}")
            grown = (service.megabytes - before) / few
            sizes = [stream["bytes"] for stream in client.streams() if stream["bytes"]]
        found[method] = {"kilobytes_of_state": round(median(sizes) / 1024, 1)}
        found[method] |= {"kilobytes_of_process": round(1024 * grown, 1), "streams": few}
    size = sum(p.numel() * p.element_size() for p in embedded_model().parameters()) / 1024
    return {"kilobytes_of_model": round(size, 1), "methods": found}


def ask_until_killed(service: Service, name: str, x: torch.Tensor, steps: dict[str, int], enough: Any) -> None:
    """Ask until nobody answers; `enough` is released with every answer."""
    with service.client(name) as client:
        while True:
            try:
                steps[name] = client(x).step
            except ServiceError:
                return
            enough.release()


def kills(number: int = 20, save_updates: int = 10) -> dict[str, Any]:
    """Kill the service while four streams ask; compare what was answered with what is there afterwards."""
    x, lost, draw = images(1, 8)[0], list[int](), random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        words = ("--state", folder, "--set", f"save_updates={save_updates}", "--set", "save_seconds=1000000")
        service = Service("tent", *words)
        for _ in range(number):
            steps: dict[str, int] = {}
            enough = threading.Semaphore(0)
            given = [(service, f"s{i}", x, steps, enough) for i in range(4)]
            threads = [threading.Thread(target=ask_until_killed, args=one) for one in given]
            for thread in threads:
                thread.start()
            for _ in range(draw.randint(30, 90)):
                assert enough.acquire(timeout=PATIENCE), "the service does not answer"
            service.end(signal.SIGKILL)
            for thread in threads:
                thread.join()
            service = Service("tent", *words)
            with service.client() as client:
                lost += [step - client.predict(x, stream=name).step for name, step in steps.items()]
        service.end()
    counts = {"kills": number, "streams": 4, "promised_at_most": save_updates}
    return {**counts, "most_lost_updates": max(lost), "median_lost_updates": median(lost)}


def malformed(number: int = 10_000) -> dict[str, Any]:
    """Damaged requests over one connection after the other; the service must answer a good one afterwards."""
    draw, x = random.Random(0), images(1, 1)[0].numpy()
    tensor = {"name": "images", "shape": list(x.shape), "datatype": "FP32"}
    plain = json.dumps({"inputs": [{**tensor, "data": x.round(2).ravel().tolist()}], "parameters": {"adapt": False}})
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": x.nbytes}}]}).encode()
    goods: list[tuple[bytes, dict[str, str]]] = [
        (plain.encode(), {"Content-Type": "application/json"}),
        (head + x.tobytes(), {"Inference-Header-Content-Length": str(len(head))}),
    ]
    codes: Counter[int] = Counter()
    with serving("tent") as service, service.client() as client:
        for i in range(number):
            content, headers = goods[i % 2]
            spoiled = bytearray(content)
            for _ in range(draw.randint(1, 3)):
                spot = draw.randrange(len(spoiled) or 1)
                if draw.random() < 0.5:
                    spoiled[spot : spot + draw.randint(1, 40)] = draw.randbytes(draw.randint(0, 20))
                else:
                    del spoiled[spot:]
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            connection.request("POST", "/v2/models/model/infer", bytes(spoiled), headers)
            codes[connection.getresponse().status] += 1
            connection.close()
        good = client.predict(x).labels.shape == (1,)
        alive = service.process.poll() is None
    return {"requests": number, "by_status": dict(sorted(codes.items())), "goes_on": good and alive}


def soak(minutes: float = 30.0, streams: int = 8) -> dict[str, Any]:
    """Memory along a long load."""
    batches = images(8, 8)
    with tempfile.TemporaryDirectory() as folder, serving("tent", "--state", folder) as service:
        until, along = time.monotonic() + 60 * minutes, list[float]()
        with ThreadPoolExecutor(streams) as pool:
            asked = [pool.submit(asked_for, service, f"s{i}", until, batches) for i in range(streams)]
            while time.monotonic() < until:
                time.sleep(min(15.0, max(0.1, until - time.monotonic())))
                along.append(round(service.megabytes, 1))
            requests = sum(len(each.result()) for each in asked)
        with service.client() as client:
            guards = Counter(stream["guard"] for stream in client.streams())
    half = along[len(along) // 4 :]
    return {
        "minutes": minutes,
        "streams": streams,
        "requests": requests,
        "megabytes_at_first_quarter": half[0],
        "megabytes_at_end": half[-1],
        "megabytes_at_most": max(along),
        "guard": dict(guards),
    }


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "overhead": overhead,
    "others": others,
    "load": load,
    "memory": memory,
    "kills": kills,
    "malformed": malformed,
    "soak": soak,
}


def main() -> None:
    """Measure some parts, and add them to the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=[name for name in PARTS if name != "soak"])
    parser.add_argument("--minutes", type=float, default=30.0, help="of the soak")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.parts:
        measured = PARTS[name](given.minutes) if name == "soak" else PARTS[name]()
        held = json.loads(given.out.read_text()) if given.out.exists() else {}
        given.out.write_text(json.dumps({**held, name: {**origin(embedded()), **measured}}, indent=1) + "\n")
        print(name, json.dumps(measured, indent=1), flush=True)


if __name__ == "__main__":
    main()
