"""Files and packages that this project has not seen: what a user writes."""

from __future__ import annotations

import sys
import textwrap

import pytest

METHODS = '''
from dataclasses import dataclass

import ctta


@dataclass(frozen=True)
class Settings(ctta.Normalization, ctta.OptimizerSettings):
    """Settings of this method."""

    strength: float = ctta.setting(1.0, "Weight of the loss.", low=0.0)


class Confident(ctta.Adapter):
    """Makes predictions confident."""

    traits = ctta.Traits("norm parameters", forwards=(1, 1), backwards=(1, 1))
    config_type = Settings
    sign = 1

    def build(self):
        self.model = self.copy_source()
        self.train_on(ctta.norm_parameters(self.model))

    def adapt(self, x):
        logits = self.run(self.model, x, grad=True)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        return ctta.Step(logits, {"loss": self.learn(self.sign * self.config.strength * entropy)})


class Unsure(Confident):
    """The same with a sign error."""

    sign = -1


class Plain(ctta.Adapter):
    """Three lines are enough."""

    def adapt(self, x):
        return ctta.Step(self.logits(x))


class Nothing(ctta.Adapter):
    """It lacks adapt."""


def function():
    pass
'''


def write(path, code):
    path.write_text(textwrap.dedent(code))
    return path


def write_package(folder, code, group, **names):
    """Install a package, as pip would leave it, into a folder: a module and the names that it registers in a group."""
    sys.modules.pop("stranger", None)  # that of another test
    write(folder / "stranger.py", code)
    about = folder / "stranger-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    lines = [f"{name} = stranger:{target}" for name, target in names.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))


@pytest.fixture
def own_methods(tmp_path):
    return write(tmp_path / "my_file.py", METHODS)
