"""HDF5 files that are broken, and a missing h5py."""

from __future__ import annotations

import sys

import pytest

from ctta.base.errors import ConfigError, InputError
from point_clouds import LABELS, POINTS, stream_of, write_hdf5


def test_broken_hdf5(tmp_path):
    pytest.importorskip("h5py", reason="h5py is an extra: pip install 'ctta[hdf5]'")
    (tmp_path / "test_objectdataset.h5").write_bytes(b"not hdf5")
    with pytest.raises(InputError, match="cannot be read as an HDF5 file with"):
        stream_of(tmp_path, "scanobjectnn")
    write_hdf5(tmp_path / "ply_data_test0.h5", POINTS, LABELS)
    write_hdf5(tmp_path / "ply_data_test1.h5", POINTS[:, :5], LABELS)
    with pytest.raises(InputError, match="do not belong together"):
        stream_of(tmp_path, "modelnet40")


def test_without_h5py_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "test_objectdataset.h5").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"pip install 'ctta\[hdf5\]'"):
        stream_of(tmp_path, "scanobjectnn")
