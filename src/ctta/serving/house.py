"""Where the application finds the homes of streams: in its own process here, on a cluster in `ray_house`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ctta.serving.home import Home
from ctta.serving.messages import Answer, Question, Report
from ctta.serving.refusals import CLOSING, Refused
from ctta.serving.served import Served
from ctta.serving.settings import ServeSettings


class House(Protocol):
    """What the application asks."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    @property
    def ready(self) -> bool: ...
    @property
    def served(self) -> Served: ...
    async def ask(self, question: Question) -> Answer: ...
    async def act(self, stream: str, action: str) -> Report: ...
    async def listing(self) -> Report: ...
    async def show(self, stream: str) -> Report: ...
    async def events(self, stream: str, after: int) -> list[dict[str, Any]]: ...
    async def metrics(self, home: int) -> bytes: ...
    def answered(self, code: int, seconds: float) -> None: ...


class LocalHouse:
    """One home in this process."""

    def __init__(self, settings: ServeSettings, home: Home | None = None) -> None:
        self.settings, self._home = settings, home

    async def open(self) -> None:
        """Load the model, in a thread, so that the service can say meanwhile that it is not ready."""
        self._home = await asyncio.to_thread(Home, self.settings)

    async def close(self) -> None:
        if self._home is not None:
            await asyncio.to_thread(self._home.close)

    @property
    def ready(self) -> bool:
        return self._home is not None

    @property
    def home(self) -> Home:
        if self._home is None:
            raise Refused(CLOSING, "The model is being loaded. Ask again in a moment.", retry_after=2)
        return self._home

    @property
    def served(self) -> Served:
        return self.home.served

    async def ask(self, question: Question) -> Answer:
        return await asyncio.wrap_future(self.home.ask(question))

    async def act(self, stream: str, action: str) -> Report:
        return await asyncio.wrap_future(self.home.act(stream, action))

    async def listing(self) -> Report:
        return self.home.listing()

    async def show(self, stream: str) -> Report:
        return self.home.show(stream)

    async def events(self, stream: str, after: int) -> list[dict[str, Any]]:
        return self.home.events(stream, after)

    async def metrics(self, home: int) -> bytes:
        return self.home.metrics.text()

    def answered(self, code: int, seconds: float) -> None:
        if self._home is not None:
            self._home.metrics.request(code, seconds)
