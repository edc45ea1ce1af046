"""Every heavy optional dependency is imported by at most one module of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ctta

PACKAGE = Path(ctta.__file__).parent
HEAVY = ("ray", "mlflow", "wandb", "tensorboard", "timm", "torchvision", "transformers", "huggingface_hub", "h5py")
HEAVY += ("matplotlib", "playwright", "fastapi", "uvicorn", "prometheus_client", "pydantic")
ALIASES = {"torch.utils.tensorboard": "tensorboard"}  # part of torch, but it imports the package


def imported(source: str) -> set[str]:
    """The heavy packages that a module imports, by a statement or by a string."""
    return {package for name in _names(ast.parse(source)) if (package := _package(name)) in HEAVY}


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if _imports(function):
                yield name


def _imports(function: ast.expr) -> bool:
    """Whether a function imports what it is given: optional_import, importlib.import_module, _require and the like."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return "import" in name or "require" in name


def _package(name: str) -> str:
    for module, package in ALIASES.items():
        if name == module or name.startswith(f"{module}."):
            return package
    return name.partition(".")[0]


@cache
def modules() -> dict[str, set[str]]:
    return {path.relative_to(PACKAGE).as_posix(): imported(path.read_text()) for path in PACKAGE.rglob("*.py")}


def importers(package: str) -> list[str]:
    return sorted(module for module, packages in modules().items() if package in packages)


@pytest.mark.parametrize("package", HEAVY)
def test_at_most_one_module_imports_a_heavy_package(package):
    assert len(importers(package)) <= 1, importers(package)


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("h5py", "data/hdf5.py"),
        ("ray", "running/engines/ray.py"),
        ("fastapi", "serving/app.py"),
        ("uvicorn", "serving/server.py"),
        ("prometheus_client", "serving/metrics.py"),
        ("pydantic", "serving/wire.py"),
        ("timm", "models/timm_models.py"),
        ("huggingface_hub", "base/hub.py"),
        ("torchvision", "models/torchvision_models.py"),
        ("transformers", "models/huggingface_models.py"),
    ],
)
def test_the_module_that_imports_it_is_known(package, module):
    assert importers(package) == [module]


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import ray", {"ray"}),
        ("def f():\n    import ray.util as r, os", {"ray"}),
        ("from mlflow.tracking import Client", {"mlflow"}),
        ("from torch.utils import tensorboard", {"tensorboard"}),
        ("from torch.utils.tensorboard import SummaryWriter", {"tensorboard"}),
        ("h = optional_import('h5py', 'hdf5', 'This')", {"h5py"}),
        ("importlib.import_module('timm.data')", {"timm"}),
        ("_require('torch.utils.tensorboard', 'tensorboard')", {"tensorboard"}),
        ("from . import ray\nfrom ctta.running.engines import ray\nprint('ray')", set()),
    ],
)
def test_every_way_of_importing_is_found(source, packages):
    assert imported(source) == packages
