"""One file per data set. To add one: write the file and add its line to DATASETS."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import quoted
from ctta.data.dataset import Data, DataSet
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
        "cifar10_c": _entry("cifar_c", "CIFAR10_C"),
        "cifar100_c": _entry("cifar_c", "CIFAR100_C"),
        "imagenet_c": _entry("imagenet_c", "IMAGENET_C"),
        "imagenet_r": _entry("imagenet_r", "IMAGENET_R"),
        "embedded_clouds": _entry("embedded_clouds", "EMBEDDED_CLOUDS"),
        "cloud_arrays": _entry("cloud_arrays", "CLOUD_ARRAYS"),
        "modelnet40": _entry("modelnet40", "MODELNET40"),
        "modelnet40_c": _entry("modelnet40_c", "MODELNET40_C"),
        "scanobjectnn": _entry("scanobjectnn", "SCANOBJECTNN"),
    }
)


def problems(data: Data) -> list[str]:
    """Return what is wrong with the settings, without reading the data."""
    if data.dataset not in DATASETS:
        return [f"There is no data set {quoted(data.dataset)}. {nearest(data.dataset, DATASETS)}"]
    return DATASETS[data.dataset].problems(data)


def protocol_problems(protocol: Protocol, data: Data) -> list[str]:
    """Return what is wrong with a protocol for these data."""
    return protocol.problems(DATASETS[data.dataset], data) if data.dataset in DATASETS else []


def open_stream(data: Data, protocol: Protocol = PLAIN) -> Stream:
    """Open the data, arranged by the protocol."""
    if found := problems(data) + protocol_problems(protocol, data):
        raise ConfigError("\n".join(found))
    return protocol.arrange(DATASETS[data.dataset], data)
