"""Streams on disk: one file each, replaced as a whole, with a checksum, without pickle.

A folder belongs to one model with one method. What a killed process loses is what a stream has learned since its last
save, see `save_updates` and `save_seconds`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ctta.base.errors import StateError
from ctta.base.fileio import hashed, home, make_folder, some, write_atomically
from ctta.base.tensor_file import read_tensors, write_tensors
from ctta.base.text import quoted

KIND, HEAD, ENDING = "stream state", "service.json", ".safetensors"


class Store:
    """The streams of a folder."""

    def __init__(self, folder: Path | str, about: Mapping[str, Any]) -> None:
        self.folder = home(folder)
        make_folder(self.folder)
        self._claim(json.loads(json.dumps(about)))
        self.names = {self._name(path) for path in self.folder.glob(f"*{ENDING}")} - {""}

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        write_tensors(self._path(name), KIND, {**values, "name": name})
        self.names.add(name)

    def read(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        found = read_tensors(path, KIND)
        if not isinstance(found, dict) or found.get("name") != name:
            raise StateError(f"{path} holds another stream than {name!r}.")
        return found

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._path(name).unlink()
        self.names.discard(name)

    def _path(self, name: str) -> Path:
        # Some file systems do not tell small letters from capitals.
        return self.folder / f"{name}.{hashed(name)[:8]}{ENDING}"

    def _name(self, path: Path) -> str:
        name = path.name.removesuffix(ENDING).rpartition(".")[0]
        return name if name and self._path(name) == path else ""

    def _claim(self, about: Mapping[str, Any]) -> None:
        """Write what the folder is for, or see that it is for the same."""
        path = self.folder / HEAD
        if not path.exists():
            write_atomically(path, (json.dumps(about, indent=1) + "\n").encode())
            return
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise StateError(f"{path} is damaged ({error}). Restore it, or give another --state.") from error
        if found != about:
            same = found if isinstance(found, dict) else {}
            differ = [f"{key} was {quoted(same.get(key))}, is {quoted(value)}" for key, value in about.items()]
            differ = [line for line, key in zip(differ, about, strict=True) if same.get(key) != about[key]]
            raise StateError(
                f"{self.folder} holds streams of another service: {some(differ) or 'it has other entries'}. Give "
                "another --state, or the same model and settings as before."
            )
