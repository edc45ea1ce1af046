"""Methods of one's own: by file, by module, by an installed package; in experiments, tables, lists and `ctta adapt`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import ctta
import own
from ctta.cli.app import app
from ctta.data.stream import to_tensor
from ctta.experiments import experiment as experiments
from ctta.methods import find
from ctta.models import embedded_model
from ctta.records.run_folder import RunFolder
from ctta.running.engines import Processes
from ctta.running.run import run
from ctta.testing.networks import make_batch, make_network

DATA = {"domains": ["fog"], "images": 40, "batch": 20}


def cli(*words):
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def made(methods, **sections):
    return experiments.make({"data": DATA, "methods": methods, **sections})


def test_by_file(own_methods):
    kind = find(f"{own_methods}:Confident")
    assert (kind.name, kind.title) == ("confident", "Confident")
    assert find(f"{own_methods}:Confident") is kind
    adapter = ctta.create(f"{own_methods}:Confident", make_network("image_bn"), strength=0.5)
    assert adapter.config.strength == 0.5
    assert adapter.step(make_batch("image_bn", 8, 0)).info["loss"] > 0


def test_three_lines_are_a_method(own_methods):
    x = make_batch("image_bn", 8, 0)
    adapter = ctta.create(f"{own_methods}:Plain", make_network("image_bn"))
    assert adapter(x).equal(adapter.source(x))
    assert adapter.preset == "cifar10"  # without a choice of statistics there is no variant "auto"


def test_a_variant_of_a_method_is_another_method(own_methods):
    unsure = ctta.create(f"{own_methods}:Unsure", make_network("image_bn"))
    confident = ctta.create(f"{own_methods}:Confident", make_network("image_bn"))
    with pytest.raises(ctta.StateError, match="saved by method 'confident'; it cannot go on in 'unsure'"):
        unsure.load_state_dict(confident.state_dict())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Nothing", "it is <class"),
        ("function", "it is <function"),
        ("Missing", "AttributeError"),
        ("ctta", "it is <module"),
    ],
)
def test_what_is_no_method(own_methods, name, why):
    with pytest.raises(ctta.ConfigError, match=r"a class derived from ctta.Adapter that defines adapt") as error:
        find(f"{own_methods}:{name}")
    assert why in str(error.value)


def test_mistakes_in_an_experiment_are_all_reported(own_methods):
    methods = [{"method": f"{own_methods}:Confident", "strenght": 1}, f"{own_methods}:Nothing", "tentt"]
    with pytest.raises(ctta.ConfigError) as error:
        made(methods)
    lines = str(error.value).splitlines()
    assert "Settings has no field 'strenght'. Did you mean 'strength'?" in lines[0]
    assert "Nothing' cannot be used" in lines[1]
    assert "There is no method 'tentt'. Did you mean 'tent'?" in lines[2]


def test_an_experiment_and_its_folder(own_methods, tmp_path):
    path = tmp_path / "spec.yaml"
    methods = ["source", f"{own_methods}:Confident", {"method": f"{own_methods}:Confident", "name": "Half"}]
    path.write_text(json.dumps({"data": DATA, "methods": methods}))
    words = ("run", path, "--out", tmp_path / "out", "--quiet", "--set", "method.strength=0.5")
    said = cli(*words)
    assert said.exit_code == 0
    assert [word in said.output for word in ("Confident", "Half")] == [True, True]
    head = RunFolder(tmp_path / "out").run()
    assert [cell.method for cell in head.cells[1:]] == [f"{own_methods}:Confident"] * 2
    assert [cell.config.get("strength") for cell in head.cells] == [None, 0.5, 0.5]
    assert head.cells[1].traits["learns"] == "norm parameters"
    assert "Confident" in (tmp_path / "out" / "report.html").read_text()
    assert cli(*words).exit_code == 0
    own.write(own_methods, own.METHODS.replace("sign = 1", "sign = 2"))
    changed = cli(*words)
    assert changed.exit_code == 2
    assert "holds another experiment: files.method" in changed.output


def test_the_same_as_the_method_it_repeats(own_methods, tmp_path):
    both = made(["tent", f"{own_methods}:Confident"])
    *_, _ = run(both, tmp_path / "out")
    folder = RunFolder(tmp_path / "out")
    tent, confident = ([record.wrong for record in folder.records(cell)] for cell in ("tent-s0", "confident-s0"))
    assert tent == confident


def test_in_a_worker_process(own_methods, tmp_path):
    spec = made([f"{own_methods}:Confident"])
    for place, engine in (("one", None), ("other", Processes(workers=1))):
        *_, status = run(spec, tmp_path / place, engine)
        assert not status.failures
    one, other = (RunFolder(tmp_path / place).records("confident-s0") for place in ("one", "other"))
    assert [a.same(b) for a, b in zip(one, other, strict=True)] == [True, True]


def test_of_an_installed_package(tmp_path, monkeypatch):
    own.write_package(tmp_path, own.METHODS, "ctta.methods", confident="Confident", broken="Missing", tent="Unsure")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert find("confident").__name__ == "Confident"
    assert find("tent") is ctta.TENT  # a method of ctta keeps its name
    assert made(["confident"]).methods[0].name == "Confident"
    lines = {line.split()[0]: line for line in cli("list", "methods").output.splitlines() if line.strip()}
    assert "Makes predictions confident." in lines["confident"]
    assert "cannot be used (AttributeError" in lines["broken"]
    assert "Makes the model confident" in lines["tent"]
    assert "Weight of the loss." in cli("list", "methods", "confident").output
    with pytest.raises(ctta.ConfigError, match="Did you mean 'confident'"):
        find("confidant")


def test_its_settings_are_listed(own_methods, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = cli("list", "methods", f"{own_methods}:Confident").output
    assert "Weight of the loss." in said
    assert "auto: statistics auto" in said


def test_ctta_adapt_takes_one(own_methods, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    out, method = tmp_path / "out.csv", f"{own_methods}:Confident"
    said = cli("adapt", "embedded", tmp_path / "images.npz", "-o", out, "--method", method, "--quiet")
    assert said.exit_code == 0, said.output
    predicted = [int(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
    assert predicted == ctta.create(method, embedded_model())(to_tensor(images)).argmax(1).tolist()
