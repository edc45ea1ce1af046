"""The service as a process: it listens, loads the model, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from ctta.base.errors import ConfigError
from ctta.serving.app import make_app
from ctta.serving.house import House
from ctta.serving.security import HEADER_BYTES, Tokens
from ctta.serving.settings import ServeSettings

log = logging.getLogger("ctta")

GRACE = 30  # seconds for open requests when the service ends


class Server(uvicorn.Server):
    """Tells everybody at once that it is about to end, so that streams of events end, too."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self.closing = closing
        self.failure: Exception | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.closing.set()
        super().handle_exit(sig, frame)

    def fail(self, error: Exception) -> None:
        self.failure, self.should_exit = error, True


class Serving:
    """A house behind a server; `listening` is told the address as soon as the model is loaded."""

    def __init__(self, settings: ServeSettings, tokens: Tokens, house: House, listening: Callable[[str], None]) -> None:
        self.house, self.listening, self.closing = house, listening, asyncio.Event()
        config = uvicorn.Config(
            make_app(house, settings, tokens, self.closing),
            http="h11",  # httptools has no limit for headers
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=HEADER_BYTES,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        )
        self.server, self.listener = Server(config, self.closing), _listen(settings.host, settings.port)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "https" if settings.certificate else "http"
        self.address = f"{scheme}://{host}:{self.listener.getsockname()[1]}/"

    async def run(self) -> None:
        """Serve until a signal comes, or until `end`."""
        loading = asyncio.create_task(self._load())
        await self.server.serve([self.listener])
        await loading
        if self.server.failure is not None:
            raise self.server.failure

    def end(self) -> None:
        """Let the service end, from another thread."""
        self.closing.set()
        self.server.should_exit = True

    async def _load(self) -> None:
        try:
            await self.house.open()
        except Exception as error:
            self.server.fail(error)
        else:
            self.listening(self.address)


def run(settings: ServeSettings, tokens: Tokens, house: House, listening: Callable[[str], None]) -> None:
    """Serve until a signal comes."""
    asyncio.run(Serving(settings, tokens, house, listening).run())


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)  # with its protocol named, asyncio sends small packets at once
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(512)
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened at: {error.strerror or error}. Give another --port."
        ) from error
    return made
