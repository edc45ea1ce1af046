"""Who may ask what: bearer tokens, requests of foreign pages, and how much a request may be.

There are no cookies. With tokens, a foreign page has none to send; without them the service listens to this machine
only, and refuses requests whose Host is another one or whose Origin is another page.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ctta.base.errors import ConfigError
from ctta.base.fileio import read_lines
from ctta.serving.refusals import FORBIDDEN, HEADERS_LONG, LONG, SLOW, UNAUTHORIZED, Refused

INFER, MANAGE = "CTTA_INFER_TOKEN", "CTTA_MANAGE_TOKEN"  # environment variables
LEAST = 16  # letters of a token
HEADER_BYTES = 2**14  # of a request's headers
PATIENCE = 30.0  # seconds between two pieces of a request's body
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True)
class Tokens:
    """The token for questions, and the one for everything; none: whoever reaches the service may ask."""

    infer: str | None = None
    manage: str | None = None

    @classmethod
    def find(cls, infer: Path | None = None, manage: Path | None = None) -> Tokens:
        """From files, else from the environment."""
        return cls(_token(INFER, infer), _token(MANAGE, manage))

    def check(self, authorization: str | None, *, manages: bool) -> None:
        """Refuse a request without the token that it needs; the one for management is good for questions, too."""
        wanted = [self.manage or self.infer] if manages else [self.infer, self.manage]
        known = [token for token in wanted if token]
        if not known or (not manages and not self.infer):
            return
        scheme, _, given = (authorization or "").partition(" ")
        fits = [hmac.compare_digest(given.encode(), token.encode()) for token in known]
        if scheme.lower() != "bearer" or not any(fits):
            need = "for management" if manages else "for questions"
            raise Refused(UNAUTHORIZED, f"A token {need} is needed. Send the header Authorization: Bearer TOKEN.")


def _token(variable: str, path: Path | None) -> str | None:
    found = os.environ.get(variable) or None
    if path is not None:
        lines = read_lines(path, "a text file with a token")
        found = lines[0] if lines else ""
    if found is not None and (len(found) < LEAST or not found.isascii() or not found.isprintable() or " " in found):
        where = path or variable
        raise ConfigError(f"The token of {where} must have {LEAST} letters or more, without spaces. Make another one.")
    return found


def is_local(host: str) -> bool:
    """Whether an address is that of this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, tokens: Tokens, *, open_to_all: bool) -> None:
    """Refuse to listen to other machines without tokens, unless somebody insists."""
    if not is_local(host) and not (tokens.infer and tokens.manage) and not open_to_all:
        raise ConfigError(
            f"{host} can be reached from other machines, and whoever reaches it could teach the model. Set {INFER} and "
            f"{MANAGE}, or give --token-file and --manage-token-file; --no-token listens without."
        )


@dataclass(frozen=True)
class Doorkeeper:
    """An application of ASGI around another one: refuses what is too much or comes from elsewhere."""

    app: Any
    refuse: Callable[[Exception], Any]  # makes a response of an error
    answered: Callable[[Any, int, float], None]  # is told of every answer: the request, its status, the seconds
    body_bytes: int
    host: str
    guarded: bool  # whether there are tokens

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        began, status = time.perf_counter(), 0

        async def cautious(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        size = len(scope.get("query_string", b"")) + sum(len(part) for pair in scope["headers"] for part in pair)
        try:
            if size > HEADER_BYTES:
                raise Refused(HEADERS_LONG, f"The headers of a request may have {HEADER_BYTES} bytes. Got {size}.")
            self._check_origin(headers, scope["method"])
            self._check_length(headers)
            await self.app(scope, self._bounded(receive), cautious)
        except Exception as error:
            if not status:  # else it has been told and logged, or it is too late to say anything
                await self.refuse(error)(scope, receive, cautious)
        finally:
            self.answered(scope, status, time.perf_counter() - began)

    def _check_origin(self, headers: Mapping[str, str], method: str) -> None:
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if _parses(host) else None
        if not self.guarded and is_local(self.host) and not (name and is_local(name)):
            raise Refused(FORBIDDEN, "This service is for its own machine. Ask it as localhost or 127.0.0.1.")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        foreign = origin is not None and (not _parses(origin) or urlsplit(origin).netloc != host)
        if foreign or (method not in ("GET", "HEAD") and site not in ("none", "same-origin")):
            raise Refused(FORBIDDEN, "This request comes from another page. Use the page of the service, or a client.")

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.body_bytes:
            raise _too_long(self.body_bytes)

    def _bounded(self, receive: Any) -> Any:
        """What a request sends, as long as it is neither too much nor too slow."""
        got = 0

        async def bounded() -> Any:
            nonlocal got
            try:
                message = await asyncio.wait_for(receive(), PATIENCE if got >= 0 else None)
            except TimeoutError:
                raise Refused(SLOW, f"Nothing of the request came for {PATIENCE:g} s.") from None
            if message["type"] == "http.request":
                got += len(message.get("body", b""))
                if got > self.body_bytes:
                    raise _too_long(self.body_bytes)
                got = got if message.get("more_body") else -1
            return message

        return bounded


def _too_long(most: int) -> Refused:
    return Refused(LONG, f"A request may have {most} bytes. Send smaller pictures, fewer samples, or binary data.")


def _parses(address: str) -> bool:
    try:
        urlsplit(address if "//" in address else f"//{address}")
    except ValueError:
        return False
    return True
