"""Read weights from a file: tensors by name, and nothing that can run code."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from ctta.base.errors import InputError
from ctta.base.fileio import check_growth, home, impostor, some
from ctta.base.pickles import ForeignNameError
from ctta.models import torch_file
from ctta.models.torch_file import Described, Unsupported

PREFIXES = ("module.", "model.", "backbone.", "net.", "network.", "_orig_mod.")
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network")
NORMALIZATION = (("mu", "sigma"), ("mean", "std"), ("normalize.mean", "normalize.std"))

DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
)

AGAIN = "Download it again and compare its size with the one on its page."
RESAVE = "If you trust its source, load it once with the code that made it and torch.save(model.state_dict(), path)."
REMEDIES = {  # by what a failed download left
    "empty": "Download it again.",
    "a web page": "The site returned a login, a virus warning or an error. Open the link in a browser, download the "
    "file itself and give its path.",
    "a git-lfs pointer": "Run `git lfs pull` in the folder it was cloned to.",
}


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors in a file that safetensors or `torch.save` wrote; anything else is an error with a remedy."""
    path = home(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}. Give the path of the weights; nothing is downloaded.")
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror}). Give another file, or change this.") from error
    _refuse_other_files(path, head)
    state = _read_safetensors(path) if head[8:9] == b"{" or path.suffix == ".safetensors" else _read_torch(path)
    if odd := [f"{key} ({value.dtype})" for key, value in state.items() if value.dtype not in DTYPES]:
        raise InputError(f"{path} holds tensors of a type that no model takes: {some(odd, 3)}. Save them as float32.")
    bad = [key for key, value in state.items() if not value.isfinite().all()]
    if bad:
        raise InputError(f"{path} holds NaN or infinity in {len(bad)} tensors: {some(bad, 3)}. {AGAIN}")
    return state


def read_metadata(path: str | Path) -> dict[str, str]:
    """Read what `ctta train` wrote besides the weights; empty for every other file."""
    path = home(path)
    try:
        if path.is_file():
            with safe_open(path, "pt") as file:
                return file.metadata() or {}
    except (SafetensorError, OSError, ValueError):
        pass
    return {}


def trained_classes(path: str | Path) -> int | None:
    """Return the number of classes, if `ctta train` wrote it."""
    number = read_metadata(path).get("num_classes", "")
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else None


def trained_names(path: str | Path) -> tuple[str, ...]:
    """Return the names of the classes, if `ctta train` wrote them."""
    about = read_metadata(path)
    try:
        names = json.loads(about["classes"]) if "ctta" in about else []
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    except (KeyError, ValueError, RecursionError):
        pass
    raise InputError(f"The names of the classes in {path} cannot be read. Train it again, or give `--classes`.")


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
        try:
            names = {Path(name).name for name in zipfile.ZipFile(path).namelist()}
        except Exception as error:  # as many kinds as there are ways to damage it
            raise InputError(f"{path} is truncated or damaged: it has no list of its content. {AGAIN}") from error
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
    except Exception as error:  # safetensors and torch raise many kinds of errors for damaged files
        raise InputError(f"{path} is a safetensors file, but truncated or damaged ({error}). {AGAIN}") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with torch_file.opened(path) as (content, read):
            described = _tensors(content)
            odd = [f"{key} ({value.kind})" for key, value in described.items() if isinstance(value, Unsupported)]
            if odd:
                raise InputError(f"It holds tensors of a kind that no model takes: {some(odd, 3)}.")
            whole = {key: value for key, value in described.items() if isinstance(value, Described)}
            check_growth(sum(value.size for value in whole.values()), path.stat().st_size)
            contents = {value.storage.key: read(value.storage) for value in whole.values()}
            state = {key: value.made(contents[value.storage.key]) for key, value in whole.items()}
    except ForeignNameError as error:
        raise InputError(
            f"{path} is a pickle that wants to run code ({error.name}), so it is not read. {RESAVE}"
        ) from error
    except Exception as error:  # as many kinds as there are ways to damage it
        reason = str(error) if isinstance(error, InputError) else type(error).__name__
        raise InputError(
            f"{path} cannot be read as weights: it is truncated, damaged, or not a file that torch.save or safetensors "
            f"wrote ({reason}). {AGAIN}"
        ) from error
    if not state:
        kind = f"the keys {', '.join(map(str, list(content)[:5]))}" if isinstance(content, dict) else "something else"
        raise InputError(f"{path} holds no weights by name, but {kind}. Save model.state_dict() and give that file.")
    return state


def _tensors(content: object) -> dict[str, Described | Unsupported]:
    """Return what is a tensor under a name, also if it is wrapped in a dictionary of a training script."""
    seen: list[object] = []
    while isinstance(content, dict) and not any(content is known for known in seen):
        seen.append(content)
        inner = [content[wrapper] for wrapper in WRAPPERS if isinstance(content.get(wrapper), dict)]
        content = inner[0] if inner else content
    if not isinstance(content, dict):
        return {}
    return {
        key: value
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, Described | Unsupported)
    }
