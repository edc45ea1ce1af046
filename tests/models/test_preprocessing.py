"""What timm's and Hugging Face's own descriptions say about images; both packages are played by small objects."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import own
from ctta.base.errors import ConfigError
from ctta.core.networks import Normalized
from ctta.experiments.check import check
from ctta.models import from_factory
from ctta.models.preprocessing import Preprocessing, is_normalized, known_size, of_processor, of_timm
from ctta.running.adapt_folder import plan_adaptation

CODE = """
from types import SimpleNamespace

import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


class LikeTransformers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, pixel_values):
        return SimpleNamespace(logits=self.net(pixel_values))


def plain():
    return Net()


def timm():
    net = Net()
    net.pretrained_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "input_size": (3, 40, 40)}
    return net


def pair():
    images = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4], "size": {"height": 40, "width": 40}}
    return LikeTransformers(), SimpleNamespace(to_dict=lambda: images)


def odd():
    return LikeTransformers(), SimpleNamespace(to_dict=lambda: {"size": 3})
"""
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


@pytest.fixture
def path(tmp_path):
    return own.write(tmp_path / "nets.py", CODE)


@pytest.mark.parametrize("name", ["timm", "pair"])
def test_mean_std_and_size_without_asking(path, name):
    x = torch.rand(2, 3, 20, 20)
    model, plain = from_factory(f"{path}:{name}"), from_factory(f"{path}:plain")
    expected = plain((x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1))
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert (known_size(model), known_size(plain)) == (40, None)
    assert (is_normalized(model), is_normalized(plain)) == (True, False)
    given = from_factory(f"{path}:{name}", mean=(0.0,), std=(1.0,))
    assert torch.allclose(given(x), plain(x), atol=1e-6)
    assert known_size(given) == 40


def test_weights_of_a_pair_have_the_model_s_own_names(path, tmp_path):
    made = from_factory(f"{path}:pair")
    state = {key.removeprefix("model.model."): value + 1 for key, value in made.state_dict().items() if "net" in key}
    state = {key: value.contiguous() for key, value in state.items()}
    save_file(state, tmp_path / "w.safetensors")
    loaded = from_factory(f"{path}:pair", tmp_path / "w.safetensors")
    assert torch.equal(loaded.state_dict()["model.model.net.4.bias"], made.state_dict()["model.model.net.4.bias"] + 1)


def test_a_processor_without_mean(path):
    with pytest.raises(ConfigError, match="the image processor gives no image_mean and image_std"):
        from_factory(f"{path}:odd")


@pytest.mark.parametrize(
    ("images", "size"),
    [
        ({"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 256}}, 224),
        ({"size": {"shortest_edge": 256}}, 256),
        ({"size": 64}, 64),
        ({}, None),
    ],
)
def test_sizes_of_processors(images, size):
    known = {"image_mean": [0.5], "image_std": [0.25]}
    assert of_processor({**known, **images}) == Preprocessing((0.5,), (0.25,), size)
    assert of_processor({**images, "do_normalize": False}) == Preprocessing((0.0,) * 3, (1.0,) * 3, size)


@pytest.mark.parametrize("config", [None, "x", {}, {"mean": (0.5,)}])
def test_what_is_no_configuration_of_timm(config):
    model = nn.Identity()
    model.pretrained_cfg = config
    assert of_timm(model) is None
    assert of_timm(SimpleNamespace()) is None


def test_ctta_adapt_takes_the_size_and_warns_only_without_normalisation(path, tmp_path, caplog):
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(np.random.default_rng(0).integers(0, 256, (4, 50, 60, 3), np.uint8)):
        Image.fromarray(image).save(tmp_path / "photos" / f"{number}.png")
    with caplog.at_level(logging.WARNING, "ctta"):
        plan = plan_adaptation(f"{path}:timm", tmp_path / "photos", method="tent")
    assert plan.samples.shape == (3, 40, 40)
    assert "No normalisation" not in caplog.text
    assert isinstance(plan.adapter.adapter.source_model, Normalized)
    asked = plan_adaptation(f"{path}:timm", tmp_path / "photos", method="tent", size=24)
    assert asked.samples.shape == (3, 24, 24)
    with caplog.at_level(logging.WARNING, "ctta"):
        plan = plan_adaptation(f"{path}:plain", tmp_path / "photos", method="tent")
    assert "No normalisation is known" in caplog.text
    assert plan.samples.shape == (3, 50, 60)


@pytest.mark.parametrize(("name", "told"), [("plain", True), ("timm", False)])
def test_ctta_check_says_if_no_normalisation_is_known(path, name, told):
    data = {"domains": ["fog"], "images": 8, "batch": 4}
    spec = {"data": data, "model": {"name": None, "factory": f"{path}:{name}"}, "methods": ["source"]}
    said = [finding.text for finding in check(spec) if finding.about == "model" and finding.kind == "remark"]
    assert bool(said) == told
    assert all("no normalisation is known" in text for text in said)
