"""Who may ask what."""

from __future__ import annotations

import pytest

from ctta import ConfigError
from ctta.serving.security import INFER as INFER_VARIABLE
from ctta.serving.security import Tokens, check_exposure
from small_service import INFER, LocalClient, body, pixels

ASK, MANAGE = "a-token-for-questions", "a-token-for-management"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(service):
    return service(Tokens(ASK, MANAGE))


@pytest.mark.parametrize(
    ("token", "asks", "manages"),
    [(None, 401, 401), ("wrong-but-long-enough", 401, 401), (ASK, 200, 401), (MANAGE, 200, 200)],
)
def test_each_token_opens_its_doors(guarded, token, asks, manages):
    headers = {} if token is None else bearer(token)
    assert guarded.post(INFER, json=body(pixels(0)), headers=headers).status_code == asks
    assert guarded.get("/v2/models/m", headers=headers).status_code == asks
    assert guarded.get("/metrics", headers=headers).status_code == asks
    guarded.post(INFER, json=body(pixels(0)), headers=bearer(ASK))
    for method, path in (
        ("GET", "/streams"),
        ("GET", "/streams/default"),
        ("POST", "/streams/default/freeze"),
        ("DELETE", "/streams/default"),
    ):
        assert guarded.request(method, path, headers=headers).status_code == manages, path


def test_what_needs_no_token(guarded):
    for path in ("/", "/v2", "/v2/health/live", "/v2/health/ready"):
        assert guarded.get(path).status_code == 200
    refused = guarded.get("/streams")
    assert refused.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", ["Basic eA==", "Bearer", "Bearer ", f"Token {ASK}", "bearer\t" + ASK])
def test_odd_authorizations_are_refused(guarded, header):
    assert guarded.get("/v2/models/m", headers={"Authorization": header}).status_code == 401


def test_one_token_is_for_both():
    for tokens in (Tokens(infer=ASK), Tokens(infer=ASK, manage=None)):
        with pytest.raises(Exception, match="token for management"):
            tokens.check(None, manages=True)
        tokens.check(f"Bearer {ASK}", manages=True)


def test_a_foreign_page_is_refused(service):
    client = service()
    client.post(INFER, json=body(pixels(0)))
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1234"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert client.post("/streams/default/reset", headers=headers).status_code == 403
        assert client.post(INFER, json=body(pixels(0)), headers=headers).status_code == 403
    assert client.get("/streams/default").json()["step"] == 1
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/streams/default/freeze", headers=own).status_code == 200


def test_a_name_that_leads_here_is_refused(service):
    """A page that has its own name point to this machine (DNS rebinding)."""
    client = service()
    assert LocalClient(client.app, "http://evil.example").get("/streams").status_code == 403
    assert LocalClient(client.app, "http://127.0.0.1:8000").get("/streams").status_code == 200


def test_limits(service):
    client = service(body_bytes=100_000, samples=8, picture_pixels=100)
    assert client.post(INFER, content=b" " * 100_001).status_code == 413
    assert "1 to 8" in client.post(INFER, json=body(pixels(0, 9)[..., :8])).json()["error"]


def test_headers_are_bounded(service):
    client = service()
    assert client.get("/v2", headers={"X": "a" * 16_000}).status_code == 200
    refused = client.get("/v2", headers={"X": "a" * 17_000})
    assert refused.status_code == 431
    assert "16384 bytes" in refused.json()["error"]
    assert client.get(f"/v2?{'a' * 17_000}").status_code == 431


def test_a_body_without_a_length_is_bounded_too(service):
    client = service(body_bytes=20_000)

    async def chunks():
        for _ in range(5):
            yield b" " * 10_000

    response = client.post(INFER, content=chunks())
    assert response.status_code == 413
    assert "20000 bytes" in response.json()["error"]


def test_answers_carry_the_headers_of_caution(service):
    client = service()
    page = client.get("/")
    assert "'unsafe-inline'" not in page.headers["content-security-policy"].partition("script-src")[2].partition(";")[0]
    for response in (page, client.get("/nowhere"), client.get("/v2")):
        assert response.headers["x-content-type-options"] == "nosniff"
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client.get(path).status_code == 404


def test_other_machines_need_tokens():
    with pytest.raises(ConfigError, match="whoever reaches it could teach the model"):
        check_exposure("0.0.0.0", Tokens(infer=ASK), open_to_all=False)
    check_exposure("0.0.0.0", Tokens(ASK, MANAGE), open_to_all=False)
    check_exposure("0.0.0.0", Tokens(), open_to_all=True)
    for host in ("127.0.0.1", "localhost", "::1"):
        check_exposure(host, Tokens(), open_to_all=False)


def test_tokens_come_from_files_and_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text(f"{MANAGE}\n")
    monkeypatch.setenv(INFER_VARIABLE, ASK)
    assert Tokens.find(None, path) == Tokens(ASK, MANAGE)
    path.write_text("short\n")
    with pytest.raises(ConfigError, match="16 letters"):
        Tokens.find(None, path)
