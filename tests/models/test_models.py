"""The table of models: every family is in it, and every network has the public layout."""

from __future__ import annotations

import pkgutil
from functools import partial

import pytest
import torch

import ctta.models
from ctta.models import MODELS
from networks_by_name import on_meta, parameters

NOT_FAMILIES = {"entry", "load", "weights", "torch_file", "pooling"}
NOT_FAMILIES |= {"timm_models", "torchvision_models", "huggingface_models", "preprocessing"}


def test_every_family_has_a_line() -> None:
    files = {module.name for module in pkgutil.iter_modules(ctta.models.__path__)} - NOT_FAMILIES
    builders = [e.builder.func if isinstance(e.builder, partial) else e.builder for e in MODELS.values()]
    assert {builder.__module__.rpartition(".")[2] for builder in builders} == files


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("wrn28_10", 36_479_194),
        ("wrn40_2", 2_243_546),
        ("resnext29", 6_900_132),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("cifar_resnet20", 269_722),
        ("cifar_resnet32", 464_154),
        ("cifar_resnet44", 658_586),
        ("cifar_resnet56", 853_018),
        ("cifar_resnet110", 1_727_962),
        ("cifar100_resnet56_b", 861_620),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    assert parameters(on_meta(name)) == count


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "wrn28_10",
            "conv1.weight block1.layer.0.bn1.weight block1.layer.0.convShortcut.weight block3.layer.3.conv2.weight",
        ),
        ("wrn28_10", "bn1.running_var fc.weight fc.bias"),
        ("resnext29", "conv_1_3x3.weight bn_1.weight stage_1.0.conv_reduce.weight stage_1.0.bn_reduce.bias"),
        (
            "resnext29",
            "stage_2.1.conv_conv.weight stage_2.1.bn.weight stage_3.2.bn_expand.running_mean classifier.bias",
        ),
        ("resnext29", "stage_3.0.downsample.0.weight stage_3.0.downsample.1.running_var stage_3.2.conv_expand.weight"),
        (
            "resnet18",
            "conv1.weight bn1.bias layer1.0.conv1.weight layer2.0.downsample.1.weight layer4.1.bn2.weight fc.bias",
        ),
        ("resnet50", "layer1.0.downsample.0.weight layer1.0.conv3.weight layer3.5.bn3.running_mean fc.weight"),
        ("resnet26", "conv1.weight layer1.0.bn1.running_mean layer3.3.conv2.weight bn.weight fc.weight"),
        ("resnet26_gn", "layer1.0.bn1.weight bn.bias"),
        ("cifar_resnet20", "conv1.weight layer3.2.bn2.running_var linear.weight linear.bias"),
        ("cifar_resnet20_b", "layer2.0.downsample.0.weight layer2.0.downsample.1.bias fc.weight"),
    ],
)
def test_names_are_the_public_ones(name: str, keys: str) -> None:
    assert set(keys.split()) <= set(on_meta(name).state_dict())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_table(name: str) -> None:
    entry = MODELS[name]
    assert len(entry.mean) == len(entry.std) == 3
    assert min(entry.std) > 0
    assert entry.note
    assert entry.source.endswith(".")
    for checkpoint in entry.checkpoints:
        assert len(checkpoint.sha256) in (8, 64)
        assert 0 < checkpoint.error < 100
    x = torch.empty(2, *entry.input_shape, device="meta")
    assert on_meta(name).eval()(x).shape == (2, entry.num_classes)


@pytest.mark.parametrize("name", ["wrn40_2", "resnext29", "resnet18", "resnet26", "resnet26_gn", "cifar_resnet20_b"])
def test_a_batch_goes_through_and_gradients_come_back(name: str) -> None:
    model = MODELS[name].build(num_classes=7)
    logits = model(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 7)
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
