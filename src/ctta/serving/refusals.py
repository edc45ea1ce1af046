"""Why a request is not answered: a status of HTTP and a sentence, in the protocol's form."""

from __future__ import annotations

import logging

from ctta.base.errors import CttaError, InputError, StateError
from ctta.base.text import message

log = logging.getLogger("ctta")

BAD, UNAUTHORIZED, FORBIDDEN, UNKNOWN, SLOW, CONFLICT, LONG, KIND, BUSY = 400, 401, 403, 404, 408, 409, 413, 415, 429
HEADERS_LONG = 431
BROKEN, CLOSING, LATE = 500, 503, 504


class Refused(CttaError):  # noqa: N818
    """A request is refused with this status and these words."""

    def __init__(self, status: int, words: str, retry_after: int | None = None) -> None:
        super().__init__(status, words, retry_after)  # all of it, so that it can go to another process
        self.status, self.words, self.retry_after = status, words, retry_after

    def __str__(self) -> str:
        return self.words


def explained(error: BaseException) -> Refused:
    """Any error as a refusal; what nobody expected is logged, and not told to a stranger."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, StateError):
        return Refused(CONFLICT, message(str(error)))
    if isinstance(error, InputError):
        return Refused(BAD, message(str(error)))
    log.error("a request failed", exc_info=error)
    if isinstance(error, CttaError):  # of the model
        return Refused(BROKEN, message(str(error)))
    return Refused(BROKEN, "Something unexpected happened. The log of the service says more.")
