"""ModelNet40 as the point clouds of modelnet40_ply_hdf5_2048, clean or corrupted on the fly.

    ply_data_test<i>.h5, ply_data_train<i>.h5   data (n, 2048, 3) within the unit sphere, y up; label (n, 1)
    test_files.txt, train_files.txt             which of them belong to a split

The path is the folder, for its test split, or one of the two lists. The public set:
shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip.
"""

from __future__ import annotations

from pathlib import Path

from ctta.base.errors import InputError
from ctta.base.fileio import read_lines
from ctta.data.corrupted_clouds import CloudDataSet, cloud_stream
from ctta.data.dataset import Data
from ctta.data.datasets.modelnet40_c import CLASSES
from ctta.data.hdf5 import read_clouds
from ctta.data.stream import Stream

TEST = "test_files.txt"
PUBLIC = "The public set is shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip: unpack it and give its folder."


def split_files(path: Path) -> list[Path]:
    """Return the HDF5 files of the test split of a folder, or those that a list names, from the folder of the list."""
    listing = path / TEST if path.is_dir() else path
    if listing.is_file():
        files = [listing.parent / Path(line).name for line in read_lines(listing, "a list of files")]
    else:
        files = sorted(path.glob("ply_data_test*.h5"))
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        what = (
            f"These are missing: {', '.join(missing)}." if missing else "It has neither test_files.txt nor .h5 files."
        )
        raise InputError(f"{path} is not a complete ModelNet40 folder. {what} {PUBLIC}")
    return files


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    points, labels = read_clouds(split_files(data.folder))
    return cloud_stream(points, labels, domains, data, CLASSES)


MODELNET40 = CloudDataSet(
    "ModelNet40", "the folder modelnet40_ply_hdf5_2048 (its test split), or its train_files.txt.", _open
)
