"""Where the features are: the head of every kind of classifier, found or named."""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch
from torch import nn

import ctta
from ctta import LAME, ModelError, Normalized
from ctta.core import networks as layers
from ctta.models import MODELS
from ctta.testing.networks import NETWORKS, make_batch, make_network


class Probe(LAME):
    """Gives the features of a batch."""

    def features(self, x):
        with self._scope(x) as x, torch.no_grad():
            return self.run_features(self.source_model, x)


def check_head(model, x, **arguments):
    """The head applied to the features gives the logits: they are what goes into it."""
    probe = Probe(model, **arguments)
    features, logits = probe.features(x)
    head = probe.source_model.get_submodule(probe.head)
    weight = head.weight.flatten(1)
    torch.testing.assert_close(features @ weight.T + head.bias, logits, atol=1e-4, rtol=1e-4)
    assert features.shape == (len(x), weight.shape[1])
    return probe.head


@pytest.mark.parametrize("kind", NETWORKS)
def test_on_the_contract_s_networks(kind):
    assert check_head(make_network(kind), make_batch(kind, 3, 0)) == ("5" if kind == "image_gn" else "head")


@pytest.mark.parametrize("name", MODELS)
def test_every_model_s_head_is_its_last_layer(name):
    with torch.device("meta"):
        model = MODELS[name].build()
    head = layers.find_head(model, MODELS[name].num_classes)
    clouds = {"pointnet": "fc3", "pointnet_stn": "fc3", "pointnet_vanilla": "linear2", "dgcnn": "linear3"}
    expected = {**clouds, "small_pointnet": "fc2"}.get(name)
    assert head == expected if expected else head in ("fc", "classifier", "linear", "head")
    assert layers.feature_width(model.get_submodule(head)) in (64, 128, 256, 512, 640, 1024, 2048)


@pytest.mark.parametrize("name", ["wrn40_2", "resnext29", "resnet18", "resnet26_gn", "cifar_resnet20", "small_resnet"])
def test_on_a_model_of_every_family(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODELS[name].build()
    size = min(MODELS[name].input_size, 64)
    check_head(Normalized(model, (0.5,) * 3, (0.2,) * 3), torch.rand(2, 3, size, size))


class ConvolutionHead(nn.Module):
    """A 1x1 convolution as head, before the pooling or after it."""

    def __init__(self, pool_first: bool) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 7, 3, padding=1)
        self.head = nn.Conv2d(7, 5, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.pool_first = pool_first

    def forward(self, x):
        x = self.body(x).relu()
        return (self.head(self.pool(x)) if self.pool_first else self.pool(self.head(x))).flatten(1)


class TokenHead(nn.Module):
    """A linear head on every token, averaged after it; an attention layer with as many outputs stands before."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 5, 4, 4)
        self.attention = nn.MultiheadAttention(5, 1, batch_first=True)
        self.heads = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 5))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.heads(self.attention(x, x, x)[0]).mean(1)


class Auxiliary(nn.Module):
    """A second classifier that only training uses, registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 6)
        self.fc = nn.Linear(6, 5)
        self.auxiliary = nn.Linear(6, 5)

    def forward(self, x):
        return self.fc(self.body(x.mean((2, 3))))


class Distilled(nn.Module):
    """Two heads, each on a token of its own; the answer is their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 6, 4, 4)
        self.norm = nn.LayerNorm(6)
        self.head, self.head_dist = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x):
        x = self.norm(self.patch(x).flatten(2).transpose(1, 2))
        return (self.head(x[:, 0]) + self.head_dist(x[:, 1])) / 2


class LayeredHead(nn.Module):
    """A classifier of two layers, with a norm and a dropout around the last."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 6, 3)
        self.head = nn.ModuleDict({"fc1": nn.Linear(6, 9), "norm": nn.LayerNorm(9), "fc2": nn.Linear(9, 5)})
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x = self.head["fc1"](self.body(x).mean((2, 3)))
        return self.head["fc2"](self.drop(self.head["norm"](x.relu())))


class CachedBias(nn.Module):
    """Adds a learned bias to the features; in eval mode it is looked up once and kept."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(6))
        self.attention_bias_cache: dict[str, torch.Tensor] = {}
        self.body, self.norm, self.fc = nn.Linear(3, 6), nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, x):
        if "cpu" not in self.attention_bias_cache:
            self.attention_bias_cache["cpu"] = self.bias.flip(0)
        return self.fc(self.norm(self.body(x.mean((2, 3))) + self.attention_bias_cache["cpu"]))


X = torch.rand(4, 3, 8, 8)


@pytest.mark.parametrize(
    "model", [ConvolutionHead(True), ConvolutionHead(False), TokenHead()], ids=["pooled", "pooling", "tokens"]
)
def test_heads_of_other_kinds(model):
    check_head(model, X)


def test_of_several_heads_the_last_is_taken_and_of_several_layers_too():
    assert check_head(LayeredHead(), X) == "head.fc2"
    model = Distilled().eval()
    probe = Probe(model)
    features, _ = probe.features(X)
    assert probe.head == "head_dist"
    tokens = model.norm(model.patch(X).flatten(2).transpose(1, 2))
    torch.testing.assert_close(features, tokens[:, 1])


def test_nothing_computed_from_parameters_outlives_an_update():
    """The answer after two steps is that of a model which never kept anything."""
    adapter = ctta.create("dss", CachedBias(), views=1, augmentation_threshold=1.0, lr=0.1)
    for _ in range(2):
        adapter(X)
    network = adapter.student
    assert network.bias.abs().max() > 0
    fresh = CachedBias()
    fresh.load_state_dict(network.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(network(X), fresh(X))


def test_a_head_can_be_named_with_or_without_the_modules_around_it():
    with pytest.raises(ModelError, match=r"'auxiliary', and it was given nothing.*head='fc'"):
        check_head(Auxiliary(), X)
    assert check_head(Auxiliary(), X, head="fc") == "fc"
    assert check_head(Normalized(Auxiliary(), (0.5,) * 3, (0.2,) * 3), X, head="fc") == "model.fc"


@pytest.mark.parametrize("name", ["ffc", "body.weight", "heads"])
def test_a_wrong_name_is_an_error_that_tells_the_right_ones(name):
    with pytest.raises(ModelError, match=r"must name one layer"):
        LAME(TokenHead(), head=name)


def test_a_model_without_a_head_is_an_error_that_says_what_to_do():
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ModelError, match=r"no 1x1 convolution with 5 outputs.*head='fc'"):
        ctta.LAME(model, classes=5)


# Real packages, where they are installed. Their weights are random and no file is read.

TIMM = [
    *("resnet18", "resnext50_32x4d", "resnetv2_50x1_bit", "regnetx_002", "densenet121", "convnext_atto"),
    *("mobilenetv3_small_050", "efficientnet_b0", "poolformer_s12", "mixer_s16_224", "caformer_s18"),
    *("vit_tiny_patch16_224", "deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"),
    *("swin_tiny_patch4_window7_224", "levit_128s"),
]
TORCHVISION = {
    "resnet18": "fc",
    "mobilenet_v3_small": "classifier.3",
    "densenet121": "classifier",
    "vit_b_16": "heads.head",
    "convnext_tiny": "classifier.2",
    "efficientnet_b0": "classifier.1",
    "squeezenet1_1": "classifier.1",
    "swin_t": "head",
}


def package(name):
    """A package that may need torchvision, whose compiled part does not load beside every build of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importlib.import_module("torchvision")
        except ModuleNotFoundError:
            pass
        except RuntimeError:
            for op in ("nms", "qnms"):
                torch.library.define(f"torchvision::{op}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
        return pytest.importorskip(name, reason=f"{name} is an extra: pip install 'ctta[{name.partition('.')[0]}]'")


@pytest.mark.parametrize("name", TIMM)
def test_timm_s_heads(name):
    timm = package("timm")
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=7)
    assert layers.class_count(model) == 7
    own = model.get_classifier()
    last = (own[-1] if isinstance(own, tuple) else own).modules()
    assert model.get_submodule(layers.find_head(model, 7)) in list(last)


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_s_heads(name):
    models = package("torchvision.models")
    with torch.device("meta"):
        model = models.get_model(name, weights=None, num_classes=7)
    assert layers.find_head(model, 7) == TORCHVISION[name]


@pytest.mark.parametrize("method", ["adacontrast", "lame", "dss"])
def test_methods_run_on_a_timm_model_that_keeps_its_biases(method):
    model = package("timm").create_model("levit_128s", num_classes=7, img_size=64)
    adapter = ctta.create(method, model, **({"views": 1, "augmentation_threshold": 1.0} if method == "dss" else {}))
    for seed in range(2):
        x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
        assert adapter(x).isfinite().all()
