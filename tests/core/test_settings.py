"""Presets by name, fields over them, and errors that name the nearest."""

from __future__ import annotations

import pytest

import ctta
from ctta import DSS, METHODS, ConfigError
from ctta.testing.networks import make_batch, make_network

X = make_batch("image_bn", 4, 0)


@pytest.mark.parametrize(
    ("method", "fields", "words"),
    [
        ("dsss", {}, ["no method 'dsss'", "'dss'"]),
        ("dss", {"lamda_": 0.5}, ["no field 'lamda_'", "'lambda_'"]),
        ("dss", {"temperature": 0.0}, ["'temperature'", "more than 0", "Got 0.0"]),
        ("dss", {"delta": "median"}, ["'sum' or 'mean' or 'running'", "'median'"]),
        ("dss", {"views": True}, ["'views'", "a whole number"]),
        ("dss", {"threshold": "median"}, ["a number", "'dynamic'", "'median'"]),
        ("tent", {"lr": "fast", "optimizer": "lion", "rate": 1}, ["'lr'", "'optimizer'", "no field 'rate'"]),
        ("dss", {"preset": "cifar"}, ["no preset 'cifar'", "'cifar10'"]),
    ],
)
def test_wrong_names_and_values(method, fields, words):
    with pytest.raises(ConfigError) as caught:
        ctta.create(method, make_network("image_bn"), **fields)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_presets_are_data_and_fields_go_over_them():
    network = make_network("image_bn")
    assert DSS(network, preset="imagenet").config.augmentation_threshold == 0.1
    assert DSS(network, preset="cifar100").config.augmentation_threshold == 0.72
    assert DSS(network, preset="cifar100", augmentation_threshold=0.5).config.augmentation_threshold == 0.5
    own = DSS(network, ctta.methods.dss.DSSConfig(lr=0.5), ema=0.9)
    assert (own.config.lr, own.config.ema, own.preset) == (0.5, 0.9, "own")
    with pytest.raises(ConfigError, match="takes a DSSConfig"):
        DSS(network, ctta.methods.tent.TENTConfig())
    for method in METHODS.values():
        for preset in ("cifar10", "cifar100", "imagenet", "clouds", "paper"):
            method(network, preset=preset)
