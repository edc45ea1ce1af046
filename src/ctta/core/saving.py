"""Adapters and guards in files: everything that is needed to go on, but for the model's code."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

import ctta
from ctta.base.errors import StateError
from ctta.base.fileio import home, write_atomically
from ctta.base.hub import upload
from ctta.base.tensor_file import read_tensors, write_tensors
from ctta.base.text import failure
from ctta.core.turns import in_turn

KIND = "adapter state"
FILE = "adapter.safetensors"  # in a folder that `save_pretrained` made


class Savable(nn.Module):
    """What an adapter and a guard have in common: they are saved whole, in one file."""

    @abstractmethod
    def made(self) -> dict[str, Any]:
        """How this was made, as far as the state does not say it."""

    def save(self, path: Path | str) -> None:
        """Write everything to one file of safetensors, atomically; `ctta.load(path, model)` goes on from there."""
        self.save_with(path, {})

    @in_turn
    def save_with(self, path: Path | str, notes: Mapping[str, Any]) -> None:
        """Save with something to remember beside it."""
        state = self.state_dict()
        versions = getattr(state, "_metadata", {})  # of modules, by which they read what older ones wrote
        write_tensors(path, KIND, {"made": self.made(), "notes": notes, "versions": versions, "state": state})

    def save_pretrained(self, folder: Path | str) -> None:
        """Save into a folder, as Hugging Face lays them out; `ctta.load(folder, model)` reads it."""
        folder = home(folder)
        self.save(folder / FILE)
        about = {"library_name": "ctta", "ctta_version": ctta.__version__, **SavedAdapter.read(folder).summary()}
        write_atomically(folder / "config.json", (json.dumps(about, indent=2) + "\n").encode())

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload what `save_pretrained` writes to a repository of the Hugging Face Hub; gives its address."""
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return upload(folder, repo_id, private=private, token=token)


@dataclass(frozen=True)
class SavedAdapter:
    """What a file holds."""

    path: Path
    state: Mapping[str, Any]  # as `state_dict()` gave it
    made: Mapping[str, Any]  # as `made()` gave it
    notes: Mapping[str, Any]

    @property
    def guarded(self) -> bool:
        return self.made["every"] is not None

    @property
    def about(self) -> Mapping[str, Any]:
        """The method, its settings, seed and counts."""
        found: Mapping[str, Any] = self.state["adapter._extra_state" if self.guarded else "_extra_state"]
        return found

    def summary(self) -> dict[str, Any]:
        """The same as plain data, for readers."""
        names = ("method", "preset", "config", "seed", "batches")
        return {**{name: self.about[name] for name in names}, "guard": self.guarded}

    @classmethod
    def read(cls, path: Path | str) -> SavedAdapter:
        """Read a file, or a folder that `save_pretrained` made."""
        path = home(path)
        path = path / FILE if path.is_dir() else path
        found = read_tensors(path, KIND)
        try:
            state = OrderedDict(found["state"])
            state._metadata = OrderedDict(found["versions"])  # type: ignore[attr-defined]
            saved = cls(path, state, found["made"], found["notes"])
            if not isinstance(saved.about["method"], str) or not isinstance(saved.notes, dict):
                raise TypeError("its fields are of other kinds")
        except (KeyError, TypeError, ValueError) as error:  # its checksum fits, so somebody else made it
            raise StateError(f"{path} holds no {KIND} of ctta ({failure(error)}).") from error
        return saved
