"""Read weights from a file: tensors by name, and nothing that can run code."""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from ctta.base.errors import InputError
from ctta.base.fileio import home, impostor

PREFIXES = ("module.", "model.", "backbone.", "net.", "network.", "_orig_mod.")
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network")
NORMALIZATION = (("mu", "sigma"), ("mean", "std"), ("normalize.mean", "normalize.std"))

AGAIN = "Download it again and compare its size with the one on its page."
RESAVE = "If you trust its source, load it once with the code that made it and torch.save(model.state_dict(), path)."
REMEDIES = {  # by what a failed download left
    "empty": "Download it again.",
    "a web page": "The site returned a login, a virus warning or an error. Open the link in a browser, download the "
    "file itself and give its path.",
    "a git-lfs pointer": "Run `git lfs pull` in the folder it was cloned to.",
}


class Metadata:
    """Replaces what checkpoints hold besides weights: NumPy numbers, the arguments of a training script."""

    def __new__(cls, *args: object) -> Metadata:
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None: ...


# These are ignored: the real classes are never called.
METADATA: list[Any] = [(Metadata, "argparse.Namespace"), (Metadata, "numpy.dtype"), (Metadata, "numpy.ndarray")]
METADATA += [
    (Metadata, f"numpy.{core}.multiarray.{name}") for core in ("core", "_core") for name in ("scalar", "_reconstruct")
]


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors in a file that safetensors or `torch.save` wrote; anything else is an error with a remedy."""
    path = home(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}. Give the path of the weights; nothing is downloaded.")
    with path.open("rb") as file:
        head = file.read(512)
    _refuse_other_files(path, head)
    state = _read_safetensors(path) if head[8:9] == b"{" or path.suffix == ".safetensors" else _read_torch(path)
    bad = [key for key, value in state.items() if value.is_floating_point() and not value.isfinite().all()]
    if bad:
        raise InputError(f"{path} holds NaN or infinity in {len(bad)} tensors, first {bad[0]}. {AGAIN}")
    return state


def read_metadata(path: str | Path) -> dict[str, str]:
    """Read what `ctta train` wrote besides the weights; empty for every other file."""
    try:
        with safe_open(home(path), "pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError):
        return {}


def trained_classes(path: str | Path) -> int | None:
    """Return the number of classes, if `ctta train` wrote it."""
    number = read_metadata(path).get("num_classes", "")
    return int(number) if number.isdigit() else None


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with home(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short(key: str) -> str:
    """Return the name of a tensor without the prefixes that wrappers add.

    >>> short("module.model.fc.weight")
    'fc.weight'
    """
    while prefix := next((prefix for prefix in PREFIXES if key.startswith(prefix)), ""):
        key = key.removeprefix(prefix)
    return key


def rename(state: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """Return the same tensors under the wanted names, if only the prefixes of wrappers differ."""
    wanted = list(wanted)
    full = {short(key): key for key in wanted}
    renamed = {full.get(short(key), short(key)): value for key, value in state.items()}
    unique = len(full) == len(wanted) and len(renamed) == len(state)
    return renamed if unique else dict(state)


def take_normalization(
    state: dict[str, Tensor], wanted: Iterable[str]
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Remove the mean and standard deviation that a wrapper saved with the weights from `state`, and return them."""
    wanted = set(wanted)
    for mean, std in NORMALIZATION:
        if mean in state and std in state and not {mean, std} & wanted:
            return tuple(state.pop(mean).flatten().tolist()), tuple(state.pop(std).flatten().tolist())
    return None


def _refuse_other_files(path: Path, head: bytes) -> None:
    if found := impostor(path):
        raise InputError(f"{path} is {found}, not weights. {REMEDIES[found]}")
    if head.startswith(b"\x1f\x8b"):
        raise InputError(f"{path} is compressed with gzip. Unpack it and give the path of what is inside.")
    if head.startswith(b"PK"):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is truncated: its end is missing. {AGAIN}")
        names = {Path(name).name for name in zipfile.ZipFile(path).namelist()}
        if "constants.pkl" in names:
            raise InputError(
                f"{path} is a TorchScript program, not weights. Save its weights: "
                "torch.save(torch.jit.load(path).state_dict(), new_path)."
            )
        if "data.pkl" not in names:
            raise InputError(f"{path} is a zip archive, but not one that torch.save wrote. Unpack it first.")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(f"{path} is a safetensors file, but truncated or damaged ({error}). {AGAIN}") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with torch.serialization.safe_globals(METADATA), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files that cause warnings are refused below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds of errors for damaged files
        reason = str(error)
        refused = re.search(r"GLOBAL (\S+)", reason)
        if isinstance(error, pickle.UnpicklingError) and (refused or "allowlist" in reason or "blocked" in reason):
            what = f" ({refused[1]})" if refused else ""
            raise InputError(f"{path} is a pickle that wants to run code{what}, so it is not read. {RESAVE}") from error
        raise InputError(
            f"{path} cannot be read as weights: it is truncated, damaged, or not a file that torch.save or safetensors "
            f"wrote ({type(error).__name__}). {AGAIN}"
        ) from error
    state = _tensors(content)
    if not state:
        kind = f"the keys {', '.join(map(str, list(content)[:5]))}" if isinstance(content, Mapping) else type(content)
        raise InputError(f"{path} holds no weights by name, but {kind}. Save model.state_dict() and give that file.")
    return state


def _tensors(content: object) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        return {}
    for wrapper in WRAPPERS:
        if isinstance(inner := content.get(wrapper), Mapping):
            return _tensors(inner)
    return {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
