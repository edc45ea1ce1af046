"""The live page in a browser, from a real server."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.request

import numpy as np
import pytest
from PIL import Image

from needs import missing
from small_service import SMALL, body, pixels

TOKEN = "a-token-for-management"


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no Playwright: pip install 'ctta[test]'")
    if path is None:
        missing("no Chromium or Chrome on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A service in a thread of this process, with two streams."""
    import asyncio

    from ctta.serving.house import LocalHouse
    from ctta.serving.security import Tokens
    from ctta.serving.server import Serving
    from ctta.serving.settings import ServeSettings

    names = tmp_path_factory.mktemp("names") / "names.txt"
    names.write_text("\n".join(["<b>bold</b>", *(f"class {i}" for i in range(1, 10))]))
    settings = ServeSettings.make({**SMALL, "port": 0, "classes": str(names)})
    found, listens = [], threading.Event()

    def listening(place):
        found.append(place)
        listens.set()

    serving = Serving(settings, Tokens(manage=TOKEN), LocalHouse(settings), listening)
    thread = threading.Thread(target=lambda: asyncio.run(serving.run()), daemon=True)
    thread.start()
    assert listens.wait(120)
    for stream in ("front", "yard"):
        for seed in range(6):
            ask(found[0], body(pixels(seed, 32), sequence_id=stream))
    yield found[0]
    serving.end()
    thread.join(60)
    assert not thread.is_alive()


def ask(address, content):
    request = urllib.request.Request(f"{address}v2/models/m/infer", json.dumps(content).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@pytest.fixture
def opened(browser, address):
    """The page with a token; any complaint of the browser and any foreign address fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab, complaints = context.new_page(), []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda said: complaints.append(said.text) if "401" not in said.text else None)
    own = (address, "data:", "blob:")
    tab.on("request", lambda asked: None if asked.url.startswith(own) else complaints.append(asked.url))
    tab.goto(address)
    tab.wait_for_selector("#login:not([hidden])")
    tab.fill("#token", TOKEN)
    tab.click("#login button")
    tab.wait_for_selector("#rows tr")
    yield tab
    context.close()
    assert complaints == []


def test_without_the_token_nothing_is_shown(browser, address):
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(address)
    tab.wait_for_selector("#login:not([hidden])")
    assert tab.inner_text("#headline") == "A token is needed."
    assert tab.locator("#rows tr").count() == 0
    context.close()


def test_streams_charts_and_events(opened):
    assert opened.inner_text("#headline") == "2 streams, all well."
    assert opened.locator("#rows tr").count() == 2
    opened.click("#rows button >> text=front")
    opened.wait_for_selector("#name:text-is('front')")
    points = "document.querySelector('#confidence [data-series=adapted] polyline').points.numberOfItems"
    assert opened.evaluate(points) == 6
    assert opened.locator("#pictures img").count() == 6
    assert opened.inner_text("#events li") == "Nothing has happened yet."


def test_freeze_resume_roll_back_and_reset(opened, address):
    opened.click("#rows button >> text=yard")
    opened.wait_for_selector("#name:text-is('yard')")
    opened.click("[data-action=freeze]")
    opened.wait_for_selector("#guard:text-is('frozen')")
    assert opened.inner_text("#headline") == "1 of 2 streams needs a look."
    opened.click("[data-action=resume]")
    opened.wait_for_selector("#guard:text-is('ok')")
    opened.click("[data-action=rollback]")
    opened.wait_for_selector("#guard:text-is('rolled back')")
    opened.on("dialog", lambda dialog: dialog.accept())
    opened.click("[data-action=reset]")
    opened.wait_for_selector("#state:has-text('0 batches')")
    assert "reset" in opened.inner_text("#events")


def test_a_picture_gets_both_answers(opened, tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray((pixels(5, 1)[0].transpose(1, 2, 0) * 255).astype(np.uint8)).save(path)
    opened.set_input_files("#file", str(path))
    opened.click("#ask button")
    opened.wait_for_selector("#answer:not([hidden])")
    assert opened.locator("#bars .bar").count() == 6
    assert "before adaptation" in opened.inner_text("#bars")
    assert opened.locator("b").count() == 0, "names are texts"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_page(browser, address, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    tab = context.new_page()
    tab.add_init_script(f"sessionStorage.setItem('ctta-token', '{TOKEN}')")
    tab.goto(address)
    tab.wait_for_selector("#confidence svg")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 23, 27)") == (scheme == "dark")
    context.close()


def test_the_page_is_one_document():
    from ctta.serving.page import page

    document, policy = page()
    assert "http://" not in document.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in document
    assert "default-src 'none'" in policy
