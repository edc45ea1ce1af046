"""Pictures of a folder as a stream, one after the other: python examples/ask.py FOLDER [URL]."""

from __future__ import annotations

import sys
from pathlib import Path

import ctta

folder, *url = sys.argv[1:]
with ctta.Client(*url, stream="python") as client:
    for path in sorted(Path(folder).glob("*.[jp][pn]g")):
        answer = client(path)
        sure = 100 * answer.probabilities.max()
        print(f"{path.name}: class {answer.labels[0]}, {sure:.0f} %, version {answer.version}, guard {answer.guard}")
