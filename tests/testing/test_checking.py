"""check_method: what holds, what does not, what is refused; and a sign error is caught."""

from __future__ import annotations

import logging

import pytest
import torch
from typer.testing import CliRunner

import ctta
from ctta.cli.app import app
from ctta.methods import find
from ctta.testing import CHECKS, check_method, checking, easy
from ctta.testing.checking import EASY, not_worse_than_source, results
from own import METHODS


def test_the_easy_problem_is_easy():
    model, generator = easy.source_model(), torch.Generator().manual_seed(9)
    for contrast, most in ((1.0, 0.01), (easy.CONTRAST, 0.03)):
        batches = [easy.draw(generator, contrast) for _ in range(10)]
        with torch.no_grad():
            wrong = sum(int((model(x).argmax(1) != y).sum()) for x, y in batches)
        assert wrong / (10 * easy.BATCH) <= most
    assert len(easy.stream()) == easy.BATCHES
    x, y = easy.stream()[0]
    assert x.shape == (easy.BATCH, 3, 16, 16)
    assert set(y.tolist()) == set(range(5))


def test_the_global_generator_is_left_alone():
    easy.source_model.cache_clear()
    before = torch.get_rng_state()
    easy.source_model()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", ["source", "tent", "bn_adapt", "shot", "dss", "roid"])
def test_methods_that_are_right_pass(name):
    not_worse_than_source(ctta.METHODS[name], {})


def wrong_way(kind):
    class Reversed(kind):
        """Climbs where it should descend."""

        def learn(self, loss, *arguments, **options):
            return super().learn(-loss, *arguments, **options)

    return Reversed


@pytest.mark.parametrize("name", ["tent", "conjugate_pl", "shot", "cotta", "rmt"])
def test_a_sign_error_is_caught(name):
    with pytest.raises(AssertionError, match=r"its error in the second half is \d+\.\d %.*look at its sign"):
        not_worse_than_source(wrong_way(ctta.METHODS[name]), {})


class Forgetful(ctta.TENT):
    """State in a plain attribute."""

    seen = 0

    def adapt(self, x):
        self.seen += 1
        step = super().adapt(x)
        return ctta.Step(step.logits * (1 + self.seen), step.info)


class OnlyBatchNorm(ctta.TENT):
    """Refuses what has no BatchNorm."""

    def build(self):
        if not any(isinstance(part, torch.nn.BatchNorm2d) for part in self.source_model.modules()):
            raise ctta.ModelError("It needs BatchNorm2d.")
        super().build()


class Crashes(ctta.Source):
    """Fails in its own way."""

    def adapt(self, x):
        raise ZeroDivisionError("by zero")


def test_what_does_not_hold_is_named(capsys):
    with pytest.raises(AssertionError, match="Forgetful does not keep the contract") as error:
        check_method(Forgetful, ["image_bn"])
    wrong = str(error.value).splitlines()[1:]
    assert any("After reset() the whole state is as it was made" in line for line in wrong)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(CHECKS) + 1
    assert [line for line in printed if line.startswith("wrong")] == wrong
    assert any(line.startswith("holds   image_bn     Logits are (N, C)") for line in printed)
    assert printed[-1].split()[:3] == ["holds", "easy", "stream"]


def test_a_network_that_is_refused_is_not_wrong(monkeypatch):
    monkeypatch.setattr(checking, "CHECKS", CHECKS[:1])
    found = list(results(OnlyBatchNorm))
    assert {one.network for one in found if one.refused} == {"image_gn", "vit_ln", "pointnet_bn"}
    assert not [one for one in found if one.problem]
    assert [one.network for one in found if not one.refused] == ["image_bn", EASY]
    found = list(results(OnlyBatchNorm, ["vit_ln"]))
    assert [one.problem for one in found if one.network == "all"] == ["the method refuses all of them"]


def test_any_error_is_a_result(monkeypatch):
    monkeypatch.setattr(checking, "CHECKS", CHECKS[:1])
    found = list(results(Crashes, ["image_bn"]))
    assert len(found) == 2
    assert all("ZeroDivisionError: by zero" in one.problem for one in found)


def test_the_caller_is_left_alone(monkeypatch):
    monkeypatch.setattr(checking, "CHECKS", [check for check in CHECKS if check.__name__ == "check_seeding"])
    before, level = torch.get_rng_state(), logging.getLogger("ctta").level
    check_method(ctta.Source, ["image_bn"])
    assert torch.equal(before, torch.get_rng_state())
    assert logging.getLogger("ctta").level == level


def test_traits_that_are_not_true(own_methods):
    class Unsaid(find(f"{own_methods}:Confident")):
        traits = ctta.Traits("nothing", forwards=(1, 1), backwards=(0, 0))

    (check,) = [check for check in CHECKS if check.__name__ == "check_traits"]
    with pytest.raises(AssertionError, match=r"traits.learns is 'nothing', and it has an optimiser"):
        check(ctta.testing.Case(Unsaid, "image_bn"))


def cli(*words):
    return CliRunner().invoke(app, ["check-method", *map(str, words)])


def test_on_the_command_line(own_methods, monkeypatch):
    monkeypatch.setattr(checking, "CHECKS", CHECKS[:2])
    assert "sign = -1" in METHODS
    good, bad = (cli(f"{own_methods}:{name}", "--network", "image_bn") for name in ("Confident", "Unsure"))
    assert (good.exit_code, good.output.splitlines()[-1]) == (0, "All 3 checks hold for Confident.")
    assert (bad.exit_code, bad.output.splitlines()[-1]) == (1, "1 of 3 checks do not hold for Unsure.")
    (wrong,) = [line for line in bad.output.splitlines() if line.startswith("wrong")]
    assert "look at its sign" in wrong
    weak = cli(f"{own_methods}:Unsure", "--network", "image_bn", "--set", "strength=0")
    assert weak.exit_code == 0, "nothing is learned"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("none.py:X",), "The method 'none.py:X' cannot be used"),
        (("tentt",), "Did you mean 'tent'"),
        (("tent", "--network", "image"), "There is no network 'image'. Did you mean"),
        (("tent", "--set", "lrr=1"), "has no field 'lrr'. Did you mean 'lr'?"),
    ],
)
def test_mistakes(words, text):
    made = cli(*words)
    assert made.exit_code == 2
    assert text in " ".join(made.output.split())
