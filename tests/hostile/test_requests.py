"""Requests that are damaged, huge, deep, foreign or simply odd: each gets a sentence, and the service goes on."""

from __future__ import annotations

import asyncio
import io
import json
import random

import httpx
import numpy as np
import pytest
from PIL import Image

from needs import missing
from small_service import INFER, SMALL, body, pixels

MANY = 3_000


@pytest.fixture(scope="module")
def home():
    try:
        from ctta.serving.home import Home
    except ImportError:
        missing("needs the service: pip install 'ctta[test]'")
    from ctta.serving.settings import ServeSettings

    made = Home(ServeSettings.make({**SMALL, "body_bytes": 100_000, "stored": 50}))
    yield made
    made.close()


@pytest.fixture(scope="module")
def app(home):
    from ctta.serving.app import make_app
    from ctta.serving.house import LocalHouse
    from ctta.serving.security import Tokens

    return make_app(LocalHouse(home.settings, home), home.settings, Tokens())


def ask_all(app, requests):
    """The answers to all requests, one after the other."""

    async def run():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.request(method, path, **given) for method, path, given in requests]

    return asyncio.run(run())


def assert_refused(responses, allowed=range(400, 500)):
    for response in responses:
        assert response.status_code in allowed, (response.status_code, response.text[:300])
        said = response.json()["error"]
        assert said
        assert "Traceback" not in said


VALUES = [None, True, -1, 0, 1.5, 2**70, "x", "", [], {}, [[]], float("nan"), "\x00", "é" * 300, [[1], [1, 2]]]
PLACES = [
    ("inputs",),
    ("inputs", 0),
    ("inputs", 0, "name"),
    ("inputs", 0, "shape"),
    ("inputs", 0, "shape", 1),
    ("inputs", 0, "datatype"),
    ("inputs", 0, "data"),
    ("inputs", 0, "data", 5),
    ("inputs", 0, "parameters"),
    ("inputs", 0, "parameters", "binary_data_size"),
    ("outputs",),
    ("outputs", 0),
    ("outputs", 0, "name"),
    ("outputs", 0, "parameters"),
    ("outputs", 0, "parameters", "classification"),
    ("parameters",),
    ("parameters", "sequence_id"),
    ("parameters", "sequence_start"),
    ("parameters", "adapt"),
    ("parameters", "timeout"),
    ("id",),
]


def planted(place, value):
    """A good request with one value replaced."""
    content = body(pixels(0, 1), adapt=False)
    content["inputs"][0]["parameters"] = {}
    content["outputs"] = [{"name": "labels", "parameters": {}}]
    spot = content
    for step in place[:-1]:
        spot = spot[step]
    spot[place[-1]] = value
    return content


def test_one_wrong_value_at_every_place(app, attempt):
    contents = [json.dumps(planted(place, value)) for place in PLACES for value in VALUES]
    responses = ask_all(app, [("POST", INFER, {"content": content}) for content in contents])
    assert all(response.status_code in (200, 400) for response in responses), {r.status_code for r in responses}
    assert_refused([response for response in responses if response.status_code != 200])
    assert sum(response.status_code == 400 for response in responses) > len(responses) / 2
    attempt("requests with one wrong value", len(responses))


def damaged(good, draw):
    """Bytes that were cut, changed, repeated or replaced."""
    content = bytearray(good)
    for _ in range(draw.randint(1, 4)):
        spot = draw.randrange(len(content) or 1)
        match draw.randrange(5):
            case 0:
                del content[spot:]
            case 1 if content:
                content[spot % len(content)] ^= 1 << draw.randrange(8)
            case 2:
                content[spot:spot] = draw.randbytes(draw.randint(1, 20))
            case 3:
                content[spot : spot + 30] = b""
            case 4:
                content += content[: draw.randint(1, 200)]
    return bytes(content)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Starlette leaves files of cut forms
def test_thousands_of_damaged_requests(app, home, attempt):
    draw = random.Random(0)
    x = pixels(0, 1)
    plain = json.dumps(body(np.round(x, 2), adapt=False, sequence_id="hostile")).encode()
    tensor = {"name": "images", "shape": [1, 3, 8, 8], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"adapt": False}}).encode()
    drawn = io.BytesIO()
    Image.fromarray((x[0].transpose(1, 2, 0) * 255).astype(np.uint8)).save(drawn, "PNG")
    form = (
        b'--b\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n%s\r\n--b--\r\n' % drawn.getvalue()
    )
    goods = [
        (plain, {"Content-Type": "application/json"}),
        (head + x.tobytes(), {"Inference-Header-Content-Length": str(len(head))}),
        (drawn.getvalue(), {"Content-Type": "image/png"}),
        (form, {"Content-Type": "multipart/form-data; boundary=b"}),
    ]
    counts = dict.fromkeys(range(200, 600), 0)
    for start in range(0, MANY, 500):
        requests = []
        for i in range(start, start + 500):
            content, headers = goods[i % len(goods)]
            requests.append(("POST", f"{INFER}?adapt=false", {"content": damaged(content, draw), "headers": headers}))
        for response in ask_all(app, requests):
            counts[response.status_code] += 1
            if response.status_code != 200:
                assert_refused([response])
    assert sum(counts[code] for code in range(400, 500)) > MANY / 2
    assert sum(counts.values()) == MANY
    good = ask_all(app, [("POST", INFER, {"content": plain})])[0]
    assert good.status_code == 200
    assert home.streams.get("hostile").version == 0
    attempt("damaged requests", MANY)


ODD = {
    "deep lists": b'{"inputs":' + b"[" * 50_000 + b"]" * 50_000,
    "a number of many digits": b'{"inputs":[{"name":"images","shape":[1],"datatype":"FP32","data":['
    + b"9" * 50_000
    + b"]}]}",
    "not UTF-8": b'{"id": "\xff\xfe"}',
    "nothing": b"",
    "only spaces": b" " * 1000,
    "a list": b"[]",
    "twice the same key": b'{"inputs":[],"inputs":[]}',
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("name", list(ODD))
def test_odd_bodies(app, name, attempt):
    assert_refused(ask_all(app, [("POST", INFER, {"content": ODD[name]})]))
    attempt("odd bodies")


LENGTHS = ["-1", "0x10", "9" * 30, "abc", "", "1e3", "100000", " 5", "٣"]


def test_wrong_lengths_before_binary_data(app, attempt):
    given = [{"content": b"{}" * 20, "headers": {"Inference-Header-Content-Length": n.encode()}} for n in LENGTHS]
    assert_refused(ask_all(app, [("POST", INFER, one) for one in given]))
    attempt("wrong lengths", len(LENGTHS))


NAMES = ["../../etc/passwd", "a/b", ".hidden", "x" * 101, "a b", "<script>", "é", "CON/..", "%2e%2e", "a\nb", "-rf"]


def test_names_of_streams_that_lead_elsewhere(app, home, attempt):
    requests = [("POST", INFER, {"json": body(pixels(0, 1), sequence_id=name)}) for name in NAMES]
    assert_refused(ask_all(app, requests))
    assert not [path for path in home.streams.store.folder.rglob("*") if path.name.startswith((".hidden", "passwd"))]
    attempt("names of streams", len(NAMES))


def test_pictures_that_are_bombs_or_none(app, attempt):
    bomb = io.BytesIO()
    Image.new("1", (6_000, 6_000)).save(bomb, "PNG")
    contents = [
        bomb.getvalue()[:99_000],
        b"GIF89a" + b"\0" * 50,
        b"%!PS-Adobe",
        b"<svg onload=alert(1)>",
        b"\xff\xd8\xff",
    ]
    given = [{"content": content, "headers": {"Content-Type": "image/png"}} for content in contents]
    assert_refused(ask_all(app, [("POST", INFER, one) for one in given]))
    attempt("pictures that are none", len(contents))


PATHS = [
    "/v2/models/m/infer/../../..",
    "//",
    "/%00",
    "/streams/%2e%2e/%2e%2e",
    "/v2/models/%ff",
    "/streams/a/b/c/d",
    "/x" * 999,
]
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]


def test_odd_addresses(app, attempt):
    requests = [(method, path, {}) for path in PATHS for method in METHODS]
    for response in ask_all(app, requests):
        assert response.status_code < 500
    attempt("odd addresses", len(requests))


def test_too_many_streams_are_refused_and_those_that_are_there_go_on(app, home, attempt):
    requests = [("POST", INFER, {"json": body(pixels(0, 1), sequence_id=f"s{i}")}) for i in range(60)]
    codes = [response.status_code for response in ask_all(app, requests)]
    assert set(codes) == {200, 429}
    assert ask_all(app, requests[:1])[0].status_code == 200
    attempt("streams beyond the limit", codes.count(429))
