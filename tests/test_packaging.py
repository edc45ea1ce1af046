"""What is built and published: the version in all its places, the long description, the source archive."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import ctta
from needs import missing

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LARGE = 2**16  # bytes of a file of results that a source archive does not carry


@pytest.fixture(scope="module")
def hatchling():
    if importlib.util.find_spec("hatchling") is None:
        missing("hatchling is not installed; it is in the extra 'test'.")
    import hatchling

    return hatchling


@pytest.fixture(scope="module")
def absolute(hatchling):
    spec = importlib.util.spec_from_file_location("long_description", ROOT / "scripts" / "long_description.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.absolute


def test_one_version_in_all_places():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    headings = re.findall(r"^## (\S+), (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == (ctta.__version__, str(cited["date-released"]))
    assert (cited["version"], cited["repository-code"]) == (ctta.__version__, PROJECT["urls"]["Repository"])


def test_links_of_the_long_description_are_absolute(absolute):
    text = "[a](docs/a.md#b) ![p](docs/p.png) [![p](p.png)](c.md) [web](https://x.org) [here](#there) `[x](y)`"
    assert absolute(text, "https://h/r") == (
        "[a](https://h/r/blob/HEAD/docs/a.md#b) ![p](https://h/r/raw/HEAD/docs/p.png) "
        "[![p](https://h/r/raw/HEAD/p.png)](https://h/r/blob/HEAD/c.md) [web](https://x.org) [here](#there) "
        "`[x](https://h/r/blob/HEAD/y)`"
    )
    links = re.findall(r"\]\(([^)\s]+)\)", absolute((ROOT / "README.md").read_text(), PROJECT["urls"]["Repository"]))
    assert links
    assert all(link.startswith(("https://", "#")) for link in links)


def test_the_source_archive_has_what_is_needed_and_no_large_results(hatchling):
    from hatchling.builders.sdist import SdistBuilder

    files = {Path(one.distribution_path): Path(one.path) for one in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {Path(name) for name in ("README.md", "LICENSE", "CITATION.cff", "docs/index.md", "Makefile")} <= set(files)
    results = {name: path.stat().st_size for name, path in files.items() if name.parts[0] == "results"}
    assert results
    assert not {name: size for name, size in results.items() if size > LARGE}


@pytest.mark.parametrize("name", ["3.11", "3.12", "3.13"])
def test_classifiers_name_the_versions(name):
    assert f"Programming Language :: Python :: {name}" in PROJECT["classifiers"]
