"""Memory: how much was needed, and how to keep freed memory for the next pass.

The C library returns large blocks to the system as soon as they are freed, and every pass of a network asks for the
same blocks again, page by page. If layers are wide and computations light, as in networks for point clouds, half the
time is spent on that.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from ctta.core.device import kind_of

# glibc's mallopt: how much unused memory is kept; from which size on a block is a mapping of its own; how many pools
# threads have, of which all but the first give memory back whatever the other two say.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENAS = -1, -3, -8
KEPT = 2**31 - 1
LARGE = (2**30, 2**25)  # the second one is the most that older versions take


def keep_freed() -> None:
    """Keep freed blocks in this process, so that the next pass finds them; without glibc, do nothing.

    It changes the allocator of the whole process, so it is only for the command line and the workers of an engine.
    """
    with suppress(OSError, AttributeError):
        tune = ctypes.CDLL(None).mallopt
        if any(tune(MMAP_THRESHOLD, size) for size in LARGE):
            tune(TRIM_THRESHOLD, KEPT)
            tune(ARENAS, 1)


class PeakMemory:
    """Measures how much memory was taken beyond what was in use when this object was made.

    On a device with memory of its own it is the device's, else that of the process.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.kind = kind_of(self.device)
        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # glibc: what earlier method runs freed goes back to the system
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak starts anew
        self.kind.restart_peak(self.device)
        self.start = self._peak() if self.kind.peak else _resident("VmRSS")

    def megabytes(self) -> float:
        return round(max(0.0, self._peak() - self.start), 1)

    def _peak(self) -> float:
        return _resident("VmHWM") if self.kind.peak is None else self.kind.peak(self.device) / 2**20


def _resident(field: str) -> float:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return float(line.split()[1]) / 1024
    scale = 2**20 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
