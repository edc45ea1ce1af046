"""Corruptions of the public robustness benchmarks, from an explicit seed."""

from ctta.data.corruptions.clouds import CLOUD_NAMES, corrupt_clouds
from ctta.data.corruptions.constants import EXTRA, NAMES, PAPER, PRESETS
from ctta.data.corruptions.domain import SEVERITIES
from ctta.data.corruptions.images import corrupt

__all__ = ["CLOUD_NAMES", "EXTRA", "NAMES", "PAPER", "PRESETS", "SEVERITIES", "corrupt", "corrupt_clouds"]
