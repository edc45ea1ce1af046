"""The page: what it says without a browser, and what it does in one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import Head
from ctta.report.metrics import over_seeds
from ctta.report.page.page import make_sweep
from ctta.report.reports import RunReport
from ctta.report.tables.sweep import SweepError, SweepErrors, average
from fake_run import CLASSES, METHODS, write_fake_run
from needs import missing

if TYPE_CHECKING:  # Playwright is needed only by the tests in a browser
    from playwright.sync_api import Browser, Page

CHARTS = ("errors", "running", "threshold-0", "selection", "accuracy-0", "calibration-0", "calibration-4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_fake_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(folder: RunFolder) -> str:
    return render(folder)


def render(folder: RunFolder) -> str:
    return RunReport.load(folder).page()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return data


def small(path: Path, **options: Any) -> RunFolder:
    return write_fake_run(path, domains=("gaussian_noise", "fog", "snow"), batches=4, size=50, **options)


# Without a browser


def test_it_loads_nothing(page: str) -> None:
    class Loads(HTMLParser):
        found: list[str]

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if name in ("src", "href", "action", "data") and not (value or "").startswith(("data:", "#")):
                    self.found.append(f"{tag} {name}={value}")

    parser = Loads()
    parser.found = []
    parser.feed(page)
    assert parser.found == []
    assert not re.search(r"https?://|@import|url\(", page)


def test_every_chart_is_there_and_has_its_data(page: str) -> None:
    data = data_of(page)["charts"]
    for name in CHARTS:
        assert f'<svg id="{name}" class="chart"' in page
        assert name in data
    assert len(data["running"]["steps"]) == 150
    assert [series["label"] for series in data["errors"]["series"]] == [method.label for method in METHODS.values()]


def test_headline_is_computed_from_the_records(page: str) -> None:
    rows = {row["label"]: row["mean"]["mean"] for row in data_of(page)["table"]["rows"]}
    words = f"Source misclassifies {rows['Source']:.1f}\u202f% of images; DSS {rows['DSS']:.1f}\u202f%."
    assert f"<h1>{words}</h1>" in page


def test_headline_names_the_lowest_error_when_it_is_not_dss(tmp_path: Path) -> None:
    folder = small(tmp_path)
    records = folder.records_path("bn_adapt-s0")
    records.write_text(re.sub(r'"wrong": \d+', '"wrong": 0', records.read_text()))
    assert "The lowest error in this run is BN Adapt’s, 0.0\u202f%." in render(folder)


def test_words_around_the_numbers(page: str) -> None:
    for words in ("average 16 views", "Why adapt at test time?", "What DSS does", "ctta run experiments/demo.yaml"):
        assert words in page
    assert re.search(r"DSS selected [\d.]+\u202f% of the samples\. Of these, [\d.]+\u202f% were right;", page)


def test_what_methods_need_is_shown_if_it_is_known(tmp_path: Path, page: str) -> None:
    assert 'id="needs"' not in page, "a folder from before methods said so"
    folder = small(tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    traits = {"learns": "norm parameters", "forwards": [1, 7], "backwards": [1, 1], "answers": "before"}
    for cell in run["cells"]:
        cell["traits"] = {**traits, "source": "samples" if cell["method"] == "tent" else "none", "boundaries": False}
    (tmp_path / "run.json").write_text(json.dumps(run))
    needs = render(folder)
    assert 'href="#needs"' in needs
    assert "<td>1 to 7</td>" in needs
    assert needs.count("TENT†") == 2, "in the table of errors and in that of needs"
    assert "Uses source data." in needs
    assert "DSS†" not in needs


def test_names_from_outside_are_escaped(tmp_path: Path) -> None:
    classes = ("<b>bold</b>", "</script><script>alert(1)</script>", *CLASSES[2:])
    page = render(small(tmp_path, classes=classes))
    assert "<b>bold" not in page
    assert "<script>alert" not in page
    assert "&lt;b&gt;bold" in page


def test_classes_without_names_are_numbered(tmp_path: Path) -> None:
    assert re.search(r"class \d", render(small(tmp_path, classes=())))


def test_without_labels_only_what_needs_none_is_shown(tmp_path: Path) -> None:
    page = render(small(tmp_path, labelled=False))
    assert set(data_of(page)["charts"]) == {"confidence", "threshold-0", "selection"}
    assert "This stream has no labels" in page
    assert "✓" not in page
    assert 'id="cost"' in page
    assert 'id="metrics"' not in page


def test_an_unfinished_run(tmp_path: Path) -> None:
    page = render(small(tmp_path, stop_after={"dss": 6, "cotta": 0}, invalid="tent"))
    assert "running, 1 of 3 domains" in page
    assert "waiting" in page
    assert "invalid: 3 batches had non-finite logits" in page
    assert "<h1>BN Adapt misclassifies" in page, "the best of the complete and valid ones"
    assert len(data_of(page)["charts"]["threshold-0"]["series"][0]["values"]) == 6


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    page = render(small(tmp_path, stop_after=dict.fromkeys(METHODS, 0)))
    assert "No method is complete yet." in page
    assert data_of(page)["charts"] == {}


def test_several_seeds_are_averaged_and_said_so(tmp_path: Path) -> None:
    folder = small(tmp_path, seeds=(0, 1), methods=("source", "dss"))
    page = render(folder)
    first, second = (next(iter(folder.records(f"dss-s{seed}"))) for seed in (0, 1))
    shown = data_of(page)["charts"]["threshold-0"]["series"][1]["values"][0]
    assert shown == pytest.approx((first.info["threshold"] + second.info["threshold"]) / 2)
    assert "charts show the mean" in page


def test_numbers_that_are_not_finite_leave_a_gap(tmp_path: Path) -> None:
    folder = small(tmp_path, methods=("dss",))
    lines = folder.records_path("dss-s0").read_text().splitlines()
    record = json.loads(lines[5])
    record["info"]["confidence"] = float("nan")
    lines[5] = json.dumps(record)
    folder.records_path("dss-s0").write_text("\n".join(lines) + "\n")
    assert data_of(render(folder))["charts"]["threshold-0"]["series"][0]["values"][5] is None


def test_a_long_stream_is_thinned(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path, methods=("dss",), domains=("fog",) * 3, batches=700, size=10)
    page = render(folder)
    assert len(data_of(page)["charts"]["running"]["steps"]) == 1050
    assert "Each point is the mean of 2 batches." in page


def test_a_stream_that_goes_round(tmp_path: Path) -> None:
    """Ten rounds of three domains: one column per domain, one per round, and one band per segment."""
    domains = ("gaussian_noise", "fog", "snow") * 10
    folder = write_fake_run(tmp_path, domains=domains, batches=1, size=20, methods=("source", "dss"))
    head = json.loads((tmp_path / "run.json").read_text())
    head["stream"]["protocol"] = {"kind": "recurring", "rounds": 10}
    (tmp_path / "run.json").write_text(json.dumps(head))
    page = render(folder)
    data = data_of(page)
    assert data["charts"]["errors"]["domains"] == ["gaussian_noise", "fog", "snow"]
    assert data["charts"]["accuracy-0"]["domains"] == ["gaussian_noise", "fog", "snow"]
    records = [record for record in folder.records("dss-s0") if record.domain == "fog"]
    share = 100 * sum(record.selected or 0 for record in records) / sum(record.n for record in records)
    assert data["charts"]["accuracy-0"]["share"][1] == pytest.approx(share)
    assert data["charts"]["running"]["domains"][-1] == "snow #10"
    assert page.count('title="round ') == 10
    assert "recurring (rounds 10)" in page
    assert "<dt>Segments</dt><dd>30</dd>" in page


def test_the_table_of_metrics(tmp_path: Path) -> None:
    page = render(small(tmp_path, seeds=(0, 1)))
    rows = {row["label"]: row for row in data_of(page)["metrics"]["rows"]}
    section = page[page.index('<section id="metrics">') : page.index('<section id="cost">')]
    assert 'href="#metrics"' in page
    for words in (
        "vs Source",
        "95 % over seeds",
        "95 % over batches",
        "selected right",
        "Ends worse: runs whose error",
    ):
        assert words in section
    shown = f"{rows['TENT']['difference']['mean']:+.1f}".replace("-", "−")
    assert f"<td>{shown}</td>" in section
    assert rows["Source"]["difference"] is None
    ece = rows["DSS"]["calibration"]["mean"]
    assert f"ECE {ece:.1f} %" in page, "the chart and the table say the same"
    assert "clean" not in section.lower(), "if nothing was measured, nothing is shown"


def test_clean_samples_are_shown_if_they_were_evaluated(tmp_path: Path) -> None:
    folder = small(tmp_path, methods=("source", "tent"))
    for cell, more in (("source-s0", 0), ("tent-s0", 1)):
        lines = [json.loads(line) for line in folder.records_path(cell).read_text().splitlines()]
        for line in lines[3::4]:
            line["clean"] = [50, 5 + more * line["position"], 5]
        folder.records_path(cell).write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = render(folder)
    source, tent = (series["values"] for series in data_of(page)["charts"]["clean"]["series"])
    assert source == [None] * 3 + [10.0] * 9
    assert tent == [None] * 3 + [10.0] * 4 + [12.0] * 4 + [14.0], "a value holds until the next"
    assert "<td>+4.0</td>" in page, "two more of fifty are wrong at the end"
    assert "points above the unadapted model" in page


def test_write_puts_the_page_in_the_run_folder(tmp_path: Path) -> None:
    path = RunReport.load(small(tmp_path)).write()
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not list(tmp_path.glob(".*report*"))


def test_a_sweep_has_tables_links_and_axes() -> None:
    axes = {"data.batch": [5, 9], "protocol": [{"kind": "recurring", "rounds": 3}, "<b>"]}
    points = {"b5": {"data.batch": 5, "protocol": axes["protocol"][0]}, "b9": {"data.batch": 9, "protocol": "<b>"}}
    lines = tuple(
        SweepError(label, label.lower(), points[slug], over_seeds([error]), 1, status, (), slug)
        for slug, label, error, status in (("b5", "A", 2.0, ""), ("b5", "B", 1.0, ""), ("b9", "A", 3.0, "waiting"))
    )
    page = make_sweep(SweepErrors(Head("mine", axes, ("protocol",), points), lines, average(lines, ("protocol",))))
    assert "<h2>Averages</h2>" in page
    assert page.index("<h2>Averages</h2>") < page.index("<h2>Points</h2>")
    assert page.count('href="points/') == 2
    assert page.count('<td class="best">1.0</td>') == 2, "at its point, and as its own average"
    assert "3.0 [1]" in page
    assert "[1] waiting." in page
    assert "protocol (averaged)" in page
    assert "recurring, rounds 3 · &lt;b&gt;" in page
    assert "<script" not in page


# In a browser


def find_browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


@pytest.fixture(scope="module")
def address(folder: RunFolder) -> str:
    return RunReport.load(folder).write().as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_browser()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no Playwright: pip install 'ctta[test]'")
    if path is None:
        missing("no Chromium or Chrome on the path")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*quiet, "--disable-sync", "--no-first-run"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """The page from disk; any complaint of the browser fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
    tab.goto(address)
    yield tab
    context.close()
    assert complaints == []


def test_lines_have_a_point_for_each_record(opened: Page, folder: RunFolder) -> None:
    for name, cells in (("running", [f"{method}-s0" for method in METHODS]), ("threshold-0", ["dss-s0"] * 2)):
        points = opened.eval_on_selector_all(
            f"#{name} [data-series] polyline", "all => all.map(line => line.points.numberOfItems)"
        )
        assert points == [len(list(folder.records(cell))) for cell in cells]
    assert opened.locator("#errors g.dot").count() == 5 * 16
    assert opened.locator("#accuracy-0 .filled").count() == 15


def test_the_theme_toggles_and_is_remembered(opened: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = opened.evaluate(ground)
    opened.click("#theme")
    dark = opened.evaluate(ground)
    assert dark != light
    opened.reload()
    assert opened.evaluate(ground) == dark
    opened.click("#theme")
    assert opened.evaluate(ground) == light


def test_it_follows_the_system_theme(browser: Browser, address: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        tab.goto(address)
        grounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.close()
    assert len(grounds) == 2


def test_the_pointer_shows_values(opened: Page) -> None:
    assert opened.locator("#tip").is_hidden()
    opened.locator("#running").hover(position={"x": 400, "y": 150})
    words = opened.locator("#tip").inner_text()
    assert re.search(r"batch \d+ · ", words)
    assert "DSS" in words


def test_a_legend_highlights_its_series(opened: Page) -> None:
    opened.locator('.legend[data-for="running"] li').nth(4).hover()
    assert opened.locator("#running.focus g.lit").count() == 1


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_nothing_overflows(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    for details in opened.locator("details").all():
        details.evaluate("element => { element.open = true }")
    overflow, room = opened.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert overflow <= room


def test_the_bars_of_the_means_share_a_scale(opened: Page) -> None:
    opened.set_viewport_size({"width": 360, "height": 800})
    widths = opened.eval_on_selector_all(".bars .bar-track", "all => all.map(bar => bar.getBoundingClientRect().width)")
    assert len(set(widths)) == 1


def test_the_best_is_bold(opened: Page) -> None:
    weights = opened.eval_on_selector_all(
        "table.errors td", "all => all.map(cell => [cell.matches('.best'), +getComputedStyle(cell).fontWeight > 600])"
    )
    assert len(weights) == 5 * 16
    assert all(best == bold for best, bold in weights)


def test_chart_text_is_legible_on_a_phone(opened: Page) -> None:
    opened.set_viewport_size({"width": 360, "height": 800})
    heights = opened.eval_on_selector_all(
        "#running text", "all => all.map(text => parseFloat(getComputedStyle(text).fontSize) * text.getCTM().a)"
    )
    assert min(heights) >= 10


def test_it_is_complete_without_scripts(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    assert tab.locator("svg.chart").count() == 10
    assert tab.locator("#theme").is_hidden()
    context.close()
