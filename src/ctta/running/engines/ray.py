"""On a Ray cluster that is there already; the one module that imports Ray.

No shared disk is needed for the run folders: workers send what they write, and this side writes it down (see
`transfer`). Data and weights must lie at the same path on every node, and ctta must be installed there; what a node
reads is compared with the head of the run by content, so a node with other data is an error and not a wrong number.
The machine that starts a run opens it, so for a run on GPUs it needs one, too.
Relative paths and factories are looked up from the directory in which the command was typed, if a node has it.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ctta.base.errors import ConfigError, StateError
from ctta.base.fileio import optional_import
from ctta.base.text import quoted
from ctta.running.engines.job import Event, Events, Job, LostWorkers, run_jobs
from ctta.running.engines.transfer import RunUpdate, UpdateReader, apply_update, read_files, write_files
from ctta.running.memory import keep_freed
from ctta.running.opening import ClaimedRun


@dataclass(frozen=True)
class RayCluster:
    """Runs jobs on a cluster, `workers` at a time, or as many as it has room for; each has a GPU to itself or none."""

    address: str = "auto"
    workers: int | None = None
    threads: int = 1
    checkpoint_seconds: float = 30.0
    update_seconds: float = 0.5  # between updates of a job, at least

    def run(self, jobs: Sequence[Job], claimed: ClaimedRun | None = None) -> Events:
        """Run all jobs; yields as updates come in."""
        ray = connect(self.address)
        gpus = _gpus(jobs)
        remote = ray.remote(num_cpus=self.threads, num_gpus=gpus, max_retries=0)(_work)
        remote = remote.options(num_returns="streaming")
        given = (self, os.getcwd(), [path for path in sys.path if path])
        waiting, lost, running = deque(jobs), LostWorkers(), dict[Any, Job]()
        try:
            while waiting or running:
                room = self.workers or _room(ray.cluster_resources(), self.threads, gpus)
                while waiting and len(running) < room:
                    job = waiting.popleft()
                    running[remote.remote(job, read_files(job.folder, job.cell.cell), *given)] = job
                for task in ray.wait(list(running), num_returns=1, timeout=1.0)[0]:
                    job = running[task]
                    try:
                        event, update = ray.get(next(task))
                    except ray.exceptions.RayTaskError as error:  # it never began: ctta is missing, or another version
                        event, update = Event(job, over=True, error=str(error)), RunUpdate()
                    except (ray.exceptions.RayError, StopIteration):
                        del running[task]
                        if lost.again(job):
                            waiting.appendleft(job)
                        else:
                            yield lost.failure(job)
                        continue
                    apply_update(job.folder, job.cell.cell, update)
                    lost.forward(job, event.done)
                    if event.over:
                        del running[task]
                    yield event
        finally:
            ray.shutdown()  # ends what is still running


def _gpus(jobs: Sequence[Job]) -> int:
    """GPUs of each worker. Ray shows a worker only those that it was given, so that `cuda` is the right one."""
    named = [str(job.device) for job in jobs if job.device.index is not None]
    if named:
        raise ConfigError(f"Ray hands out the GPUs, and {quoted(named[0])} names one. Give --device cuda instead.")
    return int(any(job.device.type == "cuda" for job in jobs))


def _room(resources: Mapping[str, float], threads: int, gpus: int) -> int:
    """How many workers the cluster has room for; one at least, which waits if there is none."""
    cores = int(resources.get("CPU", 0)) // threads
    return max(1, min(cores, int(resources.get("GPU", 0))) if gpus else cores)


def library(purpose: str = "This") -> Any:
    """Ray itself, for a process that is part of a cluster already."""
    return optional_import("ray", "ray", purpose)


def serving() -> Any:
    """Ray Serve."""
    return optional_import("ray.serve", "serve-ray", "ctta serve --ray")


def connect(address: str, purpose: str = "--engine ray", **options: Any) -> Any:
    """Ray, connected to a cluster that is there."""
    ray = library(purpose)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray has no error of its own for this
        raise StateError(
            f"There is no Ray cluster to be reached at {quoted(address)} ({error}). Start one with `ray start --head` "
            "and run this command on one of its machines, or give its --address HOST:PORT."
        ) from error
    return ray


def _work(
    job: Job, files: Mapping[str, bytes], cluster: RayCluster, where: str, paths: Sequence[str]
) -> Iterator[tuple[Event, RunUpdate]]:
    """Run one job in a folder of its own."""
    if os.path.isdir(where):
        os.chdir(where)
    sys.path += [path for path in paths if path not in sys.path]
    keep_freed()
    torch.set_num_threads(cluster.threads)
    with tempfile.TemporaryDirectory(prefix="ctta-") as temporary:
        folder = Path(temporary).resolve()
        write_files(folder, files)
        updates, last = UpdateReader(folder, job.cell.cell), time.monotonic()
        for event in run_jobs([replace(job, folder=folder)], cluster.checkpoint_seconds):
            if event.over or time.monotonic() - last > cluster.update_seconds:
                yield replace(event, job=job), updates.read()
                last = time.monotonic()
