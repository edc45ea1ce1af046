"""MLflow has what the records hold, once."""

from __future__ import annotations

import pytest

from ctta.report.trackers.tracking import FILES, Tracking
from tracked import interrupted, must_equal, needed, track


@pytest.fixture(scope="module")
def mlflow_store(tmp_path_factory):
    """One for all tests: MLflow takes seconds to make its tables."""
    needed("mlflow", "sqlalchemy", "alembic")
    return tmp_path_factory.mktemp("store")


def test_mlflow_has_the_records(tmp_path, mlflow_store):
    folder, complete = interrupted(tmp_path / "run")
    to = f"mlflow={mlflow_store}"
    track(folder, to)
    client = Tracking(folder, to, print).trackers["mlflow"].client
    home = client.get_experiment_by_name("demo").experiment_id

    def runs():
        return {run.info.run_name: run for run in client.search_runs([home])}

    assert (runs()["dss-s0"].info.status, runs()["source-s0"].info.status) == ("KILLED", "FINISHED")
    complete()
    for name in FILES:
        (folder.path / name).write_text(name)
    track(folder, to)
    track(folder, to)
    assert set(runs()) == {"demo", "dss-s0", "source-s0"}
    for cell in ("dss-s0", "source-s0"):
        run = runs()[cell]
        history = [m for name in run.data.metrics for m in client.get_metric_history(run.info.run_id, name)]
        must_equal([(m.key, m.step, m.value) for m in history], folder, cell)
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == runs()["demo"].info.run_id
    told = runs()["dss-s0"].data.params
    assert (told["label"], told["seed"], told["config.lr"]) == ("DSS", "0", "0.001")
    kept = {item.path for item in client.list_artifacts(runs()["demo"].info.run_id)}
    assert kept == set(FILES)
    assert {path.name for path in mlflow_store.iterdir()} == {"mlflow.db", "mlartifacts"}
