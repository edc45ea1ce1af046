"""What trackers must have of a run folder."""

from __future__ import annotations

import json

import pytest

from ctta.report.trackers import Tracking
from fake_run import write_fake_run

SMALL = {"methods": ("source", "dss"), "domains": ("fog", "snow"), "batches": 3, "size": 20}


def needed(*modules):
    for module in modules:
        extra = "mlflow" if module in ("sqlalchemy", "alembic") else module
        pytest.importorskip(module, reason=f"{module} is an extra: pip install 'ctta[{extra}]'", exc_type=ImportError)


def track(folder, to):
    """As the command does, but what fails is an error."""
    failures = []
    Tracking(folder, to, failures.append).finish()
    assert not failures


def expected(folder, cell):
    """All (metric, step, value) of a method run, computed from its files in another way than the trackers do."""
    lines = [json.loads(line) for line in folder.records_path(cell).read_text().splitlines()]
    for at, line in enumerate(lines):
        sofar = lines[: at + 1]
        values = {name: value for name, value in line["info"].items() if name != "selected"}
        values["error"] = line["wrong"] / line["n"] * 100
        values["running_error"] = sum(x["wrong"] for x in sofar) / sum(x["n"] for x in sofar) * 100
        values["seconds"] = line["seconds"]
        if line["selected"] is not None:
            values["selected"] = line["selected"] / line["n"] * 100
        yield from ((f"batch/{name}", line["step"], value) for name, value in values.items())
    done = json.loads((folder.path / f"{cell}.done.json").read_text())
    for domain in {line["domain"] for line in lines}:
        of = [line for line in lines if line["domain"] == domain]
        yield f"domain/{domain}", len(lines), sum(x["wrong"] for x in of) / sum(x["n"] for x in of) * 100
    yield "final/error", len(lines), done["wrong"] / done["n"] * 100
    yield "final/seconds", len(lines), done["seconds"]
    yield "final/peak_memory", len(lines), done["peak_memory"]
    yield "final/valid", len(lines), 1.0


def must_equal(found, folder, cell):
    """Each value once, at its step."""
    wanted = sorted(expected(folder, cell))
    assert [(name, step) for name, step, _ in sorted(found)] == [(name, step) for name, step, _ in wanted]
    assert [value for *_, value in sorted(found)] == pytest.approx([value for *_, value in wanted], rel=1e-6)


def interrupted(path):
    """A run with one method cut short, and the same run when it is complete."""
    return write_fake_run(path, **SMALL, stop_after={"dss": 4}), lambda: write_fake_run(path, **SMALL)


def tensorboard_values(path):
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    found = EventAccumulator(str(path), size_guidance={SCALARS: 0}).Reload()
    return [(tag, point.step, point.value) for tag in found.Tags()["scalars"] for point in found.Scalars(tag)]
