"""The examples of the documentation and its notebooks are executed; its commands and its experiments exist."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from ctta.cli.app import app
from ctta.experiments import experiment as experiments

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r'^```python(?: title="([^"\n]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
CODE = re.compile(r"\[`([\w.]+)`\]\(\.\./src/([\w/]+)\.py\)")
PAGES = [page for page in sorted(DOCS.glob("*.md")) if BLOCK.search(page.read_text())]
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
OPTIONAL = ("timm", "transformers")


def test_there_are_pages_and_notebooks():
    assert len(PAGES) >= 8
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    left_out = set()
    for file, code in BLOCK.findall(page.read_text()):
        if file:
            Path(file).write_text(code)
        absent = {name for name in re.findall(r"^import (\w+)", code, re.MULTILINE) if name in OPTIONAL} - _installed()
        left_out |= absent
        if not absent:
            exec(compile(code, str(page), "exec"), scope)
    if left_out:
        pytest.skip(f"All examples ran but those of {', '.join(sorted(left_out))}, which is not installed.")


def _installed() -> set[str]:
    return {name for name in OPTIONAL if importlib.util.find_spec(name)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), scope)


def test_the_experiments_of_the_pages_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = 0
    for page in DOCS.glob("*.md"):
        for file, code in BLOCK.findall(page.read_text()):
            if file:
                Path(file).write_text(code)
        for text in YAML.findall(page.read_text()):
            experiments.make({key: value for key, value in yaml.safe_load(text).items() if key not in SWEEP})
            found += 1
    assert found >= 3


SWEEP = ("grid", "average_over")


def test_links_lead_somewhere_in_the_repository_too():
    places = [(page.name, link) for page in DOCS.glob("*.md") for link in LINK.findall(page.read_text())]
    assert len(places) > 50
    assert [place for place in places if not (DOCS / place[1]).exists()] == []


def test_links_to_code_lead_to_what_they_name():
    links = [link for page in DOCS.glob("*.md") for link in CODE.findall(page.read_text())]
    assert len(links) > 10
    for name, place in links:
        module = importlib.import_module(place.replace("/", "."))
        if name != module.__name__:
            assert attrgetter(name)(module).__module__ == module.__name__, f"{name} is not defined in {place}.py"


def test_every_command_is_on_the_page_of_commands():
    verbs = set(re.findall(r"^ctta ([\w-]+)", (DOCS / "commands.md").read_text(), re.MULTILINE))
    assert verbs == {command.name for command in app.registered_commands}
