"""The README's examples and the docstrings' are executed."""

from __future__ import annotations

import csv
import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch

import ctta
from ctta.cli.app import app

README = Path(__file__).parents[1] / "README.md"
SOURCE = Path(ctta.__path__[0]).parent
EXPLAINED = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_there_are_examples():
    assert EXAMPLES
    assert len(EXAMPLES[0].strip().splitlines()) <= 12


def test_the_site_begins_with_the_same_example():
    assert f"```python\n{EXAMPLES[0]}```" in (README.parent / "docs" / "index.md").read_text()


def test_the_readme_s_examples_run_one_after_the_other():
    scope: dict[str, object] = {}
    torch.manual_seed(0)  # the example's classifier has random weights, which may be unlucky
    for example in EXAMPLES:
        exec(compile(example, str(README), "exec"), scope)
        assert scope.pop("logits").shape == (20, 10)
    assert scope["adapter"].batches == 3
    assert scope["adapter"].verdict == "healthy"


@pytest.mark.parametrize("path", EXPLAINED, ids=lambda path: ".".join(path.parts))
def test_the_docstrings_examples_run(path):
    module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    result = doctest.testmod(module)
    assert (result.failed, result.attempted) == (0, (SOURCE / path).read_text().count(">>> "))


def test_there_are_docstrings_with_examples():
    assert EXPLAINED


def test_the_readme_s_commands_exist():
    verbs = set(re.findall(r"^ctta ([\w-]+)", README.read_text(), re.MULTILINE))
    assert verbs
    assert verbs <= {command.name for command in app.registered_commands}


def test_the_readme_is_short():
    assert len(README.read_text().split()) <= 900


def test_the_readme_s_links_lead_somewhere():
    places = re.findall(r"\]\((?!https:)([^)#\s]+)", README.read_text())
    assert len(places) > 20
    assert [place for place in places if not (README.parent / place).is_file()] == []


def test_the_readme_s_numbers_are_those_of_the_table():
    with (README.parent / "results" / "cifar10_resnet20.csv").open(newline="") as file:
        means = {row["label"]: row["mean"] for row in csv.DictReader(file)}
    titles, errors = re.findall(r"^\| (?:error )?(\|.*)\|$", README.read_text(), re.MULTILINE)
    shown = {
        title.strip(): error.strip(" *") for title, error in zip(titles.split("|"), errors.split("|"), strict=True)
    }
    assert len(shown) > 5
    assert {title: means.get(title) for title in shown if title} == {title: shown[title] for title in shown if title}
