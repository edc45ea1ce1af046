"""One file a data set. To add one: write the file, add its line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ctta.base.errors import ConfigError, nearest
from ctta.data.dataset import Data, DataSet
from ctta.data.datasets import (
    arrays,
    cifar_c,
    cloud_arrays,
    embedded,
    embedded_clouds,
    image_folder,
    imagenet_c,
    imagenet_r,
    modelnet40,
    modelnet40_c,
    scanobjectnn,
)
from ctta.data.protocols import KINDS, PLAIN, Protocol
from ctta.data.stream import Batch, Domain, Stream

__all__ = [
    "DATASETS",
    "KINDS",
    "PLAIN",
    "Batch",
    "Data",
    "DataSet",
    "Domain",
    "Protocol",
    "Stream",
    "open_stream",
    "problems",
    "protocol_problems",
]

DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {
        "embedded": embedded.EMBEDDED,
        "arrays": arrays.ARRAYS,
        "image_folder": image_folder.IMAGE_FOLDER,
        "cifar10_c": cifar_c.CIFAR10_C,
        "cifar100_c": cifar_c.CIFAR100_C,
        "imagenet_c": imagenet_c.IMAGENET_C,
        "imagenet_r": imagenet_r.IMAGENET_R,
        "embedded_clouds": embedded_clouds.EMBEDDED_CLOUDS,
        "cloud_arrays": cloud_arrays.CLOUD_ARRAYS,
        "modelnet40": modelnet40.MODELNET40,
        "modelnet40_c": modelnet40_c.MODELNET40_C,
        "scanobjectnn": scanobjectnn.SCANOBJECTNN,
    }
)


def problems(data: Data) -> list[str]:
    """What is wrong with the settings, as far as they alone tell."""
    if data.dataset not in DATASETS:
        return [f"There is no data set {data.dataset!r}. {nearest(data.dataset, DATASETS)}"]
    return DATASETS[data.dataset].problems(data)


def protocol_problems(protocol: Protocol, data: Data) -> list[str]:
    """What is wrong with a protocol for these data."""
    return protocol.problems(DATASETS[data.dataset], data) if data.dataset in DATASETS else []


def open_stream(data: Data, protocol: Protocol = PLAIN) -> Stream:
    """Open the data, in the arrangement of the protocol."""
    if found := problems(data) + protocol_problems(protocol, data):
        raise ConfigError("\n".join(found))
    return protocol.arrange(DATASETS[data.dataset], data)
