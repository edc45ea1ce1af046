"""Reading, writing and hashing files, and importing optional packages; every failure is one plain sentence."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctta.base.errors import ConfigError, CttaError, InputError
from ctta.base.limits import NAME_BYTES, RATIO, UNPACKED, WHOLE
from ctta.base.text import quoted

TEMPORARY = r"\..*\.(\d+)-[0-9a-f]+\.tmp"  # names of files that are being written, with the number of the process
RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{i}" for name in ("com", "lpt") for i in range(1, 10))}  # Windows
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
            f"{path} cannot be read as {expected} ({quoted(error)}). It may be truncated: replace it or move it away."
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


def home(path: str | Path) -> Path:
    """The path with ~ replaced by the folder of the user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} cannot be found: there is no such user. Write the path without ~.") from error


def make_folder(path: Path) -> None:
    """The folder and those above it; an error says why there cannot be one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "a file of that name is in the way" if isinstance(error, FileExistsError) else str(error.strerror)
        raise InputError(f"{path} cannot be made a folder: {reason}. Give another place to write to.") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the system while a file is written becomes a sentence that names the file."""
    try:
        yield
    except OSError as error:
        remedy = "Free some space on its disk" if error.errno in FULL else "Make room for it or change its permissions"
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}. {remedy}, or give another place to write to. What "
            "was written before is kept."
        ) from error


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole, so that it is the old one or the new one; `durable` waits until it is on the disk."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name[:NAME_BYTES]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with writing(path):
        try:
            with temporary.open("xb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


class Appender:
    """Appends to a file, each piece at once, so that it is there if the process is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._file = path.open("ab", buffering=0)

    def write(self, content: bytes) -> None:
        with writing(self._path):
            while content:
                content = content[self._file.write(content) :]

    def flush_to_disk(self) -> None:
        """Wait until all of it is on the disk, so that it is there if the machine goes down."""
        with writing(self._path):
            os.fsync(self._file.fileno())

    def __enter__(self) -> Appender:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def safe_name(name: str) -> str:
    """Return a name that is to become that of one file or folder; refuse it if it leads elsewhere or cannot be one."""
    problem = ""
    if not name.strip(" .") or name != name.strip():
        problem = "it is empty, only dots, or begins or ends with a space"
    elif any(letter in "/\\" or not letter.isprintable() for letter in name):
        problem = "it has a slash, a line break or a letter that cannot be shown"
    elif len(name.encode()) > NAME_BYTES:
        problem = f"it is longer than {NAME_BYTES} bytes"
    elif name.partition(".")[0].lower() in RESERVED:
        problem = "some systems reserve it"
    if problem:
        raise ConfigError(f"{quoted(name)} cannot be the name of a file or folder: {problem}. Choose another name.")
    return name


def short_name(name: str) -> str:
    """The name itself, or if it is too long for a file, its beginning and a hash of all of it."""
    most, encoded = NAME_BYTES - 30, name.encode()  # a seed is added to it
    return name if len(encoded) <= most else f"{encoded[: most - 9].decode(errors='ignore')}-{hashed(name)[:8]}"


def check_growth(claimed: int, stored: int) -> None:
    """Refuse content that is so much larger than the file that it can only be damaged or made to fill the memory."""
    if claimed > max(UNPACKED, RATIO * stored):
        raise InputError(
            f"It claims {claimed} bytes of content, but has a length of {stored}. At most {UNPACKED} bytes, or {RATIO} "
            "times the length of a file, are unpacked."
        )


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
