"""Opening an experiment, claiming its folder; what is the same experiment and what is another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ctta import StateError
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.running.opening import claim, open_experiment
from run_folders import execute

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog"], "images": 20, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent"],
}


def claimed(path, spec=SPEC, **options):
    return claim(open_experiment(experiments.make(spec)), RunFolder(path), **options)


def contents(folder):
    """All files with what they hold and when they were written."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.path.rglob("*") if path.is_file()}


def test_a_new_folder_gets_its_head(tmp_path):
    run = claimed(tmp_path, command="ctta run", threads=3)
    head = run.folder.run()
    assert (head.command, head.environment["threads"], head.stream["images"]) == ("ctta run", 3, 20)
    assert [cell.cell for cell in head.cells] == ["source-s0", "tent-s0"]
    assert run.unfinished() == run.cells
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_opening_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = open_experiment(experiments.make(SPEC))
    opened.warm_up()
    assert (opened.classes, len(opened.x)) == (10, 10)
    assert not list(tmp_path.iterdir())


def test_a_question_changes_no_file(tmp_path):
    spec = SPEC | {"model": SPEC["model"] | {"expected_error": 5.0}}
    list(execute(experiments.make(spec), RunFolder(tmp_path)))
    run = claimed(tmp_path, spec)
    mark = run.folder.done("source-s0")
    assert not mark.valid
    run.folder.write_done("source-s0", replace(mark, valid=True, problems=()))  # as an earlier version left it
    before = contents(run.folder)
    assert run.unfinished() == ()
    assert contents(run.folder) == before
    claimed(tmp_path, spec)
    assert run.folder.done("source-s0") == mark, "a claim brings the marks up to date"
    before = contents(run.folder)
    claimed(tmp_path, spec)
    assert contents(run.folder) == before, "and writes nothing if they are"


def test_another_experiment_is_refused(tmp_path):
    claimed(tmp_path)
    with pytest.raises(StateError, match=r"another experiment: data\.images was 20, is 15\. Give another --out"):
        claimed(tmp_path, SPEC | {"data": SPEC["data"] | {"images": 15}})
    with pytest.raises(StateError, match=r"protocol\.kind was 'continual', is 'recurring'"):
        claimed(tmp_path, SPEC | {"protocol": {"kind": "recurring"}})


def test_how_a_run_is_shown_may_change(tmp_path):
    claimed(tmp_path)
    claimed(tmp_path, SPEC | {"baseline": "TENT"})
    assert RunFolder(tmp_path).run().experiment["baseline"] == "TENT"


def test_other_source_data_make_another_experiment(tmp_path):
    def spec(name: str, brightness: int) -> dict:
        images = np.full((12, 32, 32, 3), brightness, np.uint8)
        np.savez(tmp_path / name, images=images, labels=np.arange(12) % 10)
        source = {"dataset": "arrays", "path": str(tmp_path / name)}
        return SPEC | {"methods": ["source", {"method": "eata"}], "source": source}

    claimed(tmp_path / "run", spec("one.npz", 10))
    claimed(tmp_path / "run", spec("copy.npz", 10))  # where the file lies is no matter
    for name in ("one.npz", "two.npz"):
        with pytest.raises(StateError, match=r"another experiment: .*files\.source was '\w+', is '\w+'\. Give another"):
            claimed(tmp_path / "run", spec(name, 20))


def test_domains_of_unlike_size_have_no_common_one(tmp_path):
    data = {"domains": ["gaussian_noise", "fog", "contrast"], "images": 60, "batch": 20}
    run = claimed(tmp_path, SPEC | {"data": data, "protocol": {"kind": "segments", "longest": 2, "shortest": 1}})
    sizes = [len(domain) for domain in run.opened.stream.domains]
    assert sum(sizes) == 180
    assert len(set(sizes)) > 1
    assert run.folder.run().stream["images"] is None
