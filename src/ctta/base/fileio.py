"""Reading, writing and hashing files, and importing optional packages; every failure is one plain sentence."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctta.base.errors import ConfigError, CttaError, InputError
from ctta.base.limits import WHOLE


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """A damaged file fails in as many ways as there are decoders: each becomes one plain sentence.

    Folders, pipes and devices are refused before they are opened: to read a pipe may take forever.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"It is no regular file, but should be {expected}.")
        yield
    except CttaError as error:
        raise InputError(f"{path} is refused. {error}") from error
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}. Give {expected}.") from error
    except Exception as error:
        if found := impostor(path):
            raise InputError(f"{path} is {found}, not {expected}. Download it again, the file itself.") from error
        raise InputError(
            f"{path} cannot be read as {expected} ({error!r}). It may be truncated: replace it or move it away."
        ) from error


def read_whole(path: Path, expected: str) -> bytes:
    """The content of a file that is not too long to be read at once."""
    with reading(path, expected):
        if (size := path.stat().st_size) > WHOLE:
            raise InputError(f"It has {size} bytes, more than the {WHOLE} that are read as {expected}.")
        return path.read_bytes()


def read_lines(path: Path, expected: str) -> list[str]:
    """The lines of a text that are not empty, without spaces around them."""
    content = read_whole(path, expected)
    with reading(path, expected):
        return [line.strip() for line in content.decode("utf-8-sig").splitlines() if line.strip()]


def impostor(path: Path) -> str:
    """What a failed download left under the name of the file; empty if it is none of that, or cannot be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            head = file.read(512)
    except OSError:
        return ""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "empty"
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page"
    return "a git-lfs pointer" if text.startswith(b"version https://git-lfs") else ""


def make_folder(path: Path) -> None:
    """The folder and those above it; an error says why there cannot be one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "a file of that name is in the way" if isinstance(error, FileExistsError) else str(error.strerror)
        raise InputError(f"{path} cannot be made a folder: {reason}. Give another place to write to.") from error


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole, so that it is the old one or the new one; `durable` waits until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def fingerprint(root: Path, names: Iterable[str], ends: int = 0) -> str:
    """A hash of names and lengths of files, and of so many bytes at both ends: reading all would take too long."""
    digest = hashlib.sha256()
    for name in names:
        path = root / name
        size = path.stat().st_size
        digest.update(f"{name}\0{size}\n".encode())
        if ends:
            with path.open("rb") as file:
                digest.update(file.read(ends))
                file.seek(max(0, size - ends))
                digest.update(file.read(ends))
    return digest.hexdigest()[:16]


def hashed(*parts: str) -> str:
    """One short hash of several texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def some(names: list[str], most: int = 10) -> str:
    """The first of many names, and how many more there are."""
    more = f" ... and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def optional_import(module: str, extra: str, purpose: str) -> Any:
    """A module of an optional package, or an error that says what needs it and what to install."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{purpose} needs {package} ({error}). Install it: pip install 'ctta[{extra}]'.") from error
    except (ImportError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"{package} is installed but cannot be imported ({error}). Its version must match those of the packages it "
            f"uses: pip install --upgrade 'ctta[{extra}]'."
        ) from error
