"""Every error that ctta raises on purpose.

CttaError
├── InputError    the batch (or the data) cannot be used as it is; also a ValueError
├── ModelError    the network cannot be adapted, or failed on a batch; also a RuntimeError
├── ConfigError   a name, a field or a value in the settings is wrong; also a ValueError
└── StateError    saved state does not fit, or an adapter is used in a way it cannot be; also a RuntimeError

Each message says what was wrong, what was expected and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ctta.base.text import quoted

LONGEST = 100  # letters of a name that are compared
LISTED = 30  # names


class CttaError(Exception):
    """The root of all errors that ctta raises on purpose."""


class InputError(CttaError, ValueError):
    """The batch or the data cannot be used as it is."""


class ModelError(CttaError, RuntimeError):
    """The network cannot be adapted, or failed on a batch."""


class ConfigError(CttaError, ValueError):
    """A name, a field or a value in the settings is wrong."""


class StateError(CttaError, RuntimeError):
    """Saved state does not fit, or an adapter is used in a way it cannot be."""


def nearest(name: object, known: Iterable[str]) -> str:
    """A sentence that names the nearest right name and those that are accepted, the first of them if there are many."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:LONGEST], known, n=1, cutoff=0.5) if isinstance(name, str) else []
    hint = f"Did you mean {quoted(near[0])}? " if near else ""
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return f"{hint}Accepted: {', '.join(known[:LISTED]) or 'nothing'}{more}."
