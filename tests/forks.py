"""Scripts in processes of their own, without the seconds that each would take to import torch.

This file, run as a script, is their parent: it imports what is slow, nothing of ctta, and forks once per script.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

SLOW = ("torch", "torch._dynamo", "scipy.ndimage", "rich.console", "typer", "jinja2", "yaml", "PIL.Image")
TESTS = Path(__file__).parent


@cache
def _parent() -> socket.socket:
    here, there = socket.socketpair()
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, __file__, str(there.fileno())],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[there.fileno()],
    )
    there.close()
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


class Script:
    """A script in a process of its own; used like `subprocess.Popen` with both outputs as pipes of text."""

    def __init__(self, path: Path, *arguments: object, start_new_session: bool = False, **environment: str) -> None:
        (said, status), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
        task = {
            "path": str(path),
            "arguments": [*map(str, arguments)],
            "environment": {**os.environ, **environment},
            "folder": os.getcwd(),
            "session": start_new_session,
        }
        content = json.dumps(task).encode()
        socket.send_fds(_parent(), [len(content).to_bytes(4, "big")], [status, stdout, stderr])
        _parent().sendall(content)
        for end in (status, stdout, stderr):
            os.close(end)
        self._status, self.stdout, self.stderr = (os.fdopen(end, encoding="utf-8") for end in (said, out, err))
        self.pid, self.returncode = int(self._status.readline()), None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float = 600.0) -> tuple[str, str]:
        """Both outputs, up to the end of the last process that may write to them."""
        deadline, said = time.monotonic() + timeout, {self.stdout: b"", self.stderr: b""}
        while pipes := [pipe for pipe in said if not pipe.closed]:
            ready = select.select(pipes, [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                self.kill()
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            for pipe in ready:
                part = os.read(pipe.fileno(), 65536)
                said[pipe] += part
                if not part:
                    pipe.close()
        self.wait(timeout)
        return said[self.stdout].decode(), said[self.stderr].decode()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode


def _forked(tasks: socket.socket) -> dict | None:
    """Forks once per task; returns a task in the process that is to do it, and None in the parent at the end."""
    while True:
        size, ends, *_ = socket.recv_fds(tasks, 4, 3)
        if not size:
            return None
        with tasks.makefile("rb", buffering=0) as stream:
            content = b""
            while len(content) < int.from_bytes(size, "big"):
                content += stream.read(int.from_bytes(size, "big") - len(content))
        if os.fork() == 0:
            tasks.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            status, *outputs = ends
            if child := os.fork():
                for end in outputs:
                    os.close(end)
                os.write(status, f"{child}\n".encode())
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                os.write(status, f"{code}\n".encode())
                os._exit(0)
            os.close(status)
            for number, end in enumerate(outputs, 1):
                os.dup2(end, number)
                os.close(end)
            return json.loads(content)
        for end in ends:
            os.close(end)


if __name__ == "__main__":
    for name in SLOW:
        __import__(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a script
    task = _forked(socket.socket(fileno=int(sys.argv[1])))
    if task is not None:
        # A shell that starts the tests in the background has them ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if task["session"]:
            os.setsid()
        os.chdir(task["folder"])
        os.environ.clear()
        os.environ.update(task["environment"])
        sys.argv = [task["path"], *task["arguments"]]
        sys.path[0] = ""
        runpy.run_path(task["path"], run_name="__main__")
