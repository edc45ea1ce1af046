"""Code of one's own: an object named `package.module:name` or `file.py:name`, or registered by an installed package.

Models, methods and data sets are all found in this one way. What is named is imported, and thereby run: it can do
whatever a script can (see SECURITY.md).
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import hashed, home, read_whole
from ctta.base.text import failure, quoted


def is_own(name: str) -> bool:
    """Whether a name is a place of code: `package.module:name` or `file.py:name`."""
    return all(name.rpartition(":"))


def installed(group: str) -> dict[str, str]:
    """The names that installed packages have registered in a group of entry points, each with its place."""
    return {entry.name: entry.value for entry in sorted(entry_points(group=group))}


def place(name: str, what: str, group: str, known: Iterable[str]) -> str:
    """The place of code that a name stands for; one that is unknown is an error with the nearest name."""
    if is_own(name):
        return name
    registered = installed(group)
    if name not in registered:
        raise ConfigError(f"There is no {what} {quoted(name)}. {nearest(name, [*known, *registered])}")
    return registered[name]


@contextmanager
def usable(what: str, name: str, wanted: str) -> Iterator[None]:
    """Whatever goes wrong in the user's own code becomes one sentence; `wanted` says what the name must lead to."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"The {what} {quoted(name)} cannot be used ({failure(error)}). Write package.module:NAME or file.py:NAME, "
            f"where NAME is {wanted}, and check that Python finds the package."
        ) from error


def load(place: str) -> Any:
    """Import what is at a place."""
    module, _, name = place.rpartition(":")
    found = _module(module)
    try:
        return attrgetter(name)(found)
    except AttributeError:
        raise AttributeError(f"there is no {name} in {module}") from None


def source_hash(thing: Any) -> str:
    """A hash of the file in which a class or function is written."""
    whole = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    path = inspect.getsourcefile(inspect.unwrap(whole))
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else ""


def _module(name: str) -> ModuleType:
    """Import a module by its name, or by its file; a file is run once, and again if its content has changed."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = home(name).resolve()
    content = read_whole(path, "a Python file")
    title = f"ctta_own_{path.stem}_{hashed(str(path), content.decode(errors='replace'))}"
    if title in sys.modules:
        return sys.modules[title]
    found = spec_from_file_location(title, path)
    assert found is not None
    module = sys.modules[title] = module_from_spec(found)  # dataclasses and pickles look their module up
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[title]
        raise
    return module
