"""One writer at a time: a lock file that names its holder, and that a killed process does not leave locked.

The holder keeps the file under `flock`, which the system releases when the process ends, however it ends. The file
itself says who holds it: process, host and when the process started, so that somebody else can be told, and so that
file systems without `flock` are safe too. A file whose process is gone is taken over: on the same host only, since
nobody can ask another host which processes it has. A process is gone if none has its number, or one that started at
another time. Without `flock`, two processes that take over the same stale file in the same instant are not told apart.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from ctta.base.errors import ConfigError, StateError
from ctta.base.fileio import TEMPORARY, make_folder, writing
from ctta.base.schema import parse_json
from ctta.base.text import quoted

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("ctta")

PAUSE = 0.05  # seconds between two attempts
NO_FLOCK = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    pid: int
    host: str
    started: str  # as the system counts: a process that reuses the number started at another time
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def locked(what: Path, *, file: bool = False, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, or of a file, there already or not; `patience`: seconds to wait for another holder."""
    if file and not what.name:
        raise ConfigError(f"{quoted(str(what))} is no name of a file. Give one to write to.")
    path = what.with_name(f".{what.name}.lock") if file else what / ".lock"
    deadline = time.monotonic() + patience
    make_folder(path.parent)
    while True:
        try:
            descriptor = _take(path, what)
            break
        except StateError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)
    try:
        _remove_temporaries(what, file)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _take(path: Path, what: Path) -> int:
    """Take the lock and return the open file; an error says who holds it."""
    while True:
        with writing(path):
            new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            alone = _flock(descriptor)
            if alone and not _is_at(descriptor, path):  # its holder has just removed it
                os.close(descriptor)
                continue
            found = os.pread(descriptor, 4096, 0)
            holder = _parse(found)
            if alone is False or (holder is not None and _holds(holder)):
                raise StateError(_refusal(holder, what, path))
            if alone is None and not new and not found:
                raise StateError(_refusal(None, what, path))
            if found:
                log.warning("%s was left locked by %s, which is gone. It is taken over.", what, holder or "a process")
            own = Holder(os.getpid(), socket.gethostname(), started(os.getpid()), _now())
            with writing(path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(asdict(own)).encode(), 0)
            return descriptor
        except BaseException:
            with suppress(OSError):
                os.close(descriptor)
            raise


def _flock(descriptor: int) -> bool | None:
    """Whether the file is ours alone; None if this file system cannot say."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_FLOCK:
            raise
        return None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _parse(content: bytes) -> Holder | None:
    try:
        return parse_json(content, Holder)
    except ValueError:  # killed while it wrote, or damaged
        return None


def _holds(holder: Holder) -> bool:
    """Whether the holder may be at work: it is there, or on a host that cannot be asked."""
    return holder.host != socket.gethostname() or started(holder.pid) == holder.started != ""


def _refusal(holder: Holder | None, what: Path, path: Path) -> str:
    who = holder or "another process"
    if holder is not None and holder.host != socket.gethostname():
        return (
            f"{what} is locked by {who}. Whether it is still at work cannot be seen from {socket.gethostname()}. Wait "
            f"for it or stop it there; if it is gone, remove {path}."
        )
    remove = "" if holder else f"; if there is none, remove {path}"
    return (
        f"{what} is locked by {who}, which writes there. Wait until it is complete, stop it, or give another place to "
        f"write to{remove}."
    )


def started(pid: int) -> str:
    """When a process started, as the system counts; empty if there is no such process."""
    if not Path("/proc/self/stat").exists():
        ps = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return ps.stdout.strip()
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if state in "ZX" else f"{rest[18]} ticks after boot {boot}"  # a zombie does nothing any more


def _now() -> str:
    return datetime.now().astimezone().isoformat(" ", "seconds")


def _remove_temporaries(what: Path, file: bool) -> None:
    """Remove what processes that were killed have left half written, in a folder or beside a file."""
    for path in what.parent.glob(".*.tmp") if file else what.rglob(".*.tmp"):
        made_by = re.fullmatch(TEMPORARY, path.name)
        if made_by and not started(int(made_by[1])):
            with suppress(OSError):
                path.unlink()
