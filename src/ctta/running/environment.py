"""What numbers were made with: versions, processor, threads."""

from __future__ import annotations

import platform
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ctta


def environment(threads: int | None = None) -> dict[str, Any]:
    """Describe this machine and its libraries; `threads` are those of a worker process, if it is not this one."""
    return {
        "ctta": ctta.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": threads or torch.get_num_threads(),
        "device": "cpu",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
