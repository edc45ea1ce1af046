"""How much a file may hold: none may claim, or unpack to, far more than its own length."""

from __future__ import annotations

from ctta.base.errors import InputError

PIXELS = 178_956_970  # of a picture; Pillow's own limit
UNPACKED = 2**28  # bytes that every file may unpack to, however short it is
RATIO = 200  # more than that, only so many times its own length
WHOLE = 2**30  # bytes of a file that is read as a whole: texts and pickles
PICKLED = 2**26  # bytes of the names and shapes in a file of weights


def check_growth(claimed: int, stored: int) -> None:
    """Refuse content that is so much larger than the file that it can only be damaged or made to fill the memory."""
    if claimed > max(UNPACKED, RATIO * stored):
        raise InputError(
            f"It claims {claimed} bytes of content, but has a length of {stored}. At most {UNPACKED} bytes, or {RATIO} "
            "times the length of a file, are unpacked."
        )
