"""A small service in this process."""

from __future__ import annotations

import pytest

from needs import missing


@pytest.fixture
def open_home(tmp_path):
    """A function that opens a home with some settings changed; all are closed in the end."""
    try:
        from ctta.serving.home import Home
    except ImportError:
        missing("needs the service: pip install 'ctta[test]'")
    from ctta.serving.settings import ServeSettings
    from small_service import SMALL

    homes = []

    def make(**changes):
        homes.append(Home(ServeSettings.make({**SMALL, "state": str(tmp_path / "state"), **changes})))
        return homes[-1]

    yield make
    for home in homes:
        home.close()


@pytest.fixture
def service(open_home):
    """A function that makes a client of a home."""
    from ctta.serving.app import make_app
    from ctta.serving.house import LocalHouse
    from ctta.serving.security import Tokens
    from small_service import LocalClient

    def make(tokens=None, headers=None, **changes):
        home = open_home(**changes)
        app = make_app(LocalHouse(home.settings, home), home.settings, tokens or Tokens())
        client = LocalClient(app, **(headers or {}))
        client.home = home
        return client

    return make
