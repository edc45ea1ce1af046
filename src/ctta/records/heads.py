"""What is read from the mappings in the head of a run folder, and of which kinds it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ctta.base.schema import Positive


class TraitsHead(TypedDict, total=False):
    """What a method needs and costs."""

    learns: str
    forwards: tuple[float, float]
    backwards: tuple[float, float]
    answers: str
    source: str
    boundaries: bool


class ExperimentHead(TypedDict, total=False):
    """What is read from a stored experiment; there is more in it."""

    model: Mapping[str, Any] | None
    execution: Mapping[str, Any] | None
    methods: Sequence[Any] | None
    paper: str | None
    baseline: str | None
    vary: Sequence[str] | None  # what a seed moves


class _Domains(TypedDict):
    domains: tuple[tuple[str, int], ...]


class StreamHead(_Domains, total=False):
    """What is read from a stored stream; there is more in it."""

    dataset: str
    images: Positive | None  # None if domains differ in size
    samples: str
    batch: Positive | None
    boundaries: str
    protocol: Mapping[str, Any] | None  # kind and settings
    classes: Sequence[str] | None
    files: Mapping[str, str] | None  # hashes
    source_check: Mapping[str, Any] | None
