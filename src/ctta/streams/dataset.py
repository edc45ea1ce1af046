"""What every data set has in common: the settings of a stream, and the entry of the DATASETS table.

A domain is a corruption at a severity; the domain `clean` has severity 0 wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from ctta.config import Config, setting
from ctta.corruptions import EXTRA, NAMES, PAPER
from ctta.errors import nearest
from ctta.streams.stream import Stream

CLEAN = "clean"
IMAGE_DOMAINS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"paper": PAPER, "extra": EXTRA, "all": NAMES, CLEAN: (CLEAN,)}
)


@dataclass(frozen=True)
class Data(Config):
    """What the stream is made of."""

    dataset: str = setting("embedded", "A name from ctta.streams.DATASETS; `ctta list datasets` shows them.")
    path: str | None = setting(None, "Where the data are; not for the embedded set.")
    domains: str | tuple[str, ...] = setting(
        "paper", "Domains in order: the paper's fifteen, the four extra, all, clean, or a list of names."
    )
    severity: int = setting(5, "Severity of every domain but `clean`; 0 is clean.", low=0, high=5)
    images: int | None = setting(None, "Samples a domain; all without it.", low=1)
    batch: int = setting(200, "Batch size.", low=1)
    seed: int = setting(0, "Seed of the corruptions.", low=0)
    constants: Literal["cifar", "imagenet"] | None = setting(
        None, "Which set of corruption constants; by the size of the images without it."
    )
    boundaries: Literal["told", "hidden"] = setting("told", "Whether a method is told where a domain starts.")
    cache: str | None = setting(None, "A folder that keeps corrupted samples; made anew without it.")

    @property
    def folder(self) -> Path:
        """The path; `problems` has seen to it that there is one."""
        return Path(self.path or "")


@dataclass(frozen=True)
class DataSet:
    """One line of the DATASETS table."""

    title: str  # in tables
    about: str  # one sentence: what it is and what the path is
    open: Callable[[Data, tuple[tuple[str, int], ...]], Stream]  # settings, (domain, severity) in order
    needs_path: bool = True
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: IMAGE_DOMAINS)  # named lists of domains
    samples: Literal["images", "clouds"] = "images"

    def pairs(self, data: Data) -> tuple[tuple[str, int], ...]:
        """The domains in order, each with its severity."""
        return tuple((name, 0 if name == CLEAN else data.severity) for name in self.names(data))

    def names(self, data: Data) -> tuple[str, ...]:
        return self.domains.get(data.domains, ()) if isinstance(data.domains, str) else data.domains

    def problems(self, data: Data) -> list[str]:
        """What the types alone do not tell."""
        found = []
        known = {CLEAN, *(name for names in self.domains.values() for name in names)}
        if isinstance(data.domains, str) and data.domains not in self.domains:
            found.append(f"There is no set of domains {data.domains!r}. {nearest(data.domains, self.domains)}")
        elif not self.names(data):
            found.append("The list of domains is empty. Name at least one.")
        for name in self.names(data):
            if name not in known:
                found.append(f"There is no corruption {name!r}. {nearest(name, known)}")
        if self.needs_path and data.path is None:
            found.append(f"The data set {data.dataset!r} needs a path: {self.about}")
        return found
