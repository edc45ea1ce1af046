"""`ctta list`: methods, models, data sets, protocols and corruptions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pkgutil import resolve_name
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import quoted
from ctta.cli.options import AsJson

EXAMPLES = "Examples:  ctta list methods    ctta list methods dss    ctta list corruptions"
FIELD = ("field", "accepted", "default", "meaning")
WIDE = 120  # columns of a terminal on which a sentence per method fits


def command(
    what: Annotated[str, Argument(help="methods, models, datasets, protocols or corruptions")] = "methods",
    name: Annotated[str | None, Argument(help="Show the settings of this method, data set or protocol.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, models, data sets, protocols or corruptions, or the settings of one of them."""
    if what not in LISTS:
        raise ConfigError(f"There is no list of {quoted(what)}. {nearest(what, LISTS)}")
    noun, table, columns, settings = LISTS[what]
    entries = resolve_name(table)
    if name is None:
        rows = [{noun: key} | columns(entries[key] if isinstance(entries, Mapping) else key) for key in entries]
    elif name not in entries:
        raise ConfigError(f"There is no {noun} {quoted(name)}. {nearest(name, entries)}")
    elif settings is None:
        raise ConfigError(f"A {noun} has no settings to list. Leave out {quoted(name)}.")
    else:
        rows = [dict(zip(FIELD, field, strict=True)) for field in settings(entries[name])]
    if as_json:
        print(json.dumps(rows))
    elif not rows:
        Console().print(f"{name} has no settings.")
    else:
        shown = [key for key in rows[0] if key != "description" or len(rows[0]) < 3 or Console().width > WIDE]
        printed = Table(*shown, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            printed.add_row(*(Text(str(row[key])) for key in shown))
        Console().print(printed)
        if what == "methods" and name is not None:
            Console().print(Text("\n".join(_presets(entries[name]))))


def _described(kind: Any) -> dict[str, Any]:
    return {"description": kind.__doc__.splitlines()[0]}


def _method(kind: Any) -> dict[str, Any]:
    from ctta.report.tables.errors import needs

    return {**needs(asdict(kind.traits)), **_described(kind)}


def _presets(kind: Any) -> Iterator[str]:
    """What the presets of a method set, and which is taken if none is named."""
    from ctta.core.settings import default_variant

    def told(fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in fields.items()) or "no change"

    yield "\nPresets, as published; if none is named, the shape of the input decides:"
    yield from (f"  {name}: {told(fields)}" for name, fields in kind.presets.items())
    default = default_variant(kind.variants)
    yield f"Variants, over any preset; {default} if none is named, in experiments paper:"
    yield from (f"  {name}: {told(fields)}" for name, fields in kind.variants.items())


def _model(entry: Any) -> dict[str, Any]:
    return {"classes": entry.num_classes, "input": " x ".join(map(str, entry.input_shape)), "weights": entry.note}


def _fields(dataset: Any) -> Iterable[tuple[Any, ...]]:
    from ctta.data.dataset import SPECIAL, Data

    return (field for field in Data.describe() if field[0] in dataset.uses or field[0] not in SPECIAL)


def _corruption(name: str) -> dict[str, Any]:
    from ctta.data.corruptions import EXTRA

    return {"set": "extra" if name in EXTRA else "paper"}


# A list: what one entry is called, the table, the columns of an entry, and its settings, if it has any.
Listing = tuple[str, str, Callable[[Any], dict[str, Any]], Callable[[Any], Iterable[tuple[Any, ...]]] | None]
LISTS: dict[str, Listing] = {
    "methods": ("method", "ctta.methods:METHODS", _method, lambda kind: kind.config_type.describe()),
    "models": ("model", "ctta.models:MODELS", _model, None),
    "datasets": ("data set", "ctta.data.datasets:DATASETS", lambda x: {"title": x.title, "path": x.about}, _fields),
    "protocols": ("protocol", "ctta.data.protocols:KINDS", _described, lambda kind: kind.describe()),
    "corruptions": ("corruption", "ctta.data.corruptions:NAMES", _corruption, None),
}
