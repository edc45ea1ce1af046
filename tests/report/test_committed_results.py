"""Every table in results/ says how it was made; those in results/studies/ were made on the way, and say so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "results"
EARLIER = ("serving.json",)  # with a soak of half an hour; made before benchmarks wrote where they are from
FILES = sorted(path for path in RESULTS.iterdir() if path.suffix in (".csv", ".json", ".jsonl", ".svg"))


def runs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a file says of each run that its numbers are from: one, those of a sweep, or several commands."""
    if "points" in document:
        yield from document["points"].values()
    elif "runs" in document:
        yield from document["runs"]
    elif parts := [part for part in document.values() if isinstance(part, dict) and "command" in part]:
        yield from parts
    else:
        yield document


@pytest.mark.parametrize("path", [path for path in FILES if path.name not in EARLIER], ids=lambda path: path.name)
def test_a_result_says_how_it_was_made(path):
    beside = path.with_suffix(".json")
    assert beside.exists(), "it has a JSON file beside it"
    for run in runs(json.loads(beside.read_text())):
        assert run["command"].startswith(("ctta ", "python -m benchmarks"))
        assert run["seeds"]
        assert len(run["environment"]["commit"].removesuffix("-dirty")) == 40
        assert {"torch", "numpy", "python", "processor", "threads"} <= run["environment"].keys()
        files = run["stream"]["files"] if "stream" in run else run["files"]
        assert files, "hashes of what was read"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_result_is_linked_by_the_page_for_readers(path):
    page = (RESULTS / "README.md").read_text()
    assert path.suffix == ".json" or f"({path.name})" in page


def test_studies_are_linked_too():
    page = (RESULTS / "README.md").read_text()
    missing = [path.name for path in (RESULTS / "studies").iterdir() if f"(studies/{path.name})" not in page]
    assert not missing
