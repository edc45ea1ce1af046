"""How a command fails: in a sentence and with an exit code, and with a traceback only if `--debug` asks for it."""

from __future__ import annotations

import errno
import pickle
import shlex
import struct
import sys
import traceback
import zipfile
import zlib
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from typer import Exit

from ctta.base.errors import CttaError
from ctta.base.text import failure, harmless, message
from ctta.cli.terminal import say

FIX, UNEXPECTED, INTERRUPTED = 2, 4, 130  # exit codes
DEBUG = "--debug"
DAMAGED = (EOFError, UnicodeError, zlib.error, struct.error, pickle.UnpicklingError, zipfile.BadZipFile)
REMEDIES = {
    errno.ENOSPC: "Free some space on the disk; what was complete is kept, and the same command continues.",
    errno.EDQUOT: "Free some space of your quota; what was complete is kept, and the same command continues.",
    errno.EROFS: "Give a place that can be written to.",
    errno.EACCES: "Change its permissions, or give another place.",
    errno.EPERM: "Change its permissions, or give another place.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.EMFILE: "Allow more open files (ulimit -n), or use fewer workers.",
}


def in_a_sentence(command: Callable[..., None]) -> Callable[..., None]:
    """Let every failure of a command end in a sentence; the ends that typer knows stay as they are."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("\nStopped. What was complete is kept; the same command continues or starts again.", error=True)
            raise Exit(INTERRUPTED) from None
        except CttaError as error:
            _end(error, str(error), FIX)
        except (Exit, BrokenPipeError):  # nobody reads the output any more
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("typer", "click"):
                raise
            _end(error, explain(error), FIX if isinstance(error, (OSError, MemoryError, *DAMAGED)) else UNEXPECTED)
        except SystemExit as error:
            if error.code:
                raise
            _end(error, "Code that the command called ended the program before the command was complete.", UNEXPECTED)

    return run


def explain(error: Exception) -> str:
    """What is known of an error that nothing in ctta expected."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}. {REMEDIES.get(error.errno or 0, 'Check the path, or give another one.')}"
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "OutOfMemory" in type(error).__name__:
        return (
            f"There is not enough memory ({failure(error)}). Give smaller batches, images or models, or fewer workers."
        )
    if isinstance(error, DAMAGED):
        return f"A file is damaged or of another kind than its name says ({failure(error)})."
    if isinstance(error, RecursionError):
        return f"Something is nested too deeply ({failure(error)})."
    return f"Something unexpected happened ({failure(error)}). If it is a mistake of ctta, please report it."


def _end(error: BaseException, text: str, code: int) -> NoReturn:
    if DEBUG in sys.argv:
        sys.stderr.write(harmless("".join(traceback.format_exception(error))))
    say(("error ", "bold red"), message(text), error=True)
    if not isinstance(error, CttaError):
        say(f"To see where it happened:  ctta {DEBUG} {message(shlex.join(sys.argv[1:]))}", error=True)
    raise Exit(code) from error
