"""What numbers were made with: versions, commit, processor, threads, device, precision."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
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
        **({"commit": found} if (found := commit(Path(__file__))) else {}),
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


def commit(file: Path) -> str:
    """The commit that a source file is at, with "-dirty" if its repository has changes; empty if it is in none."""
    tracked = _git(file.parent, "ls-files", "--error-unmatch", file.name)
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") if tracked else ""


def _git(folder: Path, *arguments: str) -> str:
    try:
        said = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()
