"""Corruptions of the public robustness benchmarks, from an explicit seed."""

from ctta.corruptions.domain import SEVERITIES
from ctta.corruptions.images import EXTRA, NAMES, PAPER, PRESETS, corrupt

__all__ = ["EXTRA", "NAMES", "PAPER", "PRESETS", "SEVERITIES", "corrupt"]
