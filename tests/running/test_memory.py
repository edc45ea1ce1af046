"""Freed memory stays with the process, and the peak is the peak."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from ctta.running import memory
from ctta.running.memory import ARENAS, KEPT, LARGE, MMAP_THRESHOLD, TRIM_THRESHOLD, PeakMemory, keep_freed

BLOCK = """
import ctypes, sys
from ctta.running.memory import keep_freed

names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
if sys.argv[1] == "keep":
    keep_freed()
before = library.mallinfo2()
block = library.malloc(2**26)
taken = library.mallinfo2()
library.free(block)
freed = library.mallinfo2()
print(taken.hblks - before.hblks, freed.arena + freed.hblkhd == taken.arena + taken.hblkhd)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
@pytest.mark.parametrize(("word", "found"), [("keep", "0 True"), ("give back", "1 False")])
def test_freed_blocks_stay_with_the_process(word, found):
    """By the allocator's own account: a block of 64 MB is no mapping of its own, and stays when it is freed."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("glibc before 2.33 cannot be asked")
    run = subprocess.run([sys.executable, "-c", BLOCK, word], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == found


@pytest.mark.parametrize("most", LARGE)
def test_older_versions_take_a_smaller_threshold(monkeypatch, most):
    calls = []

    class Library:
        def mallopt(self, what, value):
            calls.append((what, value))
            return what != MMAP_THRESHOLD or value <= most

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    keep_freed()
    assert calls[-3:] == [(MMAP_THRESHOLD, most), (TRIM_THRESHOLD, KEPT), (ARENAS, 1)]


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed()


def test_the_peak_is_above_the_start(monkeypatch):
    megabytes = {"VmRSS": 100.0, "VmHWM": 160.06}
    monkeypatch.setattr(memory, "_resident", megabytes.get)
    peak = PeakMemory()
    assert peak.megabytes() == 60.1
    megabytes["VmHWM"] = 90.0
    assert peak.megabytes() == 0.0


def test_the_process_has_some_memory():
    assert 1 < memory._resident("VmRSS") <= memory._resident("VmHWM") + 1
