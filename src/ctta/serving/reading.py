"""Requests for predictions, in all forms that they may have: tensors of the protocol, a picture, several pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request

from ctta.base.text import quoted
from ctta.serving import wire
from ctta.serving.messages import Question
from ctta.serving.refusals import BAD, KIND, Refused
from ctta.serving.served import Served
from ctta.serving.settings import ServeSettings
from ctta.serving.thumbnails import read_pictures
from ctta.serving.wire import Wanted

LARGE = 2**16  # bytes of a request that are read in another thread, so that others do not wait
PICTURES = ("image/jpeg", "image/png", "image/webp", "image/bmp")
TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Parts:
    """What came in."""

    body: bytes
    header: str | None  # length of the JSON before binary tensors
    pictures: list[bytes] | None
    given: Mapping[str, str]  # by the address, or the fields of a form

    @property
    def cheap(self) -> bool:
        """Whether it takes no time to be read."""
        return self.header is not None


class Reading:
    """Reads requests."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings

    def metadata(self, served: Served, version: str) -> dict[str, Any]:
        """What the protocol says about a model."""
        outputs = {"probabilities": ("FP32", [-1, served.classes]), "labels": ("INT64", [-1])}
        tensors = [("FP32", [-1, *served.shape])]
        return {
            "name": served.name,
            "versions": [version],
            "platform": "ctta",
            "inputs": [{"name": _input(served), "datatype": kind, "shape": shape} for kind, shape in tensors],
            "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in outputs.items()],
            "parameters": {"method": served.method, "class_names": list(served.class_names)},
        }

    async def parts(self, request: Request) -> Parts:
        """All of a request, within the limits."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused(KIND, "Compressed requests are not read. Send the request as it is.")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        header, given = request.headers.get(wire.HEADER), dict(request.query_params)
        if kind == "multipart/form-data":
            async with request.form(max_files=self.settings.samples, max_fields=16, max_part_size=4096) as form:
                files = [await one.read() for one in form.values() if isinstance(one, UploadFile)]
                fields = {name: one for name, one in form.items() if isinstance(one, str)}
            if not files:
                raise Refused(BAD, "The form has no picture. Send each one as a file.")
            return Parts(b"".join(files), None, files, {**given, **fields})
        body = await request.body()
        if kind in PICTURES or (kind == "application/octet-stream" and header is None):
            return Parts(body, None, [body], given)
        if kind not in ("application/json", "application/octet-stream", ""):
            raise Refused(KIND, f"Requests are JSON, binary tensors or pictures. Got {quoted(kind)}.")
        return Parts(body, header, None, given)

    def read(self, parts: Parts, served: Served) -> tuple[Question, Wanted]:
        """The question, and how its answer is to be written."""
        if parts.pictures is None:
            return wire.parse(parts.body, parts.header, served.shape, _input(served))
        if len(parts.pictures) > self.settings.samples:
            raise Refused(BAD, f"A request may have {self.settings.samples} pictures. Got {len(parts.pictures)}.")
        given: dict[str, Any] = {**parts.given}
        flags = [name for name in ("adapt", "source", "sequence_start", "sequence_end") if name in given]
        for name in flags:
            if given[name].lower() not in TRUTH:
                raise Refused(BAD, f"{name} must be true or false. Got {quoted(given[name])}.")
            given[name] = TRUTH[given[name].lower()]
        if "timeout" in given:
            timeout = given["timeout"]
            given["timeout"] = (
                int(timeout) if timeout.isascii() and timeout.isdigit() and len(timeout) < 18 else timeout
            )
        given.setdefault("sequence_id", given.get("stream"))
        source = given.get("source", False)
        x = read_pictures(parts.pictures, served.shape, self.settings.picture_pixels)
        outputs = wire.ASKED if source else wire.OUTPUTS
        return wire.question(x, given, source=source), Wanted(outputs=outputs)


def _input(served: Served) -> str:
    return "points" if served.clouds else "images"
