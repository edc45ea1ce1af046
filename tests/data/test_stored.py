""".npy files: those that are mapped, and those that are reported."""

from __future__ import annotations

import numpy as np

from ctta.data.stored import found_arrays, map_arrays


def test_npy_files_are_mapped_and_the_others_reported(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "b.npy").write_text("<html>")
    arrays, problems = map_arrays(tmp_path, ["a.npy", "b.npy", "c.npy"])
    assert list(arrays) == ["a.npy"]
    assert isinstance(arrays["a.npy"], np.memmap)
    assert problems[0] == "Missing: c.npy."
    assert problems[1].startswith(f"{tmp_path / 'b.npy'} is a web page, not an array.")
    assert found_arrays(tmp_path) == "Found: a.npy, b.npy."
    assert found_arrays(tmp_path / "none") == "Found: no .npy file."
