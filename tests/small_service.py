"""A small service, and a client that asks its application in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np

SMALL: dict[str, Any] = {"model": "tiny:network", "size": 8, "method": "tent", "max_delay": 0.0, "name": "m"}
INFER = "/v2/models/m/infer"


def pixels(seed: int, samples: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).random((samples, 3, 8, 8), np.float32)


def body(x: np.ndarray, **parameters: Any) -> dict[str, Any]:
    """A request of the protocol."""
    tensor = {"name": "images", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    return {"id": "7", "parameters": parameters, "inputs": [tensor]}


class LocalClient:
    """Asks an application of ASGI, one request after the other."""

    def __init__(self, app: Any, base: str = "http://localhost", **headers: str) -> None:
        self.app, self.base, self.headers = app, base, headers

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        return asyncio.run(self._request(method, path, given))

    async def _request(self, method: str, path: str, given: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=self.base, headers=self.headers) as client:
            return await client.request(method, path, **given)

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)

    def delete(self, path: str, **given: Any) -> httpx.Response:
        return self.request("DELETE", path, **given)
