"""Models that die or wait in the middle of a method run, in worker processes only; and the gate they wait at.

An experiment names them as its factory. Nothing here depends on time: a worker announces that it waits, and goes on
when it is let through.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from tiny import network

PASSES = 12  # of each copy of the model, so it happens to every method run at about batch 10
PATIENCE = 300  # seconds until a test gives up


class AtPass(nn.Module):
    """Acts once, before a given pass, in a process that somebody else has started for a method run."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.act, self.passes = act, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        if self.passes == PASSES and _in_worker():
            self.act()
        return x


def dies_once() -> nn.Module:
    """The first worker that gets there is killed; the file named by DEATH says that it has happened."""
    return nn.Sequential(AtPass(_die_once), network())


def waits() -> nn.Module:
    """Every worker that gets there waits to be let through; without the folder named by GATE, it goes on."""
    return nn.Sequential(AtPass(_wait), network())


class Gate:
    """Where workers wait, seen from outside."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        for name in ("reached", "through"):
            os.mkfifo(folder / name)
        # Open both ways, so that nothing is lost while nobody reads.
        self._reached, self._through = (os.open(folder / name, os.O_RDWR) for name in ("reached", "through"))

    def wait_for(self, workers: int) -> None:
        """Return when so many workers wait."""
        for _ in range(workers):
            assert select.select([self._reached], [], [], PATIENCE)[0], "no worker has reached the gate"
            os.read(self._reached, 1)

    def open(self) -> None:
        """Let everybody through, now and later."""
        os.write(self._through, b"x" * 1000)


def _die_once() -> None:
    try:
        os.close(os.open(os.environ["DEATH"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _wait() -> None:
    if "GATE" in os.environ:
        folder = Path(os.environ["GATE"])
        (folder / "reached").write_bytes(b"x")
        with (folder / "through").open("rb", buffering=0) as through:
            through.read(1)


def _in_worker() -> bool:
    """Workers of this machine have a parent; those of a cluster know which process is not one of them."""
    return multiprocessing.parent_process() is not None or os.environ.get("DRIVER", str(os.getpid())) != str(
        os.getpid()
    )
