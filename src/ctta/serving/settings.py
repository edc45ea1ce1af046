"""The settings of a service, as flags and as a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ctta.base import plain_yaml
from ctta.base.config import Config, setting
from ctta.base.errors import ConfigError
from ctta.core.device import AUTO

Scalar = float | int | bool | str


@dataclass(frozen=True)
class ServeSettings(Config):
    """What is served, how streams are kept, and what a request may be."""

    model: str = setting("embedded", "As in `ctta adapt`: embedded, a name, timm:NAME, hf:NAME, or file.py:function.")
    name: str = setting("model", "The name of the model in addresses: /v2/models/NAME.")
    method: str = setting("sift", "A name from `ctta list methods`, or file.py:Class.")
    preset: str | None = setting(None, "Preset of the method; none: safe settings by the shape of the input.")
    changes: Mapping[str, Scalar] | None = setting(None, "Single fields of the method's settings.")
    weights: str | None = setting(None, "File with the weights of the model.")
    mean: tuple[float, ...] | None = setting(None, "Mean, if the model does not normalise.")
    std: tuple[float, ...] | None = setting(None, "Standard deviation, likewise.")
    size: int | None = setting(None, "Pixels per side of the images, if the model does not say it.", low=1, high=10_000)
    channels: int = setting(3, "Channels of the images.", low=1, high=64)
    classes: str | None = setting(None, "Text file with the names of the classes, one per line.")
    seed: int = setting(0, "Seed of the method.", low=0)
    guard: bool = setting(True, "Take back what a stream has learned if it does harm.")
    detect: bool = setting(True, "Detect changes of domain.")
    device: str = setting(AUTO, "cpu, cuda, cuda:1, mps, or auto.")

    state: str | None = setting(None, "Folder for what streams have learned; none: it is lost when the service ends.")
    save_updates: int = setting(50, "A stream is saved after so many batches and actions at the latest.", low=1)
    save_seconds: float = setting(
        10.0, "A stream is saved about so many seconds after a batch or an action at the latest.", low=0.0
    )
    streams: int = setting(256, "Streams in memory; the least recently used ones are put away.", low=1, high=100_000)
    stream_bytes: int = setting(2**30, "Bytes of all streams in memory.", low=1)
    stored: int = setting(10_000, "Streams in all, in memory and put away.", low=1)

    batch: int = setting(32, "Samples of one stream that are collected into one batch.", low=1, high=65_536)
    max_delay: float = setting(0.005, "Seconds that a request waits for others of its stream.", low=0.0, high=60.0)
    queue: int = setting(256, "Requests that may wait, of all streams.", low=1)
    stream_queue: int = setting(64, "Requests of one stream that may wait.", low=1)
    deadline: float = setting(30.0, "Seconds after which a request that waits is given up.", low=0.0, open_low=True)

    body_bytes: int = setting(2**25, "Bytes of a request.", low=1)
    samples: int = setting(256, "Samples of a request.", low=1)
    picture_pixels: int = setting(2**24, "Pixels of a picture.", low=1)
    pictures: int = setting(8, "Last pictures of a stream that the page shows; 0: none are kept.", low=0, high=64)
    labelled_streams: int = setting(50, "Streams that /metrics lists by name; more are counted only.", low=0)
    connections: int = setting(512, "Connections at a time.", low=1)

    host: str = setting("127.0.0.1", "Address to listen at.")
    port: int = setting(8000, "Port to listen at; 0: any that is free.", low=0, high=65_535)
    certificate: str | None = setting(None, "File with the certificate, for TLS.")
    key: str | None = setting(None, "File with its private key.")
    log: Literal["json", "text"] = setting("json", "Form of the log lines on standard error.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs a certificate and its key. Give both, or none.")

    @classmethod
    def read(cls, path: Path | str | None, given: Mapping[str, Any]) -> ServeSettings:
        """From a YAML file, if there is one, and from what was given besides, which goes first."""
        values = {} if path is None else plain_yaml.read(Path(path))
        if not isinstance(values, dict):
            raise ConfigError(f"{path} must hold a mapping of settings. Got {type(values).__name__}.")
        return cls.make({**values, **{name: value for name, value in given.items() if value is not None}})
