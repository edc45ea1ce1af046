"""What numbers were made with: versions, processor, threads, device, precision."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

import ctta
from ctta.core.device import kind_of, processor
from ctta.core.execution import Execution


def environment(execution: Execution | None = None, threads: int | None = None) -> dict[str, Any]:
    """Describe this machine, its libraries and device; `threads` are those of a worker, if it is not this process."""
    execution = execution or Execution()
    device = torch.device(execution.device or "cpu")
    kind = kind_of(device)
    own = {} if device.type == "cpu" else {"accelerator": kind.named(device), "driver": kind.driver()}
    return {
        "ctta": ctta.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "threads": threads or torch.get_num_threads(),
        "device": str(device),
        **own,
        "precision": execution.precision,
        "date": datetime.now(UTC).date().isoformat(),
    }
