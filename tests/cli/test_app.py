"""The verbs together: help, errors, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from command_line import ctta
from ctta import __version__
from ctta.cli.app import app

VERBS = [command.name for command in app.registered_commands]


def test_every_verb_is_in_the_help():
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert len(VERBS) == len(set(VERBS)) == 11
    assert all(f" {verb} " in shown.output for verb in VERBS)


def test_the_version_and_python_m():
    assert CliRunner().invoke(app, ["--version"]).output == f"ctta {__version__}\n"
    made = subprocess.run([sys.executable, "-m", "ctta", "--version"], capture_output=True, text=True, check=True)
    assert made.stdout == f"ctta {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_an_example(verb):
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0
    assert f"ctta {verb} " in shown.output.partition("Example")[2]


def test_mistakes_are_messages_not_tracebacks(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps({"data": {"sverity": 3}, "methods": ["dsss"]}))
    code, out, err = ctta("run", path)
    assert (code, out) == (2, "")
    assert err.startswith("error ")
    assert "Did you mean 'severity'?" in err
    assert "Did you mean 'dss'?" in err
    assert "Traceback" not in err
