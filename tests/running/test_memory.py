"""Freed memory is used again, and the peak is the peak."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from ctta.running.memory import PeakMemory

FAULTS = """
import resource, statistics, sys
import torch
from ctta.running.memory import keep_freed

if sys.argv[1] == "keep":
    keep_freed()
rounds = []
for _ in range(15):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24, dtype=torch.uint8).add_(1)
    torch.zeros(2**26, dtype=torch.uint8).add_(1)
    rounds.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(int(statistics.median(rounds)))
"""


def faults(word: str) -> int:
    """Pages that the system had to find for blocks of 16 and 64 MB, taken and freed again and again; the median round.

    Where a block lies is chance in the first rounds.
    """
    run = subprocess.run([sys.executable, "-c", FAULTS, word], capture_output=True, text=True, check=True, timeout=300)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_blocks_are_used_again() -> None:
    assert faults("keep") * 10 < faults("give back")


def test_the_peak_is_what_was_taken_at_once() -> None:
    peak = PeakMemory()
    block = bytearray(b"x") * (60 * 2**20)
    del block
    assert 50 < peak.megabytes() < 200
