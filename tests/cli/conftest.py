"""A small experiment."""

from __future__ import annotations

import json

import pytest

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 40, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent"],
}


@pytest.fixture
def spec(tmp_path):
    """A function that writes the experiment, with sections changed, and returns the path of its file."""

    def write(**sections):
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps(SPEC | sections))
        return path

    return write
