"""The page: what it says without a browser, and what it does in one."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY
from xml.etree import ElementTree

import numpy as np
import pytest

from ctta.records.run_folder import GuardEvent, RunFolder
from ctta.records.sweep_folder import Head, SweepFolder
from ctta.report.metrics import over_seeds
from ctta.report.page import charts
from ctta.report.page.page import make_sweep
from ctta.report.reports import RunReport, SweepReport
from ctta.report.tables.sweep import SweepError, SweepErrors, average
from fake_run import CLASSES, DOMAINS, METHODS, write_fake_run
from needs import missing

if TYPE_CHECKING:  # Playwright is needed only by the tests in a browser
    from playwright.sync_api import Browser, Page

CHARTS = ("errors", "running", "difference", "threshold-0", "selected", "accuracy-0", "calibration-0", "calibration-4")


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
    best = min(rows, key=lambda label: rows[label])
    words = f"Source misclassifies {rows['Source']:.1f}\u202f% of images; {best} {rows[best]:.1f}\u202f%."
    assert f"<h1>{words}</h1>" in page


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (["bn_adapt"], "; BN Adapt 0.0\u202f%."),
        (["bn_adapt", "dss"], "; BN Adapt and DSS 0.0\u202f%."),
        (["bn_adapt", "tent", "dss"], "; BN Adapt and 2 others 0.0\u202f%."),
        (["source", "dss"], "complete methods: on this stream, adapting did not help."),
    ],
)
def test_the_lowest_error_has_the_headline(tmp_path: Path, best: list[str], words: str) -> None:
    folder = small(tmp_path)
    for method in best:
        records = folder.records_path(f"{method}-s0")
        records.write_text(re.sub(r'"wrong": \d+', '"wrong": 0', records.read_text()))
    assert words in render(folder)


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
    assert "1 to 7" not in needs, "passes are those of this run, not what a method declares"
    section = needs[needs.index('<section id="needs">') :]
    assert re.search(r"DSS</th>\s*<td>norm parameters</td>\s*<td>18</td>\s*<td>1</td>", section)
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
    assert set(data_of(page)["charts"]) == {"confidence", "threshold-0", "selected"}
    assert "This stream has no labels" in page
    assert "✓" not in page
    assert 'id="cost"' in page
    assert 'id="metrics"' not in page


def test_an_unfinished_run(tmp_path: Path) -> None:
    page = render(small(tmp_path, stop_after={"dss": 6, "cotta": 0}, invalid="tent"))
    assert "running, 1 of 3 domains" in page
    assert "waiting" in page
    assert "invalid: 3 batches had non-finite logits" in page
    assert re.search(r"<h1>Source misclassifies [^<]*; BN Adapt ", page), "the best of the complete and valid ones"
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
    assert shown == pytest.approx((first.info["threshold"] + second.info["threshold"]) / 2, abs=1e-4)
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
    assert data["charts"]["errors"]["domains"] == ["gaussian_noise", "fog", "snow", "mean"]
    assert data["charts"]["accuracy-0"]["domains"] == ["gaussian_noise", "fog", "snow"]
    records = [record for record in folder.records("dss-s0") if record.domain == "fog"]
    share = 100 * sum(record.selected or 0 for record in records) / sum(record.n for record in records)
    assert data["charts"]["accuracy-0"]["percentage selected"][1] == pytest.approx(share, abs=1e-4)
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
    assert "<h1>B at batch 5 has the lowest mean error: 1.0\u202f%.</h1>" in page, "of the complete ones"
    assert data_of(page)["charts"]["sweep"]["series"][1] == {"label": "B", "values": [1.0, None]}


def test_a_sweep_over_two_axes_has_a_heat_map_per_method() -> None:
    axes = {"method.lr": [0.1, 0.2], "data.batch": [5, 9]}
    points = {f"{lr}-{batch}": {"method.lr": lr, "data.batch": batch} for lr in (0.1, 0.2) for batch in (5, 9)}
    lines = tuple(
        SweepError(label, "tent", at, over_seeds([10 * at["method.lr"] + at["data.batch"] + more]), 1, "", (), slug)
        for slug, at in points.items()
        for label, more in (("A", 0.0), ("B", 50.0))
    )
    page = make_sweep(SweepErrors(Head("mine", axes, (), points), lines))
    first, second = (data_of(page)["charts"][f"sweep-{number}"] for number in (0, 1))
    assert (first["head"], first["domains"]) == ("method.lr", ["0.1", "0.2"])
    assert first["series"] == [{"label": "5", "values": [6.0, 7.0]}, {"label": "9", "values": [10.0, 11.0]}]
    assert second["series"][0]["values"] == [56.0, 57.0]
    assert page.count('class="field best"') == 2, "one per map"
    assert "A at lr 0.1, batch 5 has the lowest mean error: 6.0\u202f%.</h1>" in page
    equal = (lines[0], replace(lines[2], error=over_seeds([6.04])))
    alike = make_sweep(SweepErrors(Head("mine", axes, (), points), equal))
    assert "mean error: 6.0\u202f%. 1 more is as low.</h1>" in alike
    assert 'class="field best"' not in alike, "where all are equal, none is the best"
    assert 'href="points/0.1-5/report.html">The best one' in page


def test_a_point_has_a_way_back_to_its_sweep(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    sweep.write(Head("mine", {"data.batch": [5]}, (), {"b5": {"data.batch": 5}}))
    small(sweep.point("b5").path)
    SweepReport.load(sweep).write()
    page = (sweep.point("b5").path / "report.html").read_text(encoding="utf-8")
    assert '<a href="../../report.html">← sweep</a>' in page
    assert (sweep.point("b5").path / "../../report.html").exists()


# Without labels, as `ctta adapt` leaves it


def adapted(
    path: Path, guard: Sequence[int], events: Sequence[tuple[int, str, str]] = (), *, guarded: bool = True
) -> str:
    """The page of one method, with the guard's verdict on each batch."""
    folder = write_fake_run(path, methods=("tent",), domains=("all",), batches=len(guard), size=20, labelled=False)
    lines = [json.loads(line) for line in folder.records_path("tent-s0").read_text().splitlines()]
    for line, level in zip(lines, guard, strict=True):
        line["info"] |= {"source_confidence": 0.4, "changed": 0.25, **({"guard": level} if guarded else {})}
    folder.records_path("tent-s0").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = folder.run()
    cells = tuple(replace(cell, guard=guarded) for cell in run.cells)
    folder.write_run(replace(run, cells=cells, events=tuple(GuardEvent(*event) for event in events)))
    return render(folder)


@pytest.mark.parametrize(
    ("guard", "events", "state", "words"),
    [
        ([0, 0, 0], [], "healthy", "Healthy: no sign of harm."),
        ([0, 0, 0], [(1, "changed", "other")], "healthy", "Healthy: no sign of harm."),
        ([0, 0, 0], [(1, "blank", "nothing")], "watch", "Watch: some samples show nothing."),
        ([0, 0, 1], [], "watch", "Watch: there is some evidence of harm."),
        (
            [0, 2, 0],
            [(1, "roll-back", "it went back")],
            "watch",
            "Watch: adapting did harm once, and it was",
        ),
        ([2, 2, 0], [], "watch", "Watch: adapting did harm 2 times"),
        ([2, 3, 3], [(0, "frozen", "no more")], "stop", "Stop: adapting made the model worse, again and again."),
        ([0, 0, 0], [(2, "lost", "look")], "stop", "Stop: the model itself looks lost on these samples."),
    ],
)
def test_the_guard_has_the_headline(
    tmp_path: Path, guard: list[int], events: list[tuple[int, str, str]], state: str, words: str
) -> None:
    page = adapted(tmp_path, guard, events)
    assert f'<h1 class="verdict {state}">{words}' in page
    assert all(f"<b>Batch {batch}</b>: {said}" in page for batch, _, said in events)
    assert page.count('class="event"') == 2 * len(events), "a line in each chart"


def test_without_a_guard_nothing_is_promised(tmp_path: Path) -> None:
    assert '<h1 class="verdict unknown">Whether adapting did harm is not known.</h1>' in adapted(
        tmp_path, [0, 0], guarded=False
    )


def test_source_is_shown_beside_what_adapts(tmp_path: Path) -> None:
    page = adapted(tmp_path, [0, 0, 0])
    found = data_of(page)["charts"]
    assert [series["label"] for series in found["confidence"]["series"]] == ["Source", "TENT"]
    assert found["confidence"]["series"][0]["values"] == [0.4] * 3
    assert found["disagreement"]["series"] == [{"label": "TENT", "values": [25.0] * 3}]


def test_samples_whose_prediction_changed_are_shown_with_names(tmp_path: Path) -> None:
    adapted(tmp_path, [0, 0])
    folder = RunFolder(tmp_path)
    samples = folder.samples("tent-s0")
    assert samples is not None
    count = len(samples.source)
    folder.write_samples(
        "tent-s0",
        replace(
            samples,
            source=np.zeros(count, np.int64),
            adapted=np.array([3] + [0] * (count - 1)),
            name=np.array([f"<i>{number}.png" for number in range(count)]),
        ),
    )
    page = render(folder)
    section = page[page.index('<section id="changed">') : page.index('<section id="stream">')]
    assert section.count("<img") == 1
    assert "<i>before</i> circle" in section
    assert "<i>after</i> star" in section
    assert "&lt;i&gt;0.png" in section


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


LIGHTNESS = """color => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
    const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}"""


@pytest.fixture(scope="module")
def pages(address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The three kinds of page, by name."""
    unlabelled = tmp_path_factory.mktemp("unlabelled")
    adapted(unlabelled, [0, 2, 0, 0], [(1, "roll-back", "it went back")])
    sweep = SweepFolder(tmp_path_factory.mktemp("sweep"))
    points = {f"b{batch}-{lr}": {"data.batch": batch, "method.lr": lr} for batch in (5, 9) for lr in (0.1, 0.2)}
    sweep.write(Head("mine", {"data.batch": [5, 9], "method.lr": [0.1, 0.2]}, (), points))
    for slug in points:
        small(sweep.point(slug).path)
    return {
        "run": address,
        "unlabelled": RunReport.load(unlabelled).write().as_uri(),
        "sweep": SweepReport.load(sweep).write().as_uri(),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["run", "unlabelled", "sweep"])
def test_every_page_at_both_widths_and_in_both_themes(
    browser: Browser, pages: dict[str, str], kind: str, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(pages[kind])
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ids = tab.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(set(ids)) == len(ids)
    for link in tab.locator("nav a").all():
        assert tab.locator(str(link.get_attribute("href"))).count() == 1
    assert tab.locator("nav a").first.is_visible()
    lightness = f"({LIGHTNESS})(getComputedStyle(document.body).backgroundColor)"
    ground = tab.evaluate(lightness)
    assert (ground > 0.5) == (scheme == "light")
    texts = tab.evaluate(
        f"""[...document.querySelectorAll("h1, h2, p, td, th, svg text")].map(one => {{
            const style = getComputedStyle(one);
            return [one.textContent, ({LIGHTNESS})(one.closest("svg") ? style.fill : style.color)];
        }})"""
    )
    texts += tab.evaluate(
        f"""Array.from({{ length: {1 + max(charts.COLOURS)} }}, (_, number) => {{
            document.body.style.color = `var(--s${{number}})`;
            return [`s${{number}}`, ({LIGHTNESS})(getComputedStyle(document.body).color)];
        }})"""
    )
    pale = [(text, value) for text, value in texts if contrast(value, ground) < 4.5]
    assert pale == []
    tab.click("#theme")
    assert (tab.evaluate(lightness) > 0.5) != (scheme == "light")
    context.close()
    assert complaints == []


def contrast(one: float, other: float) -> float:
    low, high = sorted((one, other))
    return (high + 0.05) / (low + 0.05)


def test_a_sweep_and_its_points_link_to_each_other(opened: Page, pages: dict[str, str]) -> None:
    opened.goto(pages["sweep"])
    opened.get_by_text("The best one").click()
    assert "/points/b" in opened.url
    opened.get_by_text("← sweep").click()
    assert opened.url == pages["sweep"]


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


def ticks(tab: Page, chart: str) -> list[float]:
    return [float(text) for text in tab.locator(f"#{chart} .axes .tick").all_text_contents()]


def test_a_legend_switches_its_series_off_and_on(opened: Page) -> None:
    before = ticks(opened, "running")
    source = opened.locator('.legend[data-for="running"] button').nth(0)
    source.click()
    assert source.get_attribute("aria-pressed") == "false"
    display = "all => all.map(one => getComputedStyle(one).display)"
    assert opened.eval_on_selector_all('#running [data-series="0"]', display) == ["none"] * 3, "line, leader and name"
    assert max(ticks(opened, "running")) < max(before), "the others take the room"
    source.click()
    assert ticks(opened, "running") == before
    assert "none" not in opened.eval_on_selector_all('#running [data-series="0"]', display)


def test_a_chart_zooms_to_a_domain_and_to_what_is_dragged(opened: Page) -> None:
    area = "document.querySelector('#difference .area').getAttribute('viewBox').split(' ').map(Number)"
    whole, all_ticks = opened.evaluate(area), ticks(opened, "difference")
    opened.locator("#figure-difference select").select_option("fog")
    zoomed = opened.evaluate(area)
    assert zoomed[2] == pytest.approx(whole[2] / 15, rel=0.01)
    assert ticks(opened, "difference") != all_ticks
    assert opened.locator("#difference .names text:visible").all_text_contents() == ["fog"]
    opened.locator("#difference").dblclick()
    assert opened.evaluate(area) == pytest.approx(whole)
    assert ticks(opened, "difference") == all_ticks
    box = opened.locator("#difference").bounding_box()
    assert box
    opened.mouse.move(box["x"] + 300, box["y"] + 200)
    opened.mouse.down()
    opened.mouse.move(box["x"] + 500, box["y"] + 210)
    opened.mouse.up()
    assert opened.evaluate(area)[2] < whole[2] / 2
    assert re.match(r"batches \d+ to \d+", opened.locator("#figure-difference select option:checked").inner_text())


def test_tables_sort(opened: Page) -> None:
    def means() -> list[float]:
        return [float(text.split()[0]) for text in opened.locator("table.errors td.mean").all_inner_texts()]

    head = opened.locator("table.errors th.mean button")
    head.click()
    assert means() == sorted(means())
    assert opened.locator("table.errors th.mean").get_attribute("aria-sort") == "ascending"
    head.click()
    assert means() == sorted(means(), reverse=True)
    opened.locator("table.errors thead button").first.click()
    names = opened.locator("table.errors tbody th").all_inner_texts()
    assert names == sorted(names, key=str.casefold)


def downloaded(tab: Page, place: str, words: str) -> tuple[str, str]:
    with tab.expect_download() as found:
        tab.locator(f"{place} .files button", has_text=words).first.click()
    return found.value.suggested_filename, Path(found.value.path()).read_text(encoding="utf-8")


def test_figures_can_be_downloaded(opened: Page, folder: RunFolder) -> None:
    name, svg = downloaded(opened, "#figure-running", "SVG")
    tree = ElementTree.fromstring(svg)
    assert (name, tree.tag) == ("running.svg", "{http://www.w3.org/2000/svg}svg")
    lines = [part for part in tree.iter() if part.tag.endswith("polyline")]
    assert len(lines) == 5 * 2, "each with a leader to its name"
    assert all("stroke:rgb(" in part.attrib["style"] for part in lines), "colours are in the file"
    name, text = downloaded(opened, "#figure-running", "CSV")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert (name, len(lines), lines[-1]["batch"], lines[-1]["domain"]) == (
        "running.csv",
        150,
        "149",
        "jpeg compression",
    )
    values = data_of((folder.path / "report.html").read_text(encoding="utf-8"))["charts"]["running"]["series"]
    assert [float(line["DSS"]) for line in lines] == values[4]["values"]
    name, tex = downloaded(opened, "#figure-errors", "LaTeX")
    assert name == "errors.tex"
    assert "ylabel={error, \\%}" in tex
    assert "xticklabels={{gaussian noise},{shot noise}," in tex
    assert tex.count("\\addplot[only marks, ") == 5
    assert "color={rgb,255:red,0;green,104;blue,168}, mark=*]" in tex, "DSS looks as it does on the page"
    _, text = downloaded(opened, "#figure-errors", "CSV")
    assert text.splitlines()[-1].startswith("mean,")


def test_tables_can_be_downloaded_as_the_files_of_the_run(opened: Page, folder: RunFolder) -> None:
    for place, words, file in (
        ("#error >", "CSV", "table.csv"),
        ("#metrics", "LaTeX", "metrics.tex"),
    ):
        name, text = downloaded(opened, place, words)
        assert (name, text) == (file, (folder.path / file).read_text(encoding="utf-8"))
    assert downloaded(opened, "#cost", "CSV")[1].startswith("method,s/batch,p50 s,p95 s,images/s,")


@pytest.mark.parametrize("width", [390, 1200])
def test_every_section_can_be_reached(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    links = opened.locator("nav a")
    assert links.count() >= 9
    assert links.first.is_visible()
    links.last.click()
    assert opened.evaluate("location.hash") == "#repeat"
    assert opened.evaluate("document.querySelector('.top').getBoundingClientRect().top") == (0 if width == 390 else ANY)


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_nothing_overflows(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    for details in opened.locator("details").all():
        details.evaluate("element => { element.open = true }")
    overflow, room = opened.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert overflow <= room


@pytest.mark.parametrize("width", [390, 1280])
def test_names_of_domains_are_not_cut_off(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    beyond = opened.eval_on_selector_all(
        "svg.chart .names text:last-child",
        """all => all.map(text => {
            const [name, chart] = [text, text.closest("svg")].map(part => part.getBoundingClientRect());
            return name.right - chart.right;
        })""",
    )
    assert len(beyond) == 6
    assert max(beyond) <= 0


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
        "#running text",
        """all => all.map(text => {
            const { a, b } = text.getCTM();
            return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
        })""",
    )
    assert min(heights) >= 10
    names = opened.eval_on_selector_all("#running .names text", "all => all.map(text => text.textContent)")
    assert names == [domain.replace("_", " ") for domain in DOMAINS], "nothing is abridged"


def test_it_is_complete_without_scripts(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    assert tab.locator("svg.chart").count() == 11
    assert tab.locator("#theme").is_hidden()
    context.close()
