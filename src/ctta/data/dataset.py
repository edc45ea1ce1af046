"""What every data set has in common: the settings of a stream, and the entry of the DATASETS table.

A domain is a corruption at a severity; the domain `clean` always has severity 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ctta.base.config import Config, setting
from ctta.base.errors import InputError, nearest
from ctta.base.fileio import home
from ctta.base.limits import SIDE
from ctta.base.text import quoted
from ctta.data.corruptions.constants import GROUPS
from ctta.data.pictures import CONVENTIONS, Fit
from ctta.data.stream import Stream

CLEAN = "clean"
SPECIAL = ("folders", "preprocessing", "size", "list", "labels", "jpeg")  # settings of some data sets only


@dataclass(frozen=True)
class Data(Config):
    """The data of a stream."""

    dataset: str = setting(
        "embedded", "A name from `ctta list datasets`, or file.py:function or package.module:function, which is run."
    )
    path: str | None = setting(None, "Path of the data; not for the embedded sets.")
    folders: Mapping[str, str] | None = setting(
        None, "The folder of class folders of each domain, or a list of 'picture label' lines; relative to the path."
    )
    domains: str | tuple[str, ...] = setting(
        "paper", "Domains in order: paper (fifteen), extra (four more), all, clean, or a list of names."
    )
    severity: int = setting(5, "Severity of every domain except `clean`; 0 is clean.", low=0, high=5)
    first: int = setting(0, "Number of the first sample that is used.", low=0)
    images: int | None = setting(None, "Samples per domain. Default: all.", low=1)
    batch: int = setting(200, "Batch size.", low=1)
    seed: int = setting(0, "Seed of the corruptions, and of the order of pictures without a list.", low=0)
    constants: Literal["cifar", "imagenet"] | None = setting(
        None, "Which set of corruption constants. Default: by the size of the images."
    )
    preprocessing: Literal["none", "resize256"] | None = setting(
        None,
        "How pictures are prepared: none crops the middle 224 pixels, resize256 resizes to 256 before that. Default: "
        "the convention of the data set.",
    )
    size: int | None = setting(
        None, "Pictures become size x size pixels, resized and cropped; instead of preprocessing.", low=1, high=SIDE
    )
    list: str | None = setting(None, "A text file of class/name lines: the pictures to use, in order.")
    labels: Literal["ilsvrc", "sorted", "numbers"] | None = setting(
        None,
        "Labels of class folders: ilsvrc uses the index of the wnid, sorted the position among the sorted names, "
        "numbers the names themselves. Default: ilsvrc if all names are wnids, else sorted.",
    )
    jpeg: bool | None = setting(
        None, "Whether corrupted pictures are saved as JPEG and read again. Default: with ImageNet's constants."
    )
    boundaries: Literal["known", "unknown", "detected"] = setting(
        "known",
        "Whether methods know where a domain starts, do not know it, or detect it from their inputs.",
        renamed={"told": "known", "hidden": "unknown"},
    )
    cache: str | None = setting(None, "A folder that keeps corrupted samples for later runs.")

    def rows(self, count: int) -> slice:
        """Return which of `count` samples are used."""
        if self.first >= count:
            raise InputError(f"There are {count} samples, so the first cannot be number {self.first}.")
        return slice(self.first, count if self.images is None else min(self.first + self.images, count))

    @property
    def folder(self) -> Path:
        """The path; `problems` reports if there is none."""
        return home(self.path or "")


@dataclass(frozen=True)
class DataSet:
    """One line of the DATASETS table."""

    title: str
    about: str  # what the path is, in a few words and a point
    open: Callable[[Data, tuple[tuple[str, int], ...]], Stream]  # settings, (domain, severity) in order
    needs_path: bool = True
    # Named lists of domains.
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {**GROUPS, CLEAN: (CLEAN,)})
    # Clean samples, corrupted on the fly; stored corrupted ones; or a natural shift, which has no severity.
    holds: Literal["clean", "corrupted", "natural"] = "clean"
    preprocessing: str | None = None  # the default for pictures
    uses: tuple[str, ...] = ()  # which of the special settings it has
    num_classes: int | None = None  # if it is known without reading the data
    samples: Literal["images", "clouds"] = "images"

    def named(self, data: Data) -> str:
        """Return the title for tables, with the preprocessing: results of two conventions are not comparable."""
        convention = f"size {data.size}" if data.size else data.preprocessing or self.preprocessing
        return f"{self.title} ({convention})" if convention else self.title

    def fit(self, data: Data) -> Fit:
        """Return how pictures are resized and cropped."""
        if data.size:
            return Fit(data.size, data.size)
        convention = data.preprocessing or self.preprocessing
        return CONVENTIONS[convention] if convention else Fit()

    def pairs(self, data: Data) -> tuple[tuple[str, int], ...]:
        """Return the domains in order, each with its severity."""
        ungraded = self.holds == "natural"
        return tuple((name, 0 if ungraded or name == CLEAN else data.severity) for name in self.names(data))

    def names(self, data: Data) -> tuple[str, ...]:
        return self.domains.get(data.domains, ()) if isinstance(data.domains, str) else data.domains

    def problems(self, data: Data) -> list[str]:
        """Return what is wrong with the settings, beyond their types."""
        found = []
        known = {name for names in self.domains.values() for name in names} - {CLEAN}
        known |= {CLEAN} if self.holds == "clean" else set()
        if isinstance(data.domains, str) and data.domains not in self.domains:
            found.append(f"There is no set of domains {quoted(data.domains)}. {nearest(data.domains, self.domains)}")
        elif not self.names(data):
            found.append("The list of domains is empty. Name at least one.")
        kind = "domain" if self.holds == "natural" else "corruption"
        for name in self.names(data):
            if name not in known:
                found.append(f"There is no {kind} {quoted(name)}. {nearest(name, known)}")
        if self.holds == "corrupted" and data.severity == 0:
            found.append(f"{self.title} holds severities 1 to 5 and no clean samples. Got severity 0.")
        if self.holds == "natural" and data.severity != Data.severity:
            found.append(f"{self.title} is a natural shift, which has no severity. Remove 'severity'.")
        if "folders" in self.uses and not data.folders:
            found.append(f"The data set {quoted(data.dataset)} needs folders: {self.about}")
        if self.needs_path and data.path is None:
            found.append(f"The data set {quoted(data.dataset)} needs a path: {self.about}")
        for name in SPECIAL:
            if getattr(data, name) is not None and name not in self.uses:
                found.append(f"The data set {quoted(data.dataset)} does not use {quoted(name)}. Remove it.")
        corrupts = {"cache": self.holds == "clean", "constants": self.holds == "clean" and self.samples == "images"}
        for name, used in corrupts.items():
            if getattr(data, name) is not None and not used:
                found.append(f"{self.title} is not corrupted with {quoted(name)}. Remove it.")
        if data.size is not None and data.preprocessing is not None:
            found.append("size and preprocessing exclude each other: give one of them.")
        return found
