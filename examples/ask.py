"""A stream of corrupted images, asked batch by batch: python examples/ask.py [URL]."""

from __future__ import annotations

import sys

import ctta
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream

with ctta.Client(*sys.argv[1:2], stream="python") as client:
    wrong = total = 0
    for batch in open_stream(Data(domains=("fog", "contrast"), images=640, batch=32)):
        answer = client(batch.x)
        wrong, total = wrong + int((answer.labels != batch.y.numpy()).sum()), total + len(batch.y)
        print(f"batch {answer.step}: error so far {100 * wrong / total:.1f} %, guard {answer.guard}")
