"""`ctta list`: methods, presets, models, data sets, protocols and corruptions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from types import SimpleNamespace
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument

from ctta.base.errors import ConfigError, nearest
from ctta.base.own_code import is_own
from ctta.base.text import one_line, quoted
from ctta.cli.options import AsJson

EXAMPLES = "Examples:  ctta list methods    ctta list methods dss    ctta list presets    ctta list corruptions"
FIELD = ("field", "accepted", "default", "meaning")
WIDE = 120  # columns of a terminal on which there is room for more than a sentence per method
ABSENT = "–"
RECOMMENDED = ("sift", "dss", "tent", "bn_adapt", "shot", "rmt")  # the documentation says for which case
ORDER = "First what we recommend, then the paper's methods, then the rest. Settings of one: ctta list methods NAME"

Row = dict[str, Any]


def command(
    what: Annotated[str, Argument(help="methods, presets, models, datasets, protocols or corruptions")] = "methods",
    name: Annotated[str | None, Argument(help="Show the settings of this method, preset, data set ...")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, presets, models, data sets, protocols or corruptions, or the settings of one of them."""
    if what not in LISTS:
        raise ConfigError(f"There is no list of {quoted(what)}. {nearest(what, LISTS)}")
    noun, read, columns, settings = LISTS[what]
    entries = read(name)
    if name is None:
        rows = [{noun: key} | columns(entry) for key, entry in entries.items()]
    elif name not in entries:
        raise ConfigError(f"There is no {noun} {quoted(name)}. {nearest(name, entries)}")
    elif settings is None:
        raise ConfigError(f"A {noun} has no settings to list. Leave out {quoted(name)}.")
    else:
        rows = list(settings(entries[name]))
    if as_json:
        print(json.dumps(rows))
    elif not rows:
        Console().print(f"{name} has no settings.")
    else:
        below = [] if what != "methods" else [ORDER] if name is None else list(_presets(entries[name]))
        _print(rows, below)


def _print(rows: list[Row], below: list[str]) -> None:
    """A table with sentences below; a narrow terminal shows less of it, and the last sentence says what is missing."""
    shown = list(rows[0])
    if "description" in shown and Console().width <= WIDE:
        shown = [shown[0], "description"]
    if missing := [key for key in rows[0] if key not in shown]:
        below = [
            *below,
            f"Not shown here: {', '.join(missing)}. A terminal of over {WIDE} columns has room for them.",
        ]
    printed = Table(*shown, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        printed.add_row(*(Text(one_line(str(row[key]))) for key in shown))
    Console().print(printed)
    if below:
        Console().print(Text("\n".join(["", *below])))


def _fields(described: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    return (dict(zip(FIELD, field, strict=True)) for field in described)


def _described(kind: Any) -> Row:
    return {"description": (kind.__doc__ or ABSENT).splitlines()[0]}


# Methods and their presets


def _methods(name: str | None) -> dict[str, Any]:
    """What we recommend, the paper's methods, the others, those of installed packages; one's own if it is named."""
    from ctta.base.own_code import installed
    from ctta.methods import GROUP, METHODS, find
    from ctta.paper import TITLES

    if name is not None and (is_own(name) or name in installed(GROUP)):
        return {name: find(name)}
    found: dict[str, Any] = {name: METHODS[name] for name in [*RECOMMENDED, *TITLES, *METHODS]}
    for added in installed(GROUP):
        try:
            found.setdefault(added, find(added))
        except ConfigError as error:
            found[added] = error
    return found


def _method(kind: Any) -> Row:
    from ctta.methods import METHODS
    from ctta.report.tables.errors import needs

    if isinstance(kind, ConfigError):
        return {**dict.fromkeys(needs(asdict(METHODS["source"].traits)), ABSENT), "description": str(kind)}
    return {**needs(asdict(kind.traits)), **_described(kind)}


def _told(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "no change"


def _presets(kind: Any) -> Iterator[str]:
    """What the presets of a method set, and which is taken if none is named."""
    from ctta.core.settings import default_variant

    yield "Presets; if none is named, the shape of the input decides:"
    yield from (f"  {name}: {_told(fields)}" for name, fields in kind.presets.items())
    default = default_variant(kind.variants)
    yield f"Variants, over any preset; {default} if none is named, in experiments paper:"
    yield from (f"  {name}: {_told(fields)}" for name, fields in kind.variants.items())


def _all_presets(_: str | None) -> dict[str, Any]:
    """Presets, then variants, each with what it sets in which method."""
    from ctta.methods import METHODS

    found: dict[str, Any] = {}
    for what in ("presets", "variants"):
        for method, kind in METHODS.items():
            for name, fields in getattr(kind, what).items():
                found.setdefault(name, {"kind": what[:-1], "methods": {}})["methods"][method] = fields
    return found


def _preset(entry: Any) -> Row:
    from ctta.methods import METHODS

    names = list(entry["methods"])
    return {"kind": entry["kind"], "methods": "all" if len(names) == len(METHODS) else ", ".join(names)}


# The other lists


def _model(entry: Any) -> Row:
    return {"classes": entry.num_classes, "input": " x ".join(map(str, entry.input_shape)), "weights": entry.note}


def _models(_: str | None) -> Mapping[str, Any]:
    from ctta.models import MODELS

    return MODELS


def _datasets(name: str | None) -> Mapping[str, Any]:
    """The data sets of ctta and of installed packages, whose functions are not run; also one's own, if it is named."""
    from ctta.base.own_code import installed
    from ctta.data.datasets import DATASETS, GROUP

    places = installed(GROUP) | ({name: name} if name and is_own(name) else {})
    wants = "what its function wants, if anything."
    added = {key: SimpleNamespace(title=place, about=wants, uses=()) for key, place in places.items()}
    return {**DATASETS, **{key: entry for key, entry in added.items() if key not in DATASETS}}


def _dataset_fields(dataset: Any) -> Iterator[Row]:
    from ctta.data.dataset import SPECIAL, Data

    return _fields(field for field in Data.describe() if field[0] in dataset.uses or field[0] not in SPECIAL)


def _protocols(_: str | None) -> Mapping[str, Any]:
    from ctta.data.protocols import KINDS

    return KINDS


def _corruptions(_: str | None) -> Mapping[str, Any]:
    from ctta.data.corruptions import EXTRA, NAMES

    return {name: "extra" if name in EXTRA else "paper" for name in NAMES}


# A list: what one entry is called, the entries, the columns of one, and its settings, if it has any.
Listing = tuple[
    str, Callable[[str | None], Mapping[str, Any]], Callable[[Any], Row], Callable[[Any], Iterable[Row]] | None
]
LISTS: dict[str, Listing] = {
    "methods": ("method", _methods, _method, lambda kind: _fields(kind.config_type.describe())),
    "presets": (
        "preset",
        _all_presets,
        _preset,
        lambda entry: [{"method": method, "sets": _told(fields)} for method, fields in entry["methods"].items()],
    ),
    "models": ("model", _models, _model, None),
    "datasets": ("data set", _datasets, lambda x: {"title": x.title, "path": x.about}, _dataset_fields),
    "protocols": ("protocol", _protocols, _described, lambda kind: _fields(kind.describe())),
    "corruptions": ("corruption", _corruptions, lambda group: {"set": group}, None),
}
