"""Own point clouds in an .npz, and broken files."""

from __future__ import annotations

import numpy as np
import pytest

from ctta.base.errors import InputError
from point_clouds import LABELS, POINTS, stream_of


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"points": POINTS}, "no 'labels'"),
        ({"images": POINTS}, "no 'points' and no 'labels'.*Found: images"),
        ({"points": POINTS[..., :2], "labels": LABELS}, r"\(N, P, 3\)"),
        ({"points": (POINTS * 9).astype(int), "labels": LABELS}, "floating point"),
        ({"points": POINTS[:0], "labels": LABELS[:0]}, "floating point"),
        ({"points": POINTS, "labels": LABELS[:3]}, "Got 3 for 9"),
        ({"points": POINTS, "labels": LABELS / 2}, "whole numbers"),
        ({"points": POINTS, "labels": LABELS - 1}, "from -1 to 2"),
        ({"points": POINTS, "labels": LABELS, "classes": np.array(["a"])}, "0 to 0.*from 0 to 3"),
        ({"points": np.where(POINTS > 0.999, np.nan, POINTS), "labels": LABELS[:1]}, "NaN.*one label per point cloud"),
    ],
)
def test_bad_arrays(tmp_path, content, message):
    np.savez(tmp_path / "bad.npz", **content)
    with pytest.raises(InputError, match=message):
        stream_of(tmp_path / "bad.npz")


def test_files_that_are_no_arrays(tmp_path):
    with pytest.raises(InputError, match="no file"):
        stream_of(tmp_path / "none.npz")
    (tmp_path / "page.npz").write_text("<html>")
    with pytest.raises(InputError, match=r"is a web page, not an \.npz with 'points' and 'labels'"):
        stream_of(tmp_path / "page.npz")
    np.savez(tmp_path / "whole.npz", points=POINTS, labels=LABELS)
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        stream_of(tmp_path / "half.npz")
    np.save(tmp_path / "one.npy", POINTS)
    with pytest.raises(InputError, match=r"npz with 'points'"):
        stream_of(tmp_path / "one.npy")
