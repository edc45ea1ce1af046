"""Three steps before a method run: open the experiment, claim its run folder, warm up."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import StateError
from ctta.base.own_code import source_hash
from ctta.base.text import quoted
from ctta.core.device import synchronize, upload, where
from ctta.data.datasets import find as find_data
from ctta.data.datasets import open_stream
from ctta.data.protocols import PLAIN
from ctta.data.stream import Stream
from ctta.experiments.experiment import Experiment
from ctta.experiments.seeds import DEFAULT
from ctta.experiments.source_check import SourceError, beyond, expected, measure, scorable
from ctta.methods import METHODS, find
from ctta.methods.source import Source
from ctta.models import weights_hash
from ctta.records.run_folder import Cell, Run, RunFolder, problems_of
from ctta.running.environment import environment

TRIED = 2  # samples that go through the model to see how many classes it has


@dataclass(frozen=True)
class OpenExperiment:
    """An experiment whose stream and model are open."""

    experiment: Experiment
    stream: Stream
    model: nn.Module
    x: Tensor  # the first batch
    classes: int  # of the model
    _streams: dict[int, Stream] = field(default_factory=dict)  # the last that was opened for a seed
    _batches: dict[int, int] = field(default_factory=dict)  # by seed

    def stream_of(self, cell: Cell) -> Stream:
        """The stream of a method run: a seed may decide on its order and its samples."""
        if self.experiment.vary == DEFAULT:
            return self.stream
        if cell.seed not in self._streams:
            self._streams.clear()
            self._streams[cell.seed] = self.experiment.stream(cell.seed)
        return self._streams[cell.seed]

    def batches(self, cell: Cell) -> int:
        """The number of batches of a method run."""
        if cell.seed not in self._batches:
            self._batches[cell.seed] = len(self.stream_of(cell))
        return self._batches[cell.seed]

    def warm_up(self) -> None:
        """Load libraries and start threads before the first batch is timed."""
        device = where(self.model)
        with torch.no_grad():
            self.model(upload(self.x, device))
        synchronize(device)

    def files(self) -> dict[str, str]:
        """What the files hold that decide the numbers, as hashes: data, weights, source data, own methods."""
        data, source = self.experiment.data, self.experiment.source
        held = {"data": self.stream.fingerprint or str(data.path), "weights": weights_hash(self.model)}
        own = [method.method for method in self.experiment.methods if method.method not in METHODS]
        held |= {f"method {name}": source_hash(find(name)) for name in own}
        return held if source is None else held | {"source": open_stream(source).fingerprint or str(source.path)}

    def problems(self, head: Run) -> tuple[str, ...]:
        """Why the numbers of this run are not to be trusted."""
        model, stored = self.experiment.model, head.stream.get("source_check")
        wanted = expected(model, self.experiment.data, self.stream, self.x.shape[-1])
        off = wanted.off(SourceError(**stored), model.tolerance) if wanted and stored else ""
        return tuple(problem for problem in (beyond(self.stream, self.classes), off) if problem)


@dataclass(frozen=True)
class ClaimedRun:
    """An open experiment with its run folder."""

    opened: OpenExperiment
    folder: RunFolder
    cells: tuple[Cell, ...]
    problems: tuple[str, ...]  # why the numbers are not to be trusted

    def unfinished(self) -> tuple[Cell, ...]:
        """The method runs that are not complete; a mark that does not fit its records counts for nothing."""
        return tuple(cell for cell in self.cells if not self.complete(cell))

    def complete(self, cell: Cell) -> bool:
        return self.folder.done_path(cell.cell).exists() and not self.misfit(cell)

    def misfit(self, cell: Cell) -> str:
        """Why the mark of a method run counts for nothing; empty if it fits."""
        try:
            done = self.folder.complete(cell.cell)
        except StateError as error:
            return str(error)
        if done is not None and done.batches != (batches := self.opened.batches(cell)):
            path = self.folder.records_path(cell.cell)
            return f"{path} has {done.batches} records, and the stream has {batches} batches."
        return ""


def open_experiment(experiment: Experiment) -> OpenExperiment:
    """Open stream and model, and see that they fit each other."""
    stream = experiment.stream(experiment.seeds[0])
    model = experiment.model.load().to(experiment.execution.device)
    x = next(iter(stream)).x
    classes = Source(model)(upload(x[:TRIED], where(model))).shape[-1]
    scorable(stream, classes)
    return OpenExperiment(experiment, stream, model, x, classes)


def claim(opened: OpenExperiment, folder: RunFolder, command: str = "", threads: int | None = None) -> ClaimedRun:
    """Write the head of a new run folder, or bring it up to date; one that holds another experiment is refused."""
    experiment, cells, files = opened.experiment, opened.experiment.cells(opened.x.shape), opened.files()
    if folder.begun():
        head = folder.run()
        if head.identity != experiment.identity(files):
            before = {**head.experiment, "files": head.stream.get("files")}
            difference = _difference(before, {**asdict(experiment), "files": files})
            raise StateError(
                f"{folder.path} holds another experiment: {difference}. Give another --out, or remove the folder."
            )
        shown = {"paper": experiment.paper, "baseline": experiment.baseline}  # decide no record, so they may change
        if any(head.experiment.get(key) != value for key, value in shown.items()):
            head = replace(head, experiment={**head.experiment, **shown})
            folder.write_run(head)
    else:
        head = _new(opened, files, cells, command, threads)
        folder.write_run(head)
    claimed = ClaimedRun(opened, folder, cells, opened.problems(head))
    for cell in filter(claimed.complete, cells):
        done, problems = folder.done(cell.cell), (*claimed.problems, *problems_of(folder.records(cell.cell)))
        if done is not None and done.problems != problems:  # other errors are expected now
            folder.write_done(cell.cell, replace(done, valid=not problems, problems=problems))
    return claimed


def _new(
    opened: OpenExperiment, files: dict[str, str], cells: tuple[Cell, ...], command: str, threads: int | None
) -> Run:
    experiment, stream = opened.experiment, opened.stream
    data, dataset = experiment.data, find_data(experiment.data)
    source = measure(data, stream if experiment.protocol == PLAIN else open_stream(data), opened.model)
    sizes = {len(domain) for domain in stream.domains}
    about = {
        "dataset": dataset.named(data),
        "domains": [[domain.name, domain.severity] for domain in stream.domains],
        "images": sizes.pop() if len(sizes) == 1 else None,
        "samples": dataset.samples,
        "batch": data.batch,
        "boundaries": data.boundaries,
        "protocol": experiment.protocol.asdict(),
        "classes": list(stream.classes),
        "files": files,
        "source_check": None if source is None else asdict(source),
    }
    notes = (*experiment.notes, *stream.notes)
    identity, made_with = experiment.identity(files), environment(experiment.execution, threads)
    return Run(experiment.name, identity, asdict(experiment), about, cells, made_with, command, notes)


def _difference(old: Any, new: Any, path: str = "") -> str:
    """Where two experiments differ, in words."""
    old, new = json.loads(json.dumps(old)), json.loads(json.dumps(new))
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        return ", ".join(_difference(old.get(key), new.get(key), f"{path}.{key}" if path else key) for key in changed)
    return f"{path} was {quoted(old)}, is {quoted(new)}"
