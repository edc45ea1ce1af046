"""Files that `torch.save` wrote, read without torch's unpickler: names, tensors, and nothing that could run.

Two formats: a zip archive with `data.pkl` and a record per storage (since torch 1.6), and pickles one after the other,
followed by the storages. A tensor is first only a description, and becomes one after it was compared with the bytes
that are there.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, TypeAlias

import torch
from torch import Tensor

from ctta.base.errors import InputError
from ctta.base.limits import PICKLED, UNPACKED
from ctta.base.pickles import Inert, Ordered, read_pickle

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the old format
VERSION = 1001  # the second one
STORAGES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "QInt8": torch.qint8,
    "QUInt8": torch.quint8,
    "QInt32": torch.qint32,
    "Untyped": torch.uint8,
}


@dataclass(frozen=True)
class Storage:
    """So many numbers in the file; those of a view begin at `start`."""

    dtype: torch.dtype
    key: str
    count: int
    start: int = 0

    @property
    def size(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class Described:
    """A tensor that is not made yet."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Bytes of all elements, also of those that share memory."""
        return prod(self.shape) * self.dtype.itemsize

    def made(self, content: bytearray) -> Tensor:
        """Return the tensor, which shares the memory of the storage's content."""
        first = self.storage.start + self.offset
        last = first + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        inside = min((first, *self.shape, *self.strides)) >= 0 and (last + 1) * self.dtype.itemsize <= len(content)
        if self.size > max(len(content), UNPACKED) or not (inside or self.size == 0):
            raise InputError(f"It claims the shape {self.shape} for a tensor with {len(content)} bytes.")
        if not self.size:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(content, dtype=self.dtype).as_strided(self.shape, self.strides, first)


@dataclass(frozen=True)
class Unsupported:
    """A tensor of a kind that no model takes."""

    kind: str


Content: TypeAlias = tuple[Any, Callable[[Storage], bytearray]]


@contextmanager
def opened(path: Path) -> Iterator[Content]:
    """Yield what was saved, with descriptions of the tensors, and a function that reads a storage."""
    with path.open("rb") as file:
        if file.read(2) == b"PK":
            with zipfile.ZipFile(file) as archive:
                yield _archive(archive, path.stat().st_size)
        else:
            yield _sequence(file, path.stat().st_size)


def _archive(archive: zipfile.ZipFile, length: int) -> Content:
    entries = {entry.filename: entry for entry in archive.infolist()}
    if len(entries) < len(archive.infolist()):
        raise InputError("It holds two entries of the same name.")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
        raise InputError("It was compressed, which torch.save does not do. Save it again with torch.save.")
    if sum(entry.file_size for entry in entries.values()) > length:
        raise InputError("Its entries claim more bytes than it has.")
    (root,) = (name.removesuffix("data.pkl") for name in entries if name.split("/")[1:] == ["data.pkl"])
    if entries[f"{root}data.pkl"].file_size > PICKLED:
        raise InputError(f"Its data.pkl has more than {PICKLED} bytes.")
    content = read_pickle(io.BytesIO(archive.read(f"{root}data.pkl")), NAMES, _storage)
    order = archive.read(f"{root}byteorder") if f"{root}byteorder" in entries else b"little"

    def read(storage: Storage) -> bytearray:
        found = bytearray(archive.read(f"{root}data/{storage.key}"))
        if len(found) != storage.size:
            raise InputError(f"It claims {storage.size} bytes for a storage of {len(found)}.")
        if found and order.decode() != sys.byteorder:
            torch.frombuffer(found, dtype=torch.uint8).untyped_storage().byteswap(storage.dtype)  # type: ignore[no-untyped-call]
        return found

    return content, read


def _sequence(file: IO[bytes], length: int) -> Content:
    file.seek(0)
    pickles = io.BytesIO(file.read(PICKLED))
    if [read_pickle(pickles, NAMES) for _ in range(3)][:2] != [MAGIC, VERSION]:
        raise InputError("It does not begin like a file of torch.save.")
    storages: dict[str, Storage] = {}

    def storage(saved: Any) -> Storage:
        found = _storage(saved)
        return storages.setdefault(found.key, found) and found

    content, keys = read_pickle(pickles, NAMES, storage), read_pickle(pickles, NAMES)
    places, place = dict[str, int](), pickles.tell()
    for key in keys:
        places[key], place = place + 8, place + 8 + storages[key].size  # after their number of elements
    if place > length:
        raise InputError(f"Its storages claim {place - length} bytes more than it has.")

    def read(storage: Storage) -> bytearray:
        file.seek(places[storage.key])
        return bytearray(file.read(storages[storage.key].size))

    return content, read


def _storage(saved: Any) -> Storage:
    """Return the storage of a persistent id: kind, type, key, device, count, and in old files a view of it."""
    kind, dtype, key, _, count, *view = saved
    start = view[0][1] if view and view[0] is not None else 0
    if kind != "storage" or not isinstance(dtype, torch.dtype) or not isinstance(key, str):
        raise InputError("It refers to something else than a storage.")
    if not all(type(number) is int and number >= 0 for number in (count, start)):
        raise InputError("It claims a storage of no possible size.")
    return Storage(dtype, key, count, start)


def _tensor(storage: Storage, offset: int, shape: Any, strides: Any, *rest: Any, typed: bool = False) -> Described:
    """Replaces torch._utils._rebuild_tensor and its successors; version 3 names a type of its own."""
    dtype = rest[2] if typed else storage.dtype
    shape, strides = tuple(shape), tuple(strides)
    if not isinstance(storage, Storage) or not isinstance(dtype, torch.dtype) or len(shape) != len(strides):
        raise InputError("It describes a tensor without a storage, a type or a shape.")
    if not all(type(number) is int for number in (offset, *shape, *strides)):
        raise InputError("It describes a tensor with a shape that is not made of whole numbers.")
    return Described(storage, offset, shape, strides, dtype)


def _first(value: Any, *_: Any) -> Any:
    """Replaces what wraps a tensor: a parameter and its state."""
    return value


def _no_tensor(kind: str) -> Callable[..., Unsupported]:
    return lambda *_: Unsupported(kind)


def _subclass(function: Any, _: Any, arguments: Any, *__: Any) -> Any:
    """Replaces torch._tensor._rebuild_from_type_v2: a tensor with attributes of its own, which are not read."""
    if function not in (_tensor, _typed, _first):
        raise InputError("It describes a tensor of a class of its own.")
    return function(*arguments)


_typed = partial(_tensor, typed=True)
NAMES: Mapping[str, Any] = {
    "collections.OrderedDict": Ordered,
    "torch.Size": tuple,
    **{f"torch.{name}Storage": dtype for name, dtype in STORAGES.items()},
    **{f"torch.storage.{name}Storage": dtype for name, dtype in STORAGES.items()},
    **{str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)},
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _subclass,
    "torch._utils._rebuild_sparse_tensor": _no_tensor("sparse"),
    "torch._utils._rebuild_qtensor": _no_tensor("quantised"),
    "torch._utils._rebuild_meta_tensor_no_storage": _no_tensor("without content"),
    "torch._utils._rebuild_nested_tensor": _no_tensor("nested"),
    # What checkpoints hold besides weights: NumPy numbers, the arguments of a training script.
    **{f"numpy.{core}.multiarray.{name}": Inert for core in ("core", "_core") for name in ("scalar", "_reconstruct")},
    **dict.fromkeys(("argparse.Namespace", "numpy.dtype", "numpy.ndarray", "torch.device", "torch.Tensor"), Inert),
    **dict.fromkeys(("torch.nn.parameter.Parameter", "torch.serialization._get_layout", "_codecs.encode"), Inert),
}
