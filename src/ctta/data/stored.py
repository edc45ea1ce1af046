"""Arrays in .npy and .npz files. What a file claims about its arrays is checked before one is made."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import check_growth, reading, some

ENDS = 2**14  # bytes at both ends of a file that identify it: all files of a public set have the same length
SHOWN = 20  # files that a message lists
EMPTY = 2**20  # rows of an array without content: they take no space, but whoever counts them would
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def map_array(path: Path, expected: str = "an array") -> NDArray[Any]:
    """Memory-map an .npy file; one that is shorter than its array is an error."""
    with reading(path, expected):
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size)
        mapped: NDArray[Any] = npy.open_memmap(path, mode="r")
        return mapped


def map_arrays(folder: Path, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Memory-map .npy files; return the arrays by name, and what is wrong with the other files."""
    missing = [name for name in names if not (folder / name).is_file()]
    problems = [f"Missing: {some(missing, SHOWN)}."] if missing else []
    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        try:
            if name not in missing:
                arrays[name] = map_array(folder / name)
        except InputError as error:
            problems.append(str(error))
    return arrays, problems


def read_npz(path: Path, needed: Sequence[str] = (), optional: Sequence[str] | None = ()) -> dict[str, NDArray[Any]]:
    """Read arrays from an .npz file, all if `optional` is None; pickled objects are refused."""
    expected = f"an .npz with {' and '.join(map(repr, needed)) or 'arrays'}"
    if not path.exists():
        raise InputError(f"There is no file {path}. Give {expected}.")
    with reading(path, expected), zipfile.ZipFile(path) as archive:
        members = [(entry.filename.removesuffix(".npy"), entry) for entry in archive.infolist()]
        found = [name for name, _ in members]
        wanted = set(found) if optional is None else {*needed, *optional}
        if doubles := [name for name, count in Counter(found).items() if count > 1 and name in wanted]:
            raise InputError(f"It holds {doubles[0]!r} more than once.")
        chosen = [(name, entry) for name, entry in members if name in wanted]
        check_growth(sum(entry.file_size for _, entry in chosen), path.stat().st_size)
        arrays = {name: _read_member(archive, entry) for name, entry in chosen}
    if missing := [name for name in needed if name not in arrays]:
        example = ", ".join(f"{name}=..." for name in (*needed, *(optional or ())) if name != "classes")
        raise InputError(
            f"{path} has no {' and no '.join(map(repr, missing))}. Found: {some(found) or 'nothing'}. Save it "
            f"with np.savez(path, {example})."
        )
    return arrays


def found_arrays(folder: Path) -> str:
    """Describe which .npy files a folder holds, in a sentence."""
    found = sorted(path.name for path in folder.glob("*.npy")) if folder.is_dir() else []
    return f"Found: {some(found, SHOWN) or 'no .npy file'}."


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as file:
        _check_header(file, entry.file_size)
    with archive.open(entry) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
        return array


def _check_header(file: IO[bytes], length: int) -> None:
    """Refuse an array that is not as long as its file, or made of objects, before anything of its size exists."""
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise InputError(f"It has version {version} of the .npy format. Save it with np.save, without field names.")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise InputError("It holds pickled objects, which could run code. Save numbers or texts.")
    claimed, content = prod(shape) * dtype.itemsize, length - file.tell()
    many = not claimed and max(shape, default=0) > EMPTY
    if min(shape, default=0) < 0 or claimed != content or many:
        raise ValueError(f"it claims {dtype} {shape}, {claimed} bytes, and has {content}")
