"""In processes of this machine. Workers write into the run folders themselves, so nothing is lost with them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from ctta.base.errors import StateError
from ctta.core.device import kind_of
from ctta.running.engines.job import LOSSES, Event, Events, Job, LostWorkers, run_jobs
from ctta.running.memory import keep_freed
from ctta.running.opening import ClaimedRun

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy threads' locks in whatever state they are


@dataclass
class Worker:
    """A process and the line to it."""

    process: SpawnProcess
    line: Connection
    number: int  # no two that live share it
    ready: bool = False  # has reported that it has started
    job: Job | None = None


@dataclass(frozen=True)
class Processes:
    """Runs jobs in `workers` processes, each on a device in turn; without it, in as many as there is room for."""

    workers: int | None = None
    threads: int = 1
    checkpoint_seconds: float = 30.0

    def run(self, jobs: Sequence[Job], claimed: ClaimedRun | None = None) -> Events:
        """Run all jobs; yields after every batch of any. Closed or interrupted, it ends all workers."""
        most = self.workers or min((_room(job, self.threads) for job in jobs), default=1)
        waiting, lost, crew = deque(jobs), LostWorkers(), dict[Connection, Worker]()
        stillborn = 0
        try:
            while waiting or any(worker.job for worker in crew.values()):
                wanted = min(most, len(waiting) + sum(worker.job is not None for worker in crew.values()))
                while len(crew) < wanted:
                    taken = {worker.number for worker in crew.values()}
                    number = next(number for number in range(most) if number not in taken)
                    worker = _start(number, self.threads, self.checkpoint_seconds)
                    crew[worker.line] = worker
                for worker in crew.values():
                    if worker.ready and worker.job is None and waiting:
                        worker.job = waiting.popleft()
                        with suppress(OSError):  # it is gone; its line will say so
                            worker.line.send(in_turn(worker.job, worker.number))
                for line in wait(list(crew)):
                    assert isinstance(line, Connection)
                    worker = crew[line]
                    try:
                        received = line.recv()
                    except (EOFError, OSError):
                        _end(crew.pop(line))
                        stillborn = 0 if worker.ready else stillborn + 1
                        if stillborn == LOSSES:
                            raise StateError(
                                f"{LOSSES} workers in a row ended as they started; what they reported is above. In a "
                                "script of your own, start runs under `if __name__ == '__main__':`."
                            ) from None
                        if worker.job is not None and lost.again(worker.job):
                            waiting.appendleft(worker.job)
                        elif worker.job is not None:
                            yield lost.failure(worker.job)
                        continue
                    if worker.job is None:
                        worker.ready, stillborn = True, 0
                        continue
                    event = Event(worker.job, *received)
                    lost.forward(worker.job, event.done)
                    if event.over:
                        worker.job = None
                    yield event
        finally:
            for worker in crew.values():
                worker.process.terminate()
            for worker in crew.values():
                _end(worker)


def _room(job: Job, threads: int) -> int:
    """How many workers this machine has room for: one per device, or on a CPU as many as it has cores for."""
    cores = max(1, (os.cpu_count() or 1) // threads)
    return cores if job.device.type == "cpu" else min(cores, kind_of(job.device).count())


def in_turn(job: Job, number: int) -> Job:
    """The job on the device of worker `number`, unless one is named or there is only one."""
    count = kind_of(job.device).count()
    return job if job.device.index is not None or count < 2 else job.on(f"{job.device.type}:{number % count}")


def _start(number: int, threads: int, checkpoint_seconds: float) -> Worker:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_work, args=(theirs, threads, checkpoint_seconds), daemon=True)
    with _inherited(threads):
        process.start()
    theirs.close()  # so that the line ends with the worker
    return Worker(process, ours, number)


def _end(worker: Worker) -> None:
    worker.line.close()
    worker.process.join(10)
    worker.process.kill()
    worker.process.join()


@contextmanager
def _inherited(threads: int) -> Iterator[None]:
    """What a process that starts here inherits: its number of threads, and that Ctrl-C is left to its parent."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    resource_tracker.ensure_running()  # started later, with the first process, it would undo the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(line: Connection, threads: int, checkpoint_seconds: float) -> None:
    """Live as a worker: receive jobs; send that it is ready, and then the fields of the events of each job."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed()
    torch.set_num_threads(threads)
    line.send("ready")
    for event in run_jobs(iter(line.recv, None), checkpoint_seconds):
        line.send((event.done, event.domain, event.over, event.error))


def _end_with_parent() -> None:
    """End this worker as soon as its parent is killed: two writers would spoil a file."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
