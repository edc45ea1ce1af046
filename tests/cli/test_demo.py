"""`ctta demo`: small versions of both, with the embedded models. Adaptation must help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import ctta


def means(table, last):
    rows = {row["label"]: row["mean"]["mean"] for row in table["rows"]}
    assert set(rows) == {"Source", "BN Adapt", "TENT", "DSS", last}
    return rows.pop("Source"), rows


@pytest.mark.slow
def test_images(tmp_path):
    """Four domains at two fifths of their size: what is recommended is better than what is published."""
    domains = "data.domains=[snow, contrast, defocus_blur, jpeg_compression]"
    small = ("--set", domains, "--set", "data.images=200", "--set", "method.views=1")
    code, out, err = ctta("demo", "--out", tmp_path / "demo", "--json", *small)
    assert code == 0, err
    source, adapted = means(json.loads(out), "Sift guarded")
    recommended = adapted.pop("Sift guarded")
    assert recommended + 3 < min(adapted.values())
    assert max(adapted.values()) < source


def test_clouds(tmp_path):
    """Two domains at a quarter of their size; the point clouds are drawn on the page."""
    small = ("--set", "data.domains=[background, lidar]", "--set", "data.images=36", "--set", "method.views=2")
    words = ("demo", "--clouds", "--out", tmp_path / "demo", "--json", *small)
    code, out, err = ctta(*words)
    assert code == 0, err
    table = json.loads(out)
    assert table["samples"] == "point clouds"
    source, adapted = means(table, "CoTTA")
    assert max(adapted.values()) < source
    assert Path(table["report"]).read_text().count("data:image/png;base64") >= 6
    with np.load(tmp_path / "demo" / "dss-s0.samples.npz") as samples:
        assert samples["images"].shape[1:] == (96, 96, 3)
    (tmp_path / "demo" / "mine").touch()
    assert ctta(*words, "--fresh", "--set", "methods=[source]")[0] == 0
    assert (tmp_path / "demo" / "mine").exists()
    assert not list((tmp_path / "demo").glob("dss*"))
