"""A client of `ctta serve`, with what Python has: `labels = ctta.Client("http://localhost:8000")(x).labels`."""

from __future__ import annotations

import http.client
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, CttaError, InputError, StateError
from ctta.base.text import quoted

BAD, HEADER = 400, "Inference-Header-Content-Length"
STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)  # of a connection that was kept


class ServiceError(CttaError, ConnectionError):
    """The service cannot be reached, or does not answer as it should; `status` is that of HTTP, if there is one."""

    def __init__(self, words: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(words)
        self.status, self.retry_after = status, retry_after


@dataclass(frozen=True)
class Prediction:
    """What the service says about some samples."""

    probabilities: NDArray[np.float32]  # (N, C)
    labels: NDArray[np.int64]  # (N,)
    stream: str
    step: int  # batches that the stream has seen
    version: int  # changes of its weights so far
    adapted: bool  # whether it learned from these samples
    guard: str  # "ok", "watched", "rolled back", "frozen", or "unguarded"


class Client:
    """Asks a service; one connection per thread is kept open.

    url     where the service listens, such as "http://localhost:8000"
    stream  the stream of all requests that name none
    token   for questions or for management; without it, CTTA_MANAGE_TOKEN or CTTA_INFER_TOKEN of the environment
    """

    def __init__(
        self,
        url: str = "http://localhost:8000",
        *,
        stream: str | int = "default",
        model: str = "model",
        token: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ConfigError(f"The address of a service is like http://localhost:8000. Got {quoted(url)}.")
        self._kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        self._place, self._base, self._timeout = (place.hostname, place.port), place.path.rstrip("/"), timeout
        self.stream, self.model = stream, model
        self._token = token or os.environ.get("CTTA_MANAGE_TOKEN") or os.environ.get("CTTA_INFER_TOKEN")
        self._threads = threading.local()

    def __call__(self, x: Any, *, stream: str | int | None = None, adapt: bool = True, **more: Any) -> Prediction:
        """Predict, and let the stream learn: an array or a tensor (N, ...), or a picture as a path or as bytes.

        8-bit arrays are pixels. `more` are other parameters, such as sequence_start=True.
        """
        name = self.stream if stream is None else stream
        if isinstance(x, str | Path | bytes):
            return self._picture(x if isinstance(x, bytes) else Path(x).read_bytes(), name, adapt, more)
        values = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
        kind = "UINT8" if values.dtype == np.uint8 else "FP32"
        content = np.ascontiguousarray(values, np.uint8 if kind == "UINT8" else "<f4").tobytes()
        tensor = {"name": "points" if values.ndim == 3 else "images", "datatype": kind, "shape": list(values.shape)}
        head = {
            "inputs": [{**tensor, "parameters": {"binary_data_size": len(content)}}],
            "parameters": {"sequence_id": name, "adapt": adapt, "binary_data_output": True, **more},
        }
        length = len(first := json.dumps(head).encode())
        headers = {HEADER: str(length), "Content-Type": "application/octet-stream"}
        return self._predict(f"/v2/models/{quote(self.model)}/infer", first + content, headers)

    def predict(self, x: Any, *, stream: str | int | None = None) -> Prediction:
        """Predict without learning."""
        return self(x, stream=stream, adapt=False)

    def streams(self) -> list[dict[str, Any]]:
        """All streams, those that were used last before the others."""
        found: list[dict[str, Any]] = self._json("GET", "/streams")["streams"]
        return found

    def show(self, stream: str | int | None = None) -> dict[str, Any]:
        """All that is known of a stream."""
        return self._json("GET", self._path(stream))

    def act(self, action: str, stream: str | int | None = None) -> dict[str, Any]:
        """freeze, resume, reset, rollback or checkpoint."""
        return self._json("POST", f"{self._path(stream)}/{quote(action)}")

    def delete(self, stream: str | int | None = None) -> None:
        """Forget a stream."""
        self._json("DELETE", self._path(stream))

    def close(self) -> None:
        """Close the connection of this thread."""
        if (kept := getattr(self._threads, "connection", None)) is not None:
            kept.close()
            self._threads.connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, stream: str | int | None) -> str:
        return f"/streams/{quote(str(self.stream if stream is None else stream), safe='')}"

    def _picture(self, content: bytes, stream: str | int, adapt: bool, more: dict[str, Any]) -> Prediction:
        given = {"sequence_id": stream, "adapt": str(adapt).lower(), **{k: str(v).lower() for k, v in more.items()}}
        path = f"/v2/models/{quote(self.model)}/infer?{urlencode(given)}"
        return self._predict(path, content, {"Content-Type": "application/octet-stream"})

    def _predict(self, path: str, content: bytes, headers: dict[str, str]) -> Prediction:
        found, body = self._ask("POST", path, content, headers)
        length = int(found.get(HEADER.lower(), len(body)))
        said, tail, arrays = json.loads(body[:length]), body[length:], dict[str, NDArray[Any]]()
        for output in said["outputs"]:
            kind = "<f4" if output["datatype"] == "FP32" else "<i8"
            size = output.get("parameters", {}).get("binary_data_size")
            values = np.array(output["data"], kind) if size is None else np.frombuffer(tail[:size], kind)
            arrays[output["name"]], tail = values.reshape(output["shape"]), tail[size or 0 :]
        about = {name: said["parameters"][name] for name in ("stream", "step", "version", "adapted", "guard")}
        return Prediction(arrays["probabilities"], arrays["labels"], **about)

    def _json(self, method: str, path: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._ask(method, path)[1])
        return said

    def _ask(
        self, method: str, path: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        sent = {**(headers or {}), **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        try:
            response, body = self._exchange(method, self._base + path, content, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            host, port = self._place
            raise ServiceError(
                f"The service at {host}:{port or ''} does not answer ({error}). Is it running?"
            ) from error
        if response.status < BAD:
            return {name.lower(): value for name, value in response.getheaders()}, body
        try:
            words = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            words = f"The service answered {response.status} {response.reason}."
        if response.status == BAD:
            raise InputError(words)
        if response.status == 409:
            raise StateError(words)
        again = response.getheader("Retry-After")
        raise ServiceError(words, response.status, float(again) if again else None)

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask over the connection of this thread; one that the service has closed meanwhile is opened again."""
        kept: http.client.HTTPConnection | None = getattr(self._threads, "connection", None)
        if kept is not None:
            try:
                kept.request(method, path, content, headers)
                response = kept.getresponse()
                return response, response.read()
            except STALE:  # the service has closed it while nobody asked
                kept.close()
        made = self._threads.connection = self._kind(*self._place, timeout=self._timeout)
        made.request(method, path, content, headers)
        response = made.getresponse()
        return response, response.read()
