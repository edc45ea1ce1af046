"""Settings of the source model: what is wrong with them, and what they load."""

from __future__ import annotations

import pytest
import torch

from ctta.base.errors import ConfigError
from ctta.experiments import experiment as experiments
from ctta.experiments.source_model import Model


def test_model_names_are_checked():
    with pytest.raises(ConfigError, match=r"no model 'wrn28'. Did you mean 'wrn28_10'\?"):
        experiments.make({"model": {"name": "wrn28"}})
    with pytest.raises(ConfigError, match="belong together"):
        experiments.make({"model": {"mean": [0.5, 0.5, 0.5]}})
    with pytest.raises(ConfigError, match="needs its weights"):
        experiments.make({"model": {"name": "wrn28_10"}}).model.load()


def test_embedded_models_have_their_weights_and_point_clouds_no_channels():
    (problem,) = Model("embedded", weights="mine.pt").problems()
    assert "'small_resnet' and 'small_pointnet'" in problem
    (problem,) = Model("embedded_clouds", mean=(0.5,), std=(0.5,)).problems()
    assert "takes point clouds" in problem
    assert Model(None, factory="tiny:network").problems() == []
    assert Model(None).problems() == ["Give a name or a factory."]


def test_a_normalisation_goes_around_the_embedded_model():
    inside = Model("embedded").load()
    around = Model("embedded", mean=(0.5,) * 3, std=(0.5,) * 3).load()
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert not around.training
    assert torch.equal(around(x), inside((x - 0.5) / 0.5))
