"""The README's examples and the docstrings' are executed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import ctta
from ctta.cli.app import app
from ctta.experiments import experiment as experiments

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_there_are_examples():
    assert EXAMPLES
    assert len(EXAMPLES[0].strip().splitlines()) <= 12


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_readme_s_examples_run(example):
    scope: dict[str, object] = {}
    exec(compile(example, str(README), "exec"), scope)
    assert scope["logits"].shape == (20, 10)
    assert scope["adapter"].batches == 3


def test_the_docstrings_examples_run():
    names = [module.name for module in pkgutil.walk_packages(ctta.__path__, "ctta.")]
    assert len(names) > 15
    tried = 0
    for name in names:
        result = doctest.testmod(importlib.import_module(name))
        assert result.failed == 0, name
        tried += result.attempted
    assert tried > 0


def test_the_readme_s_experiment_is_valid():
    (text,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    made = experiments.make(yaml.safe_load(text))
    assert len(made.cells((1, 3, 32, 32))) == 12


def test_the_readme_s_commands_exist():
    verbs = set(re.findall(r"^ctta (\w+)", README.read_text(), re.MULTILINE))
    assert verbs == {command.name or command.callback.__name__ for command in app.registered_commands}


def test_one_import_is_enough():
    names = (
        "ctta.corruptions.corrupt, ctta.models.load, ctta.views.ImageViews, *(getattr(ctta, n) for n in ctta.__all__)"
    )
    code = f"import ctta; [{names}]"
    subprocess.run([sys.executable, "-c", code], check=True)
