"""ModelNet-C of PointCloud-C, which is another set than ModelNet40-C.

    <corruption>_<0 to 4>.h5   data (2468, P, 3), y up; label (2468, 1); P differs from corruption to corruption
    clean.h5                   the clean point clouds

Severities 1 to 5 are the files 0 to 4. The public set: github.com/ldkong1205/PointCloud-C.
"""

from __future__ import annotations

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint, some
from ctta.data.corrupted_clouds import CloudDataSet, cloud_problems, label_problems
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets.modelnet40_c import CLASSES
from ctta.data.hdf5 import read_clouds
from ctta.data.stored import ENDS
from ctta.data.stream import Domain, Stream

NAMES = ("add_global", "add_local", "dropout_global", "dropout_local", "jitter", "rotate", "scale")


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    folder, files = data.folder, {pair: _file(*pair) for pair in domains}
    if missing := [name for name in dict.fromkeys(files.values()) if not (folder / name).is_file()]:
        found = sorted(path.name for path in folder.glob("*.h5")) if folder.is_dir() else []
        raise InputError(
            f"{folder} cannot be used as ModelNet-C. Missing: {some(missing)}. Found: {some(found) or 'no .h5 file'}. "
            "The public set is at github.com/ldkong1205/PointCloud-C: give its folder modelnet_c."
        )
    made = {pair: _domain(data, pair, files[pair]) for pair in files}
    names = sorted(set(files.values()))
    return Stream(
        tuple(made[pair] for pair in domains), data.batch, CLASSES, fingerprint=fingerprint(folder, names, ENDS)
    )


def _domain(data: Data, pair: tuple[str, int], file: str) -> Domain:
    clouds, labels = read_clouds([data.folder / file])
    if problems := [*cloud_problems(clouds), *label_problems(labels, len(clouds), len(CLASSES))]:
        raise InputError(f"{data.folder / file} cannot be used. {' '.join(problems)}")
    rows = data.rows(len(clouds))
    return Domain(*pair, labels[rows].astype("int64"), clouds[rows].astype("float32").__getitem__)


def _file(name: str, severity: int) -> str:
    return f"{name}_{severity - 1}.h5" if severity else f"{CLEAN}.h5"


MODELNET_C = CloudDataSet(
    "ModelNet-C",
    "the folder with <corruption>_<0 to 4>.h5 and clean.h5.",
    _open,
    domains={"paper": NAMES, "all": NAMES, CLEAN: (CLEAN,)},
)
