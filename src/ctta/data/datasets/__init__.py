"""One file per data set. To add one: write the file and add its line to DATASETS.

Data of one's own need no line: they are named by their place, or registered by an installed package (see `find`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType

from ctta.base import own_code
from ctta.base.errors import ConfigError
from ctta.data.dataset import Data, DataSet
from ctta.data.own_data import own_dataset
from ctta.data.protocols import PLAIN, Protocol
from ctta.data.stream import Stream


def _entry(module: str, constant: str) -> DataSet:
    entry: DataSet = getattr(import_module(f"{__name__}.{module}"), constant)
    return entry


DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {
        "embedded": _entry("embedded", "EMBEDDED"),
        "arrays": _entry("arrays", "ARRAYS"),
        "image_folder": _entry("image_folder", "IMAGE_FOLDER"),
        "folders": _entry("domain_folders", "FOLDERS"),
        "cifar10_c": _entry("cifar_c", "CIFAR10_C"),
        "cifar100_c": _entry("cifar_c", "CIFAR100_C"),
        "cifar10_c_bar": _entry("cifar_c", "CIFAR10_C_BAR"),
        "cifar100_c_bar": _entry("cifar_c", "CIFAR100_C_BAR"),
        "imagenet_c": _entry("imagenet_c", "IMAGENET_C"),
        "imagenet_c_bar": _entry("imagenet_c", "IMAGENET_C_BAR"),
        "imagenet_3dcc": _entry("imagenet_c", "IMAGENET_3DCC"),
        "imagenet_r": _entry("imagenet_r", "IMAGENET_R"),
        "imagenet_v2": _entry("imagenet_v2", "IMAGENET_V2"),
        "ccc": _entry("ccc", "CCC"),
        "embedded_clouds": _entry("embedded_clouds", "EMBEDDED_CLOUDS"),
        "cloud_arrays": _entry("cloud_arrays", "CLOUD_ARRAYS"),
        "modelnet40": _entry("modelnet40", "MODELNET40"),
        "modelnet40_c": _entry("modelnet40_c", "MODELNET40_C"),
        "modelnet_c": _entry("modelnet_c", "MODELNET_C"),
        "scanobjectnn": _entry("scanobjectnn", "SCANOBJECTNN"),
    }
)


GROUP = "ctta.datasets"  # of the entry points by which installed packages add data sets


def find(data: Data) -> DataSet:
    """The entry of a data set: one of DATASETS, one that an installed package adds, or code of one's own."""
    if data.dataset not in DATASETS:
        place = own_code.place(data.dataset, "data set", GROUP, DATASETS)
        return own_dataset(data.dataset, place, data.path)
    dataset = DATASETS[data.dataset]
    if "folders" in dataset.uses and data.folders:
        return replace(dataset, domains={name: tuple(data.folders) for name in ("paper", "all")})
    return dataset


def known(data: Data) -> DataSet | None:
    """The entry of a data set; None if it cannot be found, for whoever leaves it to others to report that."""
    with suppress(ConfigError):
        return find(data)
    return None


def problems(data: Data) -> list[str]:
    """Return what is wrong with the settings, without reading the data; a function of one's own is run."""
    try:
        return find(data).problems(data)
    except ConfigError as error:
        return [str(error)]


def checked(data: Data, protocol: Protocol) -> DataSet:
    """The entry of a data set whose settings, and those of the protocol, are right for it."""
    dataset = find(data)
    if found := [*dataset.problems(data), *protocol.problems(dataset, data)]:
        raise ConfigError("\n".join(found))
    return dataset


def open_stream(data: Data, protocol: Protocol = PLAIN) -> Stream:
    """Open the data, arranged by the protocol."""
    return protocol.arrange(checked(data, protocol), data)
