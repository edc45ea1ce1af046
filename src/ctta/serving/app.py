"""The addresses of the service: the Open Inference Protocol V2, the management of streams, metrics, and the page."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

import ctta
from ctta.base.errors import CttaError
from ctta.base.text import quoted
from ctta.serving.house import House
from ctta.serving.messages import ACTIONS, stream_name
from ctta.serving.page import page
from ctta.serving.reading import LARGE, Reading
from ctta.serving.refusals import UNKNOWN, Refused, explained
from ctta.serving.security import Doorkeeper, Tokens
from ctta.serving.settings import ServeSettings
from ctta.serving.wire import encode

access = logging.getLogger("ctta.access")

VERSION = "current"
EXTENSIONS = ["binary_tensor_data", "sequence", "classification", "parameters"]
PAUSE, BEAT = 0.25, 15.0  # seconds between two looks for events, and between two signs of life


def make_app(house: House, settings: ServeSettings, tokens: Tokens, closing: asyncio.Event | None = None) -> Any:
    """The application of ASGI; `closing` is set when the service is about to end."""
    closing = closing or asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        closing.set()
        await house.close()

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    reading = Reading(settings)

    def asks(request: Request) -> None:
        tokens.check(request.headers.get("authorization"), manages=False)

    def manages(request: Request) -> None:
        tokens.check(request.headers.get("authorization"), manages=True)

    def known(name: str, version: str = VERSION) -> None:
        if name != settings.name or version != VERSION:
            raise Refused(UNKNOWN, f"There is no model {quoted(name)} {version}. It is {settings.name} {VERSION}.")

    @app.get("/")
    async def show_page() -> Response:
        document, policy = page()
        return HTMLResponse(document, headers={"Content-Security-Policy": policy})

    @app.get("/v2")
    async def server() -> dict[str, Any]:
        return {"name": "ctta", "version": ctta.__version__, "extensions": EXTENSIONS}

    @app.get("/v2/health/live")
    @app.get("/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready")
    @app.get("/health/ready")
    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def ready(name: str = settings.name, version: str = VERSION) -> Response:
        known(name, version)
        there = house.ready and not closing.is_set()
        return JSONResponse({"ready": there, "name": name}, 200 if there else 503)

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    async def model(request: Request, name: str, version: str = VERSION) -> dict[str, Any]:
        asks(request)
        known(name, version)
        return reading.metadata(house.served, VERSION)

    @app.post("/v2/repository/index")
    async def index(request: Request) -> list[dict[str, str]]:
        asks(request)
        state = "READY" if house.ready else "UNAVAILABLE"
        return [{"name": settings.name, "version": VERSION, "state": state, "reason": ""}]

    @app.post("/v2/models/{name}/infer")
    @app.post("/v2/models/{name}/versions/{version}/infer")
    async def infer(request: Request, name: str, version: str = VERSION) -> Response:
        asks(request)
        known(name, version)
        served = house.served
        parts = await reading.parts(request)
        small = parts.cheap or len(parts.body) < LARGE
        question, wanted = (
            reading.read(parts, served) if small else await run_in_threadpool(reading.read, parts, served)
        )
        answer = await house.ask(question)
        content, headers = encode(answer, wanted, settings.name, served.class_names)
        return Response(content, headers=headers)

    @app.get("/streams")
    async def listing(request: Request) -> dict[str, Any]:
        manages(request)
        served = house.served
        about = {"name": served.name, "method": served.method, "class_names": served.class_names}
        return {
            "model": {**about, "pictures": served.pictures, "durable": settings.state is not None},
            **await house.listing(),
        }

    @app.get("/streams/{stream}")
    async def show(request: Request, stream: str) -> dict[str, Any]:
        manages(request)
        return await house.show(stream_name(stream))

    @app.delete("/streams/{stream}")
    async def delete(request: Request, stream: str) -> dict[str, Any]:
        manages(request)
        return await house.act(stream_name(stream), "delete")

    @app.get("/streams/{stream}/events")
    async def events(request: Request, stream: str) -> Response:
        manages(request)
        name, last = stream_name(stream), request.headers.get("last-event-id", "0")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 18 else 0
        first = await house.events(name, after)
        return StreamingResponse(_events(house, name, after, first, closing), media_type="text/event-stream")

    @app.post("/streams/{stream}/{action}")
    async def act(request: Request, stream: str, action: str) -> dict[str, Any]:
        manages(request)
        if action not in ACTIONS or action == "delete":
            raise Refused(UNKNOWN, f"There is no action {quoted(action)}. Choose from: {', '.join(ACTIONS[:-1])}.")
        return await house.act(stream_name(stream), action)

    @app.get("/metrics")
    async def metrics(request: Request, home: str = "0") -> Response:
        asks(request)
        content = await house.metrics(int(home) if home.isascii() and home.isdigit() and len(home) < 6 else 0)
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def failed(_: Request, error: Exception) -> Response:
        return _refusal(error)

    for kind in (HTTPException, CttaError, Exception):
        app.add_exception_handler(kind, failed)

    def answered(scope: Any, status: int, seconds: float) -> None:
        if scope["path"].startswith(("/v2/models", "/streams")):
            house.answered(status, seconds)
        client = (scope.get("client") or ("",))[0]
        about = {"method": scope["method"], "path": scope["path"], "status": status, "client": client}
        access.info("request", extra={"fields": {**about, "seconds": round(seconds, 6)}})

    guarded = bool(tokens.infer or tokens.manage)
    return Doorkeeper(app, _refusal, answered, settings.body_bytes, settings.host, guarded)


def _refusal(error: Exception) -> Response:
    """An error in the protocol's form."""
    if isinstance(error, HTTPException):  # of the router and of forms
        return JSONResponse({"error": f"{error.detail}."}, error.status_code, dict(error.headers or {}))
    refused = explained(error)
    again = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    asks = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    return JSONResponse({"error": refused.words}, refused.status, {**again, **asks})


async def _events(
    house: House, name: str, after: int, found: list[dict[str, Any]], closing: asyncio.Event
) -> AsyncIterator[str]:
    """Server-sent events: those that are known, then as they happen, until the stream or the service ends."""
    yield "retry: 2000\n\n"
    quiet = time.monotonic()
    while not closing.is_set():
        for event in found:
            after, quiet = event["id"], time.monotonic()
            yield f"id: {event['id']}\nevent: {event['kind'].replace(' ', '-')}\ndata: {json.dumps(event)}\n\n"
        if time.monotonic() - quiet > BEAT:
            quiet = time.monotonic()
            yield ": still here\n\n"
        with suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), PAUSE)
        try:
            found = await house.events(name, after)
        except Refused:
            return
