"""Pages that are made, not written: methods, lists of settings, public names, notebooks, results, project files.

A hook of mkdocs (`make docs`); each function that returns Markdown is pure but for what it reads.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules
from textwrap import dedent
from typing import Any

from jinja2 import Template

import ctta
from ctta import core
from ctta.cli.list import LISTS, RECOMMENDED
from ctta.methods import dss
from ctta.paper import TITLES
from ctta.report.tables.errors import needs

ROOT = Path(__file__).parents[1]
TABLES = {  # in results/, by what they are about
    "cifar10_resnet20": "CIFAR-10, ResNet-20, batch 100",
    "cifar100_resnet56": "CIFAR-100, ResNet-56, batch 100, 500 images per domain",
    "embedded_all": "Fashion-MNIST, the embedded ResNet, batch 100",
    "modelnet10_pointnet": "ModelNet10, PointNet, batch 32",
    "modelnet10_dgcnn": "ModelNet10, DGCNN, batch 32",
}
FOR = {  # why a method is recommended
    "sift": "The lowest error on CIFAR-10, CIFAR-100 and the embedded data, in batches of 64 or more",
    "dss": "With the preset `fast` the lowest error of the published methods on CIFAR-10, in a quarter of CoTTA's time",
    "tent": "The cheapest method that learns, and the one on which the guard was measured most",
    "bn_adapt": "Nothing is learned, so nothing can be forgotten",
    "shot": "No augmented views; over twenty rounds the lowest error of the published methods",
    "rmt": "The lowest error of the published methods in nine of ten protocols, with or without source data",
}
PROJECT = {  # files of the repository that are pages, and links in them that lead elsewhere
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
DSS_MODULES = (dss, *(import_module(f"ctta.core.{one.name}") for one in iter_modules(core.__path__)))
DOCSTRING = r"::: \1\n    options: {members: [], show_root_full_path: true}"
ON_THE_SITE = {  # where links of docs/ lead on the site
    r"\(\.\./src/ctta/methods/(\w+)\.py\)": r"(methods/\1.md)",
    r"\(\.\./src/ctta/methods\)": "(methods/index.md)",
    r"\(\.\./src/ctta/models\)": "(lists.md#models)",
    r"\(\.\./src/ctta/data/datasets\)": "(lists.md#data-sets)",
    r"\(\.\./experiments/protocols\)": "(lists.md#protocols)",
    r"\(\.\./results/README\.md": "(results/index.md",
    r"\(\.\./(results|experiments)/": r"(\1/",
    r"\(\.\./SECURITY\.md": "(security.md",
    r"\(\.\./CONTRIBUTING\.md": "(contributing.md",
    r"\((notebooks/[\w-]+)\.ipynb\)": r"(\1.md)",
}
LINKS = {"SECURITY.md": "security.md", "docs/own-method.md": "own-method.md"}
API = {  # the public names by subject; what is in none of them is an error
    "Adapt": ["Adapter", "Step", "Guard", "Event", "create", "load", "METHODS"],
    "Around a model": ["Normalized", "Execution", "calibrate_gate"],
    "Write a method": ["Config", "setting", "OptimizerSettings", "Normalization", "Traits", "norm_parameters"],
    "Data": ["Stream", "Domain"],
    "Errors": ["CttaError", "ConfigError", "InputError", "ModelError", "StateError"],
    "Serve": ["Client", "Prediction", "ServiceError"],
    "Modules": ["corruptions", "models", "views"],
}


WIDE = "---\nhide: [toc]\n---\n"  # a page of wide tables


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def results() -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of all tables by method, each with what the table is about."""
    for name, about in TABLES.items():
        with (ROOT / "results" / f"{name}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                yield about, row


def groups() -> dict[str, list[str]]:
    """The methods by why one would read about them."""
    paper = [name for name in TITLES if name not in RECOMMENDED]
    others = [name for name in ctta.METHODS if name not in (*RECOMMENDED, *TITLES)]
    return {"Recommended": list(RECOMMENDED), "In the paper's tables": paper, "More": others}


# Methods


def methods_index() -> str:
    """All methods in three tables, with what they need and cost."""
    parts = [WIDE, "# Methods\n", "Which one: [Which method for my case](../choose.md). Passes are per batch.\n"]
    for title, names in groups().items():
        head, rows = ["method", "what it does", "learns", "forward", "backward", "source data"], []
        for name in names:
            kind = ctta.METHODS[name]
            need = needs(asdict(kind.traits))
            about = f"{first_line(kind)} {FOR[name]}." if name in FOR else first_line(kind)
            cells = [need[one] for one in ("learns", "forward", "backward", "source")]
            rows.append([f"[{kind.title}]({name}.md)", about, *cells])
        parts += [f"## {title}\n", table(head, rows)]
    return "\n".join(parts)


def method_page(name: str) -> str:
    """One method: docstring, needs, settings, presets, measured errors, code."""
    kind = ctta.METHODS[name]
    headline, _, docstring = inspect.cleandoc(inspect.getmodule(kind).__doc__ or "").partition("\n")
    source = {about: row["mean"] for about, row in results() if row["method"] == "source"}
    errors = [(about, row["label"], row["mean"], source[about]) for about, row in results() if row["method"] == name]
    presets = [(f"`{one}`", told(fields)) for one, fields in {**kind.presets, **kind.variants}.items()]
    need = needs(asdict(kind.traits))
    return Template((ROOT / "scripts" / "method.md.jinja").read_text()).render(
        kind=kind,
        headline=headline,
        docstring=docstring,
        reason=FOR.get(name),
        needs=table(list(need), [list(need.values())]),
        settings=settings_table(kind.config_type),
        presets=table(["preset", "sets"], presets),
        results=table(["setting", "row", "error", "Source"], errors) if errors else "",
    )


def first_line(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "").splitlines()[0]


def told(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "nothing"


# Lists, names, notebooks


def lists() -> str:
    """Data sets, protocols and models, as `ctta list` shows them."""
    parts = [
        WIDE,
        "# Data sets, protocols, models\n",
        "The same as `ctta list datasets` and so on; `--json` for programs.\n",
    ]
    for what in ("datasets", "protocols", "models"):
        noun, read, columns, settings = LISTS[what]
        entries = read(None)
        rows = [{noun: f"`{key}`"} | columns(entry) for key, entry in entries.items()]
        title = {"datasets": "Data sets"}.get(what, what.capitalize())
        parts += [f"## {title}\n", table(list(rows[0]), [list(row.values()) for row in rows])]
        if what == "protocols" and settings is not None:
            for key, entry in entries.items():
                fields = list(settings(entry))
                parts += [f"### `{key}`\n", table(list(fields[0]), [list(field.values()) for field in fields])]
    return "\n".join(parts)


def api() -> str:
    """Every public name; those of methods are on the methods' own pages."""
    methods = {kind.__name__ for kind in ctta.METHODS.values()}
    missing = set(ctta.__all__) - methods - {name for names in API.values() for name in names}
    if missing:
        raise SystemExit(f"scripts/docs_pages.py: these public names have no place in API: {sorted(missing)}.")
    parts = [
        "# API\n",
        "The names that `ctta` exports are public; what is below it is internal and may change without notice. Every "
        "method is a class with the arguments of [Adapter][ctta.core.adapter.Adapter]; each has "
        "[a page of its own](methods/index.md).\n",
    ]
    for subject, names in API.items():
        present = [name for name in names if name in ctta.__all__]
        parts += [f"## {subject}\n", *(f"{reference(name)}\n" for name in present)] if present else []
    return "\n".join(parts)


def reference(name: str) -> str:
    """What mkdocstrings is asked to show for a public name."""
    value = getattr(ctta, name)
    if inspect.ismodule(value):
        members = [getattr(value, one) for one in getattr(value, "__all__", vars(value))]
        below = [one for one in members if getattr(one, "__module__", "").startswith(value.__name__)]
        shown = [f"::: {one.__module__}.{one.__qualname__}\n    options: {{heading_level: 4}}\n" for one in below]
        return "\n".join([f"::: {value.__name__}\n    options: {{members: [], show_root_full_path: true}}\n", *shown])
    if not hasattr(value, "__qualname__"):
        return f"### METHODS\n\nA read-only mapping from names to classes: `{'`, `'.join(ctta.METHODS)}`."
    shown = f"::: {value.__module__}.{value.__qualname__}"
    if isinstance(value, type) and issubclass(value, ctta.Config) and value is not ctta.Config:
        return f"{shown}\n    options: {{members: [], inherited_members: false}}\n\n{settings_table(value)}"
    return shown


def settings_table(config: type[ctta.Config]) -> str:
    rows = [(f"`{one}`", accepted, f"`{default}`", words) for one, accepted, default, words in config.describe()]
    return table(["setting", "accepted", "default", "meaning"], rows) if rows else ""


def notebook(path: Path) -> str:
    """A notebook as a page: its words, its code and what it printed."""
    cells = json.loads(path.read_text())["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            printed = "".join(line for output in cell["outputs"] for line in output.get("text", ()))
            parts += [f"```python\n{text}\n```"] + ([f"```text\n{printed}```"] if printed else [])
    return "\n\n".join([parts[0], f"[Download the notebook]({path.name}){{download}}", *parts[1:]]) + "\n"


def project_page(path: Path) -> str:
    """A Markdown file of the repository; links to other such files go to their pages, others are words."""

    def link(found: re.Match[str]) -> str:
        words, place = found.groups()
        return f"[{words}]({LINKS[place]})" if place in LINKS else words

    return re.sub(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)]+)\)", link, path.read_text())


def site_page(text: str) -> str:
    """A page of docs/, whose links are those of the repository, as a page of the site."""

    def code(found: re.Match[str]) -> str:
        for module in DSS_MODULES:
            with suppress(AttributeError):
                value = attrgetter(found[1])(module)
                place = f"{value.__module__}.{value.__qualname__}"
                where = f"[`{place}`][{place}]" if value.__module__ == dss.__name__ else f"`{place}`"
                return f"```python\n{dedent(inspect.getsource(value))}\n```\n\n{where}"
        raise SystemExit(f"docs/paper.md: there is no {found[1]} in ctta.methods.dss or ctta.core.")

    text = re.sub(r"^Code: \[`(\S+)`\]\(\S+\)$", code, text, flags=re.MULTILINE)
    text = re.sub(r"^Docstring: \[`(\S+)`\]\(\S+\)$", DOCSTRING, text, flags=re.MULTILINE)
    for place, page in ON_THE_SITE.items():
        text = re.sub(place, page, text)
    return text


# What mkdocs calls


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return markdown if page.file.generated_by else site_page(markdown)


def pages() -> dict[str, str]:
    """All made pages by their place."""
    made = {f"methods/{name}.md": method_page(name) for name in ctta.METHODS}
    made |= {"methods/index.md": methods_index(), "lists.md": lists(), "api.md": api()}
    made |= {place: project_page(ROOT / file) for place, file in PROJECT.items()}
    made |= {f"notebooks/{path.stem}.md": notebook(path) for path in notebooks()}
    return made | {"results/index.md": (ROOT / "results" / "README.md").read_text()}


def notebooks() -> list[Path]:
    return sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def on_config(config: Any) -> Any:
    """Fill in what nav leaves open: the methods in order, the notebooks."""
    methods = [{group: [f"methods/{name}.md" for name in names]} for group, names in groups().items()]
    listed = {
        "methods": ["methods/index.md", *methods],
        "notebooks": [f"notebooks/{path.stem}.md" for path in notebooks()],
    }
    config.nav = [{title: listed.get(str(what), what)} for entry in config.nav for title, what in entry.items()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the made pages, and the tables and experiments that they link to."""
    from mkdocs.structure.files import File

    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    for path in [*(ROOT / "results").rglob("*.*"), *(ROOT / "experiments").rglob("*.yaml")]:
        if path.suffix != ".md":
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files
