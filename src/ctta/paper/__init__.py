"""The paper's published numbers, and the setups in which they were measured.

    tables.json   errors in percent by table, row and domain, with the printed mean
    orders.json   the ten orders of Table 4, as published by the authors of CoTTA

A printed mean that differs from the mean of its own domains is replaced by the latter, with a note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

ROUNDING = 0.05  # largest rounding error of a number with one decimal


@dataclass(frozen=True)
class Setup:
    """Data, model and batch size of a table."""

    dataset: str  # its title in run folders
    model: str
    preset: str
    images: int  # per domain
    batch: int | None  # None if neither the paper nor the work it follows gives it
    unlike: tuple[str, ...] = ()  # domains that cannot be made in the paper's way


@dataclass(frozen=True)
class PaperRow:
    """One row of a table."""

    title: str
    method: str
    fields: Mapping[str, Any]  # settings that differ from other rows of its method
    mean: float
    sd: float | None  # standard deviation over orders, if the paper gives it
    errors: Mapping[str, float]  # by domain; empty if the paper gives only the mean
    printed: float | None = None  # the printed mean, if it is wrong


@dataclass(frozen=True)
class PaperTable:
    """One table, or one column of a table with several data sets."""

    name: str
    title: str
    setup: Setup
    rows: tuple[PaperRow, ...]
    any_order: bool = False  # whether the errors are means over orders of the domains

    def notes(self) -> tuple[str, ...]:
        """List remarks on the paper's numbers."""
        wrong = [
            f"The paper prints a mean of {row.printed:.1f} for {row.title}; its own columns average {row.mean:.1f}."
            for row in self.rows
            if row.printed is not None
        ]
        unlike = (
            f"Means leave out {' and '.join(self.setup.unlike)}: the paper's errors are at chance there, and it does "
            "not describe how it made them from scans without meshes."
        )
        return (*wrong, *((unlike,) if self.setup.unlike else ()))


SETUPS: Mapping[str, Setup] = {
    "cifar10c": Setup("CIFAR-10-C", "wrn28_10", "cifar10", 10_000, 200),
    "cifar100c": Setup("CIFAR-100-C", "resnext29", "cifar100", 10_000, 200),
    "imagenetc": Setup("ImageNet-C (resize256)", "resnet50", "imagenet", 5_000, 64),
    "imagenetr": Setup("ImageNet-R (resize256)", "resnet50", "imagenet", 30_000, 64),
    "scanobjectnnc": Setup("ScanObjectNN", "dgcnn", "clouds", 581, None, ("occlusion", "lidar")),
    "modelnet40c": Setup("ModelNet40-C", "pointnet", "clouds", 2_468, None),
}

# By the name of a table in experiments: its key in tables.json, its setup and its subject.
TABLES: Mapping[str, tuple[str, str, str]] = {
    "table1": ("table1_cifar10c", "cifar10c", "CIFAR10-C"),
    "table2": ("table2_cifar100c", "cifar100c", "CIFAR100-C"),
    "table3": ("table3_imagenetc", "imagenetc", "ImageNet-C"),
    "table4": ("table4_imagenetc_10_orders", "imagenetc", "ImageNet-C, ten orders"),
    "table5": ("table5_scanobjectnnc", "scanobjectnnc", "ScanObjectNN-C"),
    "table6_cifar10c": ("table6_components", "cifar10c", "components, CIFAR10-C"),
    "table6_cifar100c": ("table6_components", "cifar100c", "components, CIFAR100-C"),
    "table6_imagenetc": ("table6_components", "imagenetc", "components, ImageNet-C"),
    "table7_cifar100c": ("table7_fixed_threshold_0.2", "cifar100c", "threshold, CIFAR100-C"),
    "table7_imagenetc": ("table7_fixed_threshold_0.2", "imagenetc", "threshold, ImageNet-C"),
    "table8_cifar100c": ("table8_temperature", "cifar100c", "temperature, CIFAR100-C"),
    "table8_imagenetc": ("table8_temperature", "imagenetc", "temperature, ImageNet-C"),
    "table9": ("table9_imagenetr", "imagenetr", "ImageNet-R"),
    "table10": ("table10_modelnet40c", "modelnet40c", "ModelNet40-C"),
}

PARTS = {"": "dt", "_pl": "dt+pl", "_pl_nl": "dt+pl+nl"}
TITLES: Mapping[str, str] = {
    "source": "Source",
    "bn_adapt": "BN Adapt",
    "test_aug": "Test Aug",
    "tent": "TENT",
    "adacontrast": "AdaContrast",
    "conjugate_pl": "Conjugate PL",
    "cotta": "CoTTA",
    "dss": "DSS",
}
# Rows that are settings of DSS: their title and fields.
ABLATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{
        f"{key}{suffix}": (f"DSS {words}{suffix.upper().replace('_', '+')}", {"parts": parts, "threshold": value})
        for key, words, value in (("dt", "DT", "dynamic"), ("fixed", "fixed", 0.2))
        for suffix, parts in PARTS.items()
    },
    **{f"{value:.1f}": (f"DSS Tp {value:g}", {"temperature": value}) for value in (0.2, 0.4, 0.6, 0.8, 1.0)},
}


@cache
def table(name: str) -> PaperTable:
    """Return one of TABLES."""
    key, where, title = TABLES[name]
    numbers = _read("tables.json")[key]
    numbers, setup = numbers.get(where, numbers), SETUPS[where]
    rows = tuple(_row(row, value, setup) for row, value in numbers.items())
    number = name.partition("_")[0].removeprefix("table")
    return PaperTable(name, f"Table {number}, {title}", setup, rows, any_order=name == "table4")


@cache
def orders() -> Mapping[str, tuple[str, ...]]:
    """Return the ten orders of Table 4: `paper-1` to `paper-10`."""
    found = _read("orders.json")["table4_orders"]
    return {f"paper-{number}": tuple(names) for number, names in enumerate(found, start=1)}


def _row(key: str, value: Any, setup: Setup) -> PaperRow:
    title, fields = ABLATIONS.get(key, (TITLES.get(key, key), {}))
    method = "dss" if key in ABLATIONS else key
    if isinstance(value, list):
        return PaperRow(title, method, fields, value[0], value[1], {})
    if not isinstance(value, dict):
        return PaperRow(title, method, fields, value, None, {})
    errors, printed = value["per_domain"], value["printed_mean"]
    wrong = abs(fmean(errors.values()) - printed) > 2 * ROUNDING  # both sides are rounded
    kept = [error for domain, error in errors.items() if domain not in setup.unlike]
    mean = round(fmean(kept), 1) if wrong or setup.unlike else printed
    return PaperRow(title, method, fields, mean, None, errors, printed if wrong else None)


def _read(name: str) -> Any:
    return json.loads((files("ctta.paper") / name).read_text(encoding="utf-8"))
