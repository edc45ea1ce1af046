"""On a Ray cluster that is there already; the one module that imports Ray.

No shared disk is needed for the run folders: workers send what they write, and this side writes it down (see `parcel`).
Data and weights must lie at the same path on every node, and ctta must be installed there; what a node reads is
compared with the head of the run by content, so a node with other data is an error and not a wrong number. Relative
paths and factories are looked up from the directory in which the command was typed, where a node has it.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ctta.base.errors import StateError
from ctta.base.fileio import optional_import
from ctta.running.engines import transfer as parcel
from ctta.running.engines.job import Event, Events, Job, Losses, Workplace, explain
from ctta.running.engines.transfer import Outbox, Parcel

PACE = 0.5  # seconds between parcels, at least


def on_ray(
    jobs: Sequence[Job],
    *,
    address: str = "auto",
    workers: int | None = None,
    threads: int = 1,
    checkpoint_seconds: float = 30.0,
) -> Events:
    """Run jobs on a cluster, so many at a time, or as many as it has room for; yields as parcels come in."""
    ray = _connect(address)
    remote = ray.remote(num_cpus=threads, max_retries=0)(_work).options(num_returns="streaming")
    given = (threads, os.getcwd(), [path for path in sys.path if path], checkpoint_seconds)
    waiting, losses, running = deque(jobs), Losses(), dict[Any, Job]()
    try:
        while waiting or running:
            room = workers or max(1, int(ray.cluster_resources().get("CPU", 0)) // threads)
            while waiting and len(running) < room:
                job = waiting.popleft()
                running[remote.remote(job, parcel.contents(job.folder, job.cell.cell), *given)] = job
            for task in ray.wait(list(running), num_returns=1, timeout=1.0)[0]:
                job = running[task]
                try:
                    received = ray.get(next(task))
                except ray.exceptions.RayTaskError as error:  # it never began: ctta is missing there, or is another one
                    received = Parcel(over=True, error=str(error))
                except (ray.exceptions.RayError, StopIteration):
                    del running[task]
                    if losses.again(job):
                        waiting.appendleft(job)
                    else:
                        yield losses.failure(job)
                    continue
                parcel.deliver(job.folder, job.cell.cell, received)
                losses.forward(job, received.done)
                if received.over:
                    del running[task]
                yield Event(job, received.done, received.domain, received.over, received.error)
    finally:
        ray.shutdown()  # ends what is still running


def _connect(address: str) -> Any:
    ray = optional_import("ray", "ray", "--engine ray")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray has no error of its own for this
        raise StateError(
            f"There is no Ray cluster to be reached at {address!r} ({error}). Start one with `ray start --head` and "
            "run this command on one of its machines, or give its --address HOST:PORT."
        ) from error
    return ray


def _work(
    job: Job, files: Mapping[str, bytes], threads: int, where: str, paths: Sequence[str], checkpoint_seconds: float
) -> Iterator[Parcel]:
    """One job in a folder of its own."""
    if os.path.isdir(where):
        os.chdir(where)
    sys.path += [path for path in paths if path not in sys.path]
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="ctta-") as temporary:
        folder = Path(temporary)
        try:
            parcel.unpack(folder, files)
            outbox, last, done, domain = Outbox(folder, job.cell.cell), time.monotonic(), 0, ""
            for record in Workplace().run(replace(job, folder=folder), checkpoint_seconds):
                done, domain = record.step + 1, record.domain
                if time.monotonic() - last > PACE:
                    yield outbox.parcel(done, domain)
                    last = time.monotonic()
            yield outbox.parcel(job.batches, domain, over=True)
        except Exception as error:  # models are anybody's code
            yield Parcel(over=True, error=explain(error))
