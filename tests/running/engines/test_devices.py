"""Which device the workers of an engine get; no GPU is needed, since nothing runs on one here."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from ctta import ConfigError
from ctta.core import device as devices
from ctta.core.device import Kind
from ctta.experiments import experiment as experiments
from ctta.running.engines import Processes, RayCluster, processes
from ctta.running.engines import ray as ray_engine
from ctta.running.engines.job import Job
from ctta.running.engines.processes import SPAWN, Worker


@pytest.fixture
def three_gpus(monkeypatch):
    monkeypatch.setitem(devices.KINDS, "cuda", Kind(lambda: 3))


def jobs(device: str, count: int = 4) -> list[Job]:
    made = experiments.make({"methods": ["source"], "seeds": list(range(count)), "execution": {"device": device}})
    return [Job(made, Path("run"), cell, 1) for cell in made.cells((1, 3, 32, 32))]


class Pretence:
    """Workers that say which devices they were given, and that their job is over once all have one."""

    def __init__(self, monkeypatch):
        self.given: list[tuple[int, str]] = []
        self.all_there = threading.Barrier(4)
        monkeypatch.setattr(processes, "_start", self.start)

    def start(self, number: int, threads: int, every: float) -> Worker:
        ours, theirs = SPAWN.Pipe()
        threading.Thread(target=self.work, args=(theirs, number), daemon=True).start()
        nothing = SimpleNamespace(terminate=lambda: None, join=lambda seconds=0: None, kill=lambda: None)
        return Worker(nothing, ours, number)

    def work(self, line, number: int) -> None:
        line.send("ready")
        job = line.recv()
        self.given.append((number, job.experiment.execution.device))
        self.all_there.wait(60)
        line.send((job.batches, "", True, ""))


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("device", "given"),
    [
        ("auto", ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("cuda", ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("cuda:1", ["cuda:1"] * 4),
        ("cpu", ["cpu"] * 4),
    ],
)
def test_each_worker_of_this_machine_has_a_device_in_turn(monkeypatch, device, given):
    pretence = Pretence(monkeypatch)
    events = list(Processes(workers=4).run(jobs(device)))
    assert [event.error for event in events] == [""] * 4
    assert sorted(pretence.given) == list(enumerate(given))


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(("device", "cores", "room"), [("cuda", 8, 3), ("cuda", 2, 2), ("cpu", 8, 8)])
def test_without_a_number_there_is_one_worker_per_device(monkeypatch, device, cores, room):
    monkeypatch.setattr(processes.os, "cpu_count", lambda: cores)
    assert processes._room(jobs(device, 1)[0], threads=1) == room


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(("device", "gpus"), [("cuda", 1), ("cpu", 0)])
def test_ray_is_asked_for_a_gpu_per_worker(monkeypatch, device, gpus):
    asked = {}

    def remote(**options):
        asked.update(options)
        raise InterruptedError

    monkeypatch.setattr(ray_engine, "connect", lambda address: SimpleNamespace(remote=remote))
    with pytest.raises(InterruptedError):
        list(RayCluster(threads=2).run(jobs(device)))
    assert (asked["num_gpus"], asked["num_cpus"]) == (gpus, 2)


@pytest.mark.usefixtures("three_gpus")
def test_ray_is_not_told_which_gpu(monkeypatch):
    monkeypatch.setattr(ray_engine, "connect", lambda address: None)
    with pytest.raises(ConfigError, match=r"Ray hands out the GPUs, and 'cuda:1' names one\. Give --device cuda"):
        list(RayCluster().run(jobs("cuda:1")))


@pytest.mark.parametrize(
    ("resources", "gpus", "room"),
    [({"CPU": 8.0, "GPU": 2.0}, 1, 2), ({"CPU": 8.0, "GPU": 2.0}, 0, 4), ({"CPU": 2.0, "GPU": 4.0}, 1, 1), ({}, 1, 1)],
)
def test_a_cluster_has_room_by_cores_and_gpus(resources, gpus, room):
    assert ray_engine._room(resources, 2, gpus) == room
