"""What the verbs print: lines and progress bars."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich import progress
from rich.console import Console
from rich.text import Text

from ctta.base.text import harmless, one_line


def say(*parts: str | tuple[str, str], error: bool = False, quiet: bool = False) -> None:
    """Print a line of texts and of (text, style), on standard error if it is not part of the result."""
    safe = [harmless(part) if isinstance(part, str) else (harmless(part[0]), part[1]) for part in parts]
    Console(stderr=error, quiet=quiet).print(Text.assemble(*safe), soft_wrap=True)


def progress_bar(quiet: bool) -> progress.Progress:
    """Make a progress bar on standard error."""
    times = (progress.TimeElapsedColumn(), progress.TextColumn("left"), progress.TimeRemainingColumn())
    columns = (progress.BarColumn(), progress.MofNCompleteColumn(), _Rate(), *times)
    name = progress.TextColumn("{task.description:<28}", markup=False)
    return progress.Progress(name, *columns, console=Console(stderr=True), disable=quiet)


class _Rate(progress.ProgressColumn):
    """Steps per second."""

    def render(self, task: progress.Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "-/s")


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the command with exit code 130 and a sentence about what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nStopped. {kept()}", error=True)
        raise typer.Exit(130) from None


def typed() -> str:
    """Return the command as it was typed."""
    return one_line(shlex.join(["ctta", *sys.argv[1:]]))
