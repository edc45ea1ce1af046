"""A Ray cluster of two nodes, one of which is killed half-way: the tables are those of one process."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctta import ConfigError
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.report.reports import RunReport
from ctta.running import engines
from ctta.running.engines import RayCluster
from ctta.running.run import run
from needs import missing
from run_folders import assert_same_runs

TESTS = Path(__file__).parents[2]
SPEC = {
    "data": {"domains": ["gaussian_noise", "fog"], "images": 200, "batch": 10},
    "model": {"name": None, "factory": "gates:waits"},
    "methods": [{"method": "tent", "lr": 0.01}, {"method": "tent", "name": "more", "lr": 0.1}, "bn_adapt"],
}
MEASURED = ("seconds_per_batch", "images_per_second", "peak_memory_mb")


@pytest.mark.slow
def test_a_killed_node_changes_nothing(tmp_path):
    if importlib.util.find_spec("ray") is None:
        missing("needs ray: pip install 'ctta[test]'")
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    script = TESTS / "killed_node.py"
    finished = subprocess.run(
        [sys.executable, str(script), json.dumps(SPEC), str(tmp_path / "ray")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stderr
    (last,) = [line for line in finished.stdout.splitlines() if line.startswith("{")]  # Ray says things, too
    said = json.loads(last)
    assert said["lost"], "no method run was on the node that was killed"
    assert said["failures"] == []
    local, ray = RunFolder(tmp_path / "local"), RunFolder(tmp_path / "ray")
    for _ in run(experiments.make(SPEC), local.path):
        pass
    assert_same_runs(local, ray)
    assert table(local) == table(ray)
    assert not list(ray.path.rglob("*.safetensors"))


def table(folder: RunFolder) -> list[dict[str, str]]:
    """What its CSV says, times and memory aside."""
    RunReport.load(folder).write()
    rows = csv.DictReader((folder.path / "table.csv").read_text().splitlines())
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def test_without_ray_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'ctta\[ray\]'"):
        next(RayCluster().run([]))


def test_one_module_imports_ray():
    package = Path(engines.__file__).parents[2]
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    assert len(sources) > 90
    found = [path.stem for path, text in sources.items() if 'optional_import("ray"' in text or "import ray\n" in text]
    assert found == ["ray"]
