"""An experiment: data, protocol, model, source data, methods and seeds, as typed and frozen settings from strict YAML.

Unknown keys, wrong types and bad ranges are all reported together. The hash of the resolved experiment is the identity
of a run: finished work is skipped, a killed run resumes, and a changed experiment cannot be resumed by mistake.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ctta.base.config import section
from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import hashed, safe_name, short_name
from ctta.base.limits import METHODS as MOST_METHODS
from ctta.base.limits import NAME_BYTES, NOTE_LETTERS, NOTES, SEEDS, WHOLE_NUMBER
from ctta.base.text import one_line, quoted
from ctta.core.execution import FAST, Execution
from ctta.core.settings import ASSUMED_SHAPE, PAPER
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import known as known_data
from ctta.data.datasets import problems as data_problems
from ctta.data.protocols import KINDS, PLAIN, Protocol
from ctta.data.stream import Stream
from ctta.experiments.clean_probe import Measure
from ctta.experiments.sections import default_methods, read_yaml
from ctta.experiments.seeds import DEFAULT, SAMPLES, VARIED, seeded_stream, vary_problems
from ctta.experiments.source_model import Model
from ctta.methods import find
from ctta.paper import TABLES
from ctta.records.run_folder import Cell

RENAMED = {"over": "It is now called 'average_over'."}
# What does not decide the numbers: how they are shown, where files are, and what is expected of the source model.
SHOWN = ("name", "notes", "paper", "baseline")
PLACES = ("path", "folders", "list", "cache")
NOT_DECISIVE = {"data": PLACES, "source": PLACES, "model": ("weights", "expected_error", "tolerance")}


@dataclass(frozen=True)
class Method:
    """One row of the table: a method, the row's name, its preset, the fields that differ, and if it is guarded."""

    method: str
    name: str
    preset: str | None
    fields: Mapping[str, Any]
    guard: bool = False

    def cell(self, shape: Sequence[int], seed: int) -> Cell:
        """Resolve the settings for batches of this shape."""
        kind = find(self.method)
        preset = kind.preset_name(self.preset or PAPER, shape)
        config = kind.config_type.make({**kind.preset_fields(preset), **self.fields}).asdict()
        cell, traits = f"{_slug(self.name)}-s{seed}", {**asdict(kind.traits), "source": kind.source_for(config)}
        return Cell(cell, self.method, self.name, seed, preset, config, traits, self.guard)


@dataclass(frozen=True)
class Experiment:
    """Data and their arrangement, model, methods and seeds."""

    name: str
    data: Data
    model: Model
    methods: tuple[Method, ...]
    seeds: tuple[int, ...] = (0,)
    notes: tuple[str, ...] = ()
    source: Data | None = None  # clean source data, for methods that need them
    execution: Execution = FAST
    protocol: Protocol = PLAIN
    paper: str | None = None  # the table of the paper to compare with
    measure: Measure = field(default_factory=Measure)
    baseline: str | None = None  # the name of the row to compare with; None: Source, if there is one
    vary: tuple[str, ...] = DEFAULT  # what a seed moves, see `ctta.experiments.seeds`

    def identity(self, files: Mapping[str, str] | None = None) -> str:
        """Return a hash of all that decides the numbers; `files` are hashes of the files' contents."""
        decisive = {key: value for key, value in asdict(self).items() if key not in SHOWN}
        if self.protocol == PLAIN:  # the same stream, whether the section is given or not
            del decisive["protocol"]
        if self.measure == Measure():
            del decisive["measure"]
        kind = (self.execution.device or "cpu").partition(":")[0]  # which one of its kind decides nothing
        decisive["execution"] = {**decisive["execution"], "device": kind}
        if kind == "cpu":  # as in folders of earlier versions
            del decisive["execution"]["device"]
        if self.vary == DEFAULT:
            del decisive["vary"]
        for method in decisive["methods"]:
            if not method["guard"]:  # as in folders of earlier versions
                del method["guard"]
        for part, names in NOT_DECISIVE.items():
            for name in names:
                (decisive[part] or {}).pop(name, None)
        return hashed(json.dumps({**decisive, "files": dict(files or {})}, sort_keys=True))

    def stream(self, seed: int) -> Stream:
        """Open the stream that a seed meets."""
        return seeded_stream(self.data, self.protocol, self.vary, seed)

    def cells(self, shape: Sequence[int]) -> tuple[Cell, ...]:
        """List every method with every seed, with its settings resolved for batches of this shape."""
        return tuple(method.cell(shape, seed) for method in self.methods for seed in self.seeds)


@dataclass(frozen=True)
class Draft:
    """An experiment and what is wrong with it. A section that is not valid has its default."""

    experiment: Experiment
    problems: tuple[str, ...]
    data_valid: bool
    model_valid: bool


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read a YAML file; an override reads `data.images=500`."""
    return make(read_yaml(path, overrides), name=path.stem)


def make(values: Mapping[str, Any], name: str = "experiment") -> Experiment:
    """Check plain data; all mistakes are reported together."""
    read = draft(values, name)
    if read.problems:
        raise ConfigError("\n".join(read.problems))
    return read.experiment


def draft(values: Mapping[str, Any], name: str = "experiment") -> Draft:
    """Check plain data section by section, so that a mistake in one section does not hide another."""
    problems = _unknown_sections(values)
    data = section(Data, "data", values.get("data", {}), problems)
    protocol = _protocol(values["protocol"], data, problems) if "protocol" in values else PLAIN
    model = section(Model, "model", values.get("model", {}), problems)
    if data is not None and (found := data_problems(data)):
        problems += [f"data: {problem}" for problem in found]
        data = None
    if model is not None and (found := model.problems()):
        problems += [f"model: {problem}" for problem in found]
        model = None
    if "data" in values and data is not None and model is not None:  # without the section, they may be yet to come
        dataset = known_data(data)
        misfit = model.misfit(dataset.samples) if dataset else ""
        problems += [f"model: {misfit}"] if misfit else []
    execution = _execution(values.get("execution", {}), problems)
    pool = data.replace(images=None) if data and _lists(values.get("vary"), SAMPLES) else data  # any may be drawn
    source = _source(values["source"], pool, problems) if "source" in values else None
    methods = _methods(values.get("methods", default_methods(values)), problems)
    if "source" not in values:
        problems += [_without_source(method) for method in methods if _needs_source(method)]
    seeds = values.get("seeds", [0])
    if problem := _seed_problem(seeds):
        problems.append(problem)
        seeds = [0]
    vary = values.get("vary", list(DEFAULT))
    if found := vary_problems(vary, data):
        problems += found
        vary = DEFAULT
    notes = values.get("notes", [])
    if not isinstance(notes, list) or len(notes) > NOTES or not all(_is_note(note) for note in notes):
        limits = f"at most {NOTES} texts of at most {NOTE_LETTERS:,} letters"
        problems.append(f"notes must be a list of {limits}. Got {quoted(notes)}.")
        notes = []
    if "name" in values:
        problems += [f"name: {problem}" for problem in name_problems(values["name"], folder=True)]
    paper = values.get("paper")
    if paper is not None and paper not in tuple(TABLES):
        problems.append(f"paper: There is no table {quoted(paper)}. {nearest(paper, TABLES)}")
    measure = section(Measure, "measure", values.get("measure", {}), problems) or Measure()
    problems += [f"measure: {problem}" for problem in measure.problems(data)] if data is not None else []
    baseline, rows = values.get("baseline"), [method.name for method in methods]
    if baseline is not None and baseline not in rows:
        hint = nearest(baseline, rows)
        problems.append(f"baseline must be the name of a row; there is no row {quoted(baseline)}. {hint}")
    made = Experiment(
        name=str(values.get("name", name)),
        data=data or Data(),
        model=model or Model(),
        methods=methods,
        seeds=tuple(seeds),
        notes=tuple(notes),
        source=source,
        execution=execution,
        protocol=protocol,
        paper=paper,
        measure=measure,
        baseline=baseline,
        vary=tuple(one for one in VARIED if one in vary),
    )
    return Draft(made, tuple(problems), data is not None, model is not None)


def name_problems(name: Any, *, folder: bool = False) -> list[str]:
    """List what is wrong with the name of a row or of an experiment; a folder is called after the latter."""
    if not isinstance(name, str) or one_line(name) != name or len(name.encode()) > NAME_BYTES:
        return [f"A name is a text on one line, at most {NAME_BYTES} bytes long. Got {quoted(name)}."]
    if not _slug(name):
        return [f"The name {quoted(name)} needs a letter or a digit."]
    try:
        safe_name(name if folder else f"{_slug(name)}-s0")
    except ConfigError as error:
        return [str(error)]
    return []


def _seed_problem(seeds: Any) -> str:
    """Report what is wrong with the seeds; empty if nothing is."""
    valid = isinstance(seeds, list) and all(type(seed) is int and 0 <= seed <= WHOLE_NUMBER for seed in seeds)
    if not valid or not 1 <= len(seeds) <= SEEDS:
        wanted = f"a list of 1 to {SEEDS:,} whole numbers, each at least 0"
        return f"seeds must be {wanted}. Got {quoted(seeds)}."
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    return "" if twice is None else f"seeds: {twice} is given more than once. Each seed counts once."


def _is_note(note: Any) -> bool:
    return isinstance(note, str) and len(note) <= NOTE_LETTERS


def _unknown_sections(values: Mapping[str, Any]) -> list[str]:
    known = [*(part.name for part in fields(Experiment)), "grid", "average_over"]
    problems = [
        f"There is no section {quoted(key)}. {RENAMED.get(key) or nearest(key, known)}"
        for key in values
        if key not in known
    ]
    if "grid" in values:
        problems.append("grid: this is a sweep of experiments, not one. ctta.experiments.sweep reads it.")
    elif "average_over" in values:
        problems.append("average_over: it names axes of a grid, and there is no grid. Add one, or leave it out.")
    return problems


def _protocol(values: Any, data: Data | None, problems: list[str]) -> Protocol:
    """Check the protocol; its kind decides which fields there are."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        missing = (
            f"protocol must be a mapping with a kind and its fields: protocol: {{kind: gradual}}. Got {quoted(values)}."
        )
        unknown = f"protocol: There is no kind {quoted(kind)}. {nearest(kind, KINDS)}"
        problems.append(missing if kind is None else unknown)
        return PLAIN
    protocol: Protocol = section(KINDS[kind], "protocol", values, problems) or PLAIN
    dataset = known_data(data) if data is not None else None
    found = protocol.problems(dataset, data) if dataset and data else []
    problems += [f"protocol: {problem}" for problem in found]
    return PLAIN if found else protocol


def _execution(values: Any, problems: list[str]) -> Execution:
    """Check how networks are run; the device is there, and the precision is what `auto` means on it."""
    values = {**FAST.asdict(), **values} if isinstance(values, Mapping) else values
    try:
        return (section(Execution, "execution", values, problems) or FAST).resolved()
    except ConfigError as error:
        problems.append(f"execution: {error}")
        return FAST


def _source(values: Any, data: Data | None, problems: list[str]) -> Data | None:
    """Check the source data: clean, in batches as large as the stream's, and no sample of the stream among them."""
    if isinstance(values, Mapping) and data is not None:
        values = {"batch": data.batch, **values}
    source: Data | None = section(Data, "source", values, problems)
    if source is None:
        return None
    problems += [
        f"source: source data are clean; leave {quoted(name)} out."
        for name in ("domains", "severity")
        if name in values
    ]
    if (dataset := known_data(source)) is None or dataset.holds != "natural":  # of a natural set, all of it is taken
        source = source.replace(domains=CLEAN, severity=0)
    problems += [f"source: {problem}" for problem in data_problems(source)]
    if data is not None and _same_place(source, data):
        ends = [math.inf if part.images is None else part.first + part.images for part in (source, data)]
        if source.first < ends[1] and data.first < ends[0]:
            problems.append(
                "source: some of these samples are in the stream too, which would show test data to the methods. Use "
                "other data, or separate them with 'first' and 'images' in both sections."
            )
    return source


def _lists(value: Any, name: str) -> bool:
    return isinstance(value, list) and name in value


def _same_place(source: Data, data: Data) -> bool:
    if source.folders and data.folders:
        return not set(source.folders.values()).isdisjoint(data.folders.values())
    return (source.dataset, source.path) == (data.dataset, data.path)


def _needs_source(method: Method) -> bool:
    return find(method.method).source_for(method.fields) != "none"


def _without_source(method: Method) -> str:
    return (
        f"methods: {quoted(method.method)} needs source data and there are none. Add a section, for example "
        "source: {dataset: arrays, path: train.npz, images: 2000}, or leave the method out. The embedded data are only "
        "test data; a part that is not in the stream can be used: source: {dataset: embedded, first: 8000}."
    )


def _methods(entries: Any, problems: list[str]) -> tuple[Method, ...]:
    if not isinstance(entries, list) or not entries:
        problems.append(f"methods must be a list of names or mappings, at least one. Got {quoted(entries)}.")
        return ()
    if len(entries) > MOST_METHODS:
        problems.append(f"methods: there are {len(entries):,} rows; {MOST_METHODS:,} is the limit.")
        return ()
    made = [one for entry in entries if (one := _method(entry, problems)) is not None]
    slugs = [_slug(method.name) for method in made]  # files are named after them, so they must differ
    for name in sorted({method.name for method, slug in zip(made, slugs, strict=True) if slugs.count(slug) > 1}):
        problems.append(f"methods: two rows are called {quoted(name)}, or nearly so. Give each its own name.")
    return tuple(made)


def _method(entry: Any, problems: list[str]) -> Method | None:
    entry = {"method": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, Mapping) or not isinstance(entry.get("method"), str):
        problems.append(f"methods: an entry is a name, or a mapping with 'method' and fields. Got {quoted(entry)}.")
        return None
    method, preset, guard = entry["method"], entry.get("preset"), entry.get("guard", False)
    try:
        kind = find(method)
    except ConfigError as error:
        problems.append(f"methods: {error}")
        return None
    values = {key: value for key, value in entry.items() if key not in ("method", "name", "label", "preset", "guard")}
    found = ["'label' is now called 'name'."] if "label" in entry else name_problems(entry.get("name", kind.title))
    if preset is not None and not isinstance(preset, str):
        found.append(f"preset must be a text, the name of a preset. Got {quoted(preset)}.")
    else:
        try:
            kind.preset_fields(kind.preset_name(preset or PAPER, ASSUMED_SHAPE))
        except ConfigError as error:
            found.append(str(error))
    if not isinstance(guard, bool):
        found.append(f"guard must be true or false. Got {quoted(guard)}.")
    try:
        kind.config_type.make(values)
    except ConfigError as error:
        found += str(error).splitlines()
    problems += [f"methods: {problem}" for problem in found]
    return None if found else Method(method, entry.get("name", kind.title), preset, values, guard)


def _slug(name: str) -> str:
    kept = "".join(letter if letter.isalnum() else "-" for letter in name.lower())
    return short_name("-".join(part for part in kept.split("-") if part))
