"""The same service on a Ray cluster: the application is a deployment of Ray Serve, and homes are named actors.

Every stream has exactly one home: the hash of its name says which, and an actor of a name is there once. If its node
dies, Ray starts the actor on another one, which goes on from what was saved in the shared folder; requests wait
meanwhile. What can be lost is what a killed process loses; a batch whose answer died with its home is asked again, so
it may be learned twice. Each home has a folder of its own, so the number of homes belongs to the folder.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ctta.base.errors import ConfigError, StateError
from ctta.base.fileio import hashed, home, make_folder, write_atomically
from ctta.running.engines import ray as cluster
from ctta.serving.app import make_app
from ctta.serving.home import Home
from ctta.serving.house import LocalHouse
from ctta.serving.messages import Answer, Question, Report
from ctta.serving.refusals import CLOSING, Refused
from ctta.serving.security import Tokens
from ctta.serving.served import Served
from ctta.serving.settings import ServeSettings

NAMESPACE, APPLICATION = "ctta", "ctta"
PAUSE = 0.2  # seconds until a home that was lost is asked again


class RemoteHome(LocalHouse):
    """A home that is an actor."""

    def __init__(self, settings: ServeSettings, number: int) -> None:
        own = settings.replace(state=f"{settings.state}/home-{number}")
        super().__init__(own, Home(own, shared=True))

    async def about(self) -> tuple[Served, str]:
        """What is served, and the node that it is served on."""
        return self.served, cluster.library().get_runtime_context().get_node_id()


class RayHouse:
    """All homes, asked from a replica of the application."""

    def __init__(self, settings: ServeSettings, homes: int, served: Served) -> None:
        self.settings, self.homes, self.served, self.ready = settings, homes, served, True

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ask(self, question: Question) -> Answer:
        answer: Answer = await self._call(self._home_of(question.stream), "ask", question)
        return answer

    async def act(self, stream: str, action: str) -> Report:
        report: Report = await self._call(self._home_of(stream), "act", stream, action)
        return report

    async def listing(self) -> Report:
        """The streams of all homes."""
        found = await asyncio.gather(*(self._call(number, "listing") for number in range(self.homes)))
        streams = [{**stream, "home": i} for i, one in enumerate(found) for stream in one["streams"]]
        streams.sort(key=lambda stream: stream.get("idle_seconds", float("inf")))
        return {"streams": streams, **{key: sum(one[key] for one in found) for key in found[0] if key != "streams"}}

    async def show(self, stream: str) -> Report:
        number = self._home_of(stream)
        return {**await self._call(number, "show", stream), "home": number}

    async def events(self, stream: str, after: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._call(self._home_of(stream), "events", stream, after)
        return found

    async def metrics(self, home: int) -> bytes:
        """Those of one home: /metrics?home=1."""
        content: bytes = await self._call(min(home, self.homes - 1), "metrics", 0)
        return content

    def answered(self, code: int, seconds: float) -> None:
        """Ray Serve counts requests itself."""

    def _home_of(self, stream: str) -> int:
        return int(hashed(stream), 16) % self.homes

    async def _call(self, number: int, method: str, *arguments: Any) -> Any:
        """Ask a home; while it is being started elsewhere, ask again until the deadline."""
        ray = cluster.library()
        deadline = time.monotonic() + self.settings.deadline
        while True:
            try:
                actor = ray.get_actor(_name(self.settings, number), namespace=NAMESPACE)
                return await getattr(actor, method).remote(*arguments)
            except ray.exceptions.RayTaskError as error:
                raise error.cause or error from None
            except (ray.exceptions.RayActorError, ValueError) as error:
                if time.monotonic() > deadline:
                    words = f"The home of this stream was lost, and is not back after {self.settings.deadline:g} s."
                    raise Refused(CLOSING, words, retry_after=5) from error
                await asyncio.sleep(PAUSE)


class Deployed:
    """A service on a cluster."""

    def __init__(self, settings: ServeSettings, tokens: Tokens, address: str, homes: int, replicas: int = 1) -> None:
        if settings.state is None:
            raise ConfigError("On a cluster, streams are kept in a folder that all nodes see. Give --state FOLDER.")
        if settings.certificate is not None:
            raise ConfigError("Ray's proxy speaks no TLS here. Put a proxy with TLS before it, without --certificate.")
        settings = settings.replace(state=str(home(settings.state).resolve()))
        _claim(settings, homes)
        self.ray = cluster.connect(address, "ctta serve --ray", namespace=NAMESPACE)
        self.serve, self.settings, self.homes = cluster.serving(), settings, homes
        kind = self.ray.remote(RemoteHome)
        self.actors = [
            kind.options(
                name=_name(settings, number),
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=settings.queue + 64,
                num_cpus=1,
                scheduling_strategy="SPREAD",
            ).remote(settings, number)
            for number in range(homes)
        ]
        try:
            self.abouts = self.ray.get([actor.about.remote() for actor in self.actors])
        except self.ray.exceptions.RayActorError as error:
            raise StateError(f"A home of streams could not be started: {error}") from error
        served = self.abouts[0][0]
        self.serve.start(http_options={"host": settings.host, "port": settings.port})
        ingress = self.serve.ingress(lambda: make_app(RayHouse(settings, homes, served), settings, tokens))
        deployment = self.serve.deployment(ingress(_Application), name="ctta", num_replicas=replicas)
        deployment = deployment.options(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=settings.queue)
        self.serve.run(deployment.bind(), name=APPLICATION, route_prefix="/")
        self.address = f"http://{settings.host}:{settings.port}/"

    def close(self) -> None:
        """End the application, and let all homes save."""
        self.serve.delete(APPLICATION)
        self.ray.get([actor.close.remote() for actor in self.actors])
        for actor in self.actors:
            self.ray.kill(actor)
        self.serve.shutdown()


class _Application:
    """What Ray Serve wraps."""


def serve_on_ray(
    settings: ServeSettings, tokens: Tokens, address: str, homes: int, listening: Callable[[str], None]
) -> None:
    """Serve on a cluster until a signal comes."""
    deployed = Deployed(settings, tokens, address, homes)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    listening(deployed.address)
    ended.wait()
    deployed.close()


def _name(settings: ServeSettings, number: int) -> str:
    return f"{settings.name}-home-{number}"


def _claim(settings: ServeSettings, homes: int) -> None:
    """Refuse another number of homes than the folder was made for: streams would be looked for in the wrong one."""
    folder = home(str(settings.state))
    make_folder(folder)
    path = folder / "homes.json"
    if not path.exists():
        write_atomically(path, json.dumps({"homes": homes}).encode())
    elif (found := json.loads(path.read_bytes()).get("homes")) != homes:
        raise StateError(f"{folder} has streams in {found} homes. Give --homes {found}, or another --state.")
