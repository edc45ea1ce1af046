"""Plain values and tensors in one file of safetensors: written atomically, with a checksum, read without running code.

The tensors are safetensors' own. The values around them are JSON in the file's metadata, in which `{"$tensor": name}`
stands for a tensor; tuples and mappings whose keys are not texts are marked in the same way, so that what is read is
what was written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ctta.base.errors import StateError
from ctta.base.fileio import home, write_atomically
from ctta.base.text import failure, quoted

VERSION = 1
TENSOR, TUPLE, ITEMS = "$tensor", "$tuple", "$items"


def write_tensors(path: Path | str, kind: str, values: Any) -> None:
    """Replace the file as a whole; `kind` says what it holds, such as "adapter state"."""
    tensors: dict[str, Tensor] = {}
    try:
        head = {"kind": kind, "version": VERSION, "values": _marked(values, "", tensors)}
        head["sha256"] = _checksum(head, tensors)
        content = safetensors.torch.save(tensors, {"ctta": json.dumps(head)})
    except (KeyError, TypeError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise StateError(f"{path} cannot be written: {failure(error)}. The file is as it was before.") from error
    write_atomically(home(path), content)


def read_tensors(path: Path | str, kind: str) -> Any:
    """Read what `write_tensors` wrote; a single bit that differs is an error."""
    path = home(path)
    try:
        if not path.is_file():
            raise StateError(f"{path} is no file. Give the path of a file with {_a(kind)}.")
        with safetensors.safe_open(path, "pt") as file:
            head = json.loads((file.metadata() or {}).get("ctta", "{}"))
            if not isinstance(head, dict) or head.get("kind") != kind:
                raise StateError(f"{path} holds no {kind} of ctta. Give a file that one was saved to.")
            if head.get("version") != VERSION:
                raise StateError(
                    f"{path} has format {quoted(head.get('version'))}, and this version of ctta reads format "
                    f"{VERSION}. Use the version that wrote it."
                )
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if head.pop("sha256", None) != _checksum(head, tensors):
            raise StateError(f"{path} is damaged: its checksum does not match. Give a sound copy.")
        return _unmarked(head["values"], tensors)
    except StateError:
        raise
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # as many kinds as there are ways to damage it
        raise StateError(f"{path} is damaged, or holds no {kind} of ctta ({failure(error)}).") from error


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _marked(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON can hold it; its tensors go to `tensors`, under names that say where they were."""

    def inner(one: Any, name: object) -> Any:
        return _marked(one, f"{place}/{name}" if place else str(name), tensors)

    match value:
        case None | bool() | int() | float() | str():
            return value
        case Tensor():
            while place in tensors:
                place += "'"
            # Copies: tensors that share memory, such as tied weights, are refused by safetensors.
            tensors[place] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            return {TENSOR: place}
        case list():
            return [inner(one, i) for i, one in enumerate(value)]
        case tuple():
            return {TUPLE: _marked(list(value), place, tensors)}
        case Mapping() if all(isinstance(name, str) and not name.startswith("$") for name in value):
            return {name: inner(one, name) for name, one in value.items()}
        case Mapping():
            return {ITEMS: [[inner(name, "key"), inner(one, name)] for name, one in value.items()]}
    raise TypeError(f"{place} is of type {type(value).__name__}, which is neither a tensor nor plain data")


def _unmarked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    inner: Callable[[Any], Any] = partial(_unmarked, tensors=tensors)
    match value:
        case list():
            return [inner(one) for one in value]
        case {"$tensor": str(name)}:
            return tensors[name]
        case {"$tuple": list(values)}:
            return tuple(map(inner, values))
        case {"$items": list(items)}:
            return {inner(name): inner(one) for name, one in items}
        case dict():
            return {name: inner(one) for name, one in value.items()}
    return value


def _checksum(head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
