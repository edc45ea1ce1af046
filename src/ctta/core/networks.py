"""What a method may touch in a network: norm layers of every kind, the head and its features, groups of parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ctta.base.errors import InputError, ModelError, nearest

NORM_LAYERS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class Normalized(nn.Module):
    """Puts a model's own normalisation inside it, so that the outside sees images in [0, 1].

    >>> model = Normalized(nn.Flatten(), mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    >>> model(torch.ones(1, 3, 1, 1)).tolist()
    [[1.0, 1.0, 1.0]]
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: nn.Module,
        mean: Sequence[float] | Tensor,
        std: Sequence[float] | Tensor,
        size: int | None = None,  # pixels per side of the images it was trained on, if it is known
    ) -> None:
        super().__init__()
        self.model, self.size = model, size
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros((), device="cpu"))
        self.register_buffer("mean", torch.as_tensor(mean).to(like).reshape(-1, 1, 1))
        self.register_buffer("std", torch.as_tensor(std).to(like).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(self.normalize(x))
        return logits

    def normalize(self, x: Tensor) -> Tensor:
        """What the model inside sees."""
        if x.dim() == 3:
            raise InputError(
                f"Normalized is for images (N, C, H, W), and this is a batch of shape {tuple(x.shape)}. Point clouds "
                "have no mean and standard deviation of channels: give the model as it is, without mean and std."
            )
        return (x - self.mean) / self.std


def norm_layers(module: nn.Module) -> list[nn.Module]:
    """Every norm layer, in the order of registration."""
    return [layer for layer in module.modules() if isinstance(layer, NORM_LAYERS)]


def norm_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Weights and biases of all norm layers."""
    return [parameter for layer in norm_layers(module) for parameter in layer.parameters(recurse=False)]


def class_count(module: nn.Module) -> int | None:
    """The width of the last linear layer (or 1x1 convolution), which is the head of nearly every classifier."""
    widths = [width for layer in module.modules() if (width := _outputs(layer)) is not None]
    return widths[-1] if widths else None


def find_head(module: nn.Module, classes: int, name: str | None = None) -> str:
    """The name of the classifier's last layer, whose input are the features.

    It is the last linear layer or 1x1 convolution with as many outputs as there are classes, in the order of
    registration. This also holds if a classifier ends in several layers, or if it averages several heads (distilled
    transformers). A `name` goes first; it may leave out the outer modules: "fc" for "model.fc".
    """
    if name is None:
        heads: list[str] = [key for key, layer in module.named_modules() if _outputs(layer) == classes]
        if heads:
            return heads[-1]
        raise ModelError(
            f"The head was not found: the model has no linear layer and no 1x1 convolution with {classes} outputs. "
            "Name the layer whose input are the features: head='fc'."
        )
    named: list[str] = [key for key, _ in module.named_modules() if key == name or key.endswith("." + name)]
    heads = [name] if name in named else named
    if len(heads) != 1 or not _has_width(module.get_submodule(heads[0])):
        layers = [key for key, layer in module.named_modules() if _outputs(layer) is not None]
        raise ModelError(
            f"head={name!r} must name one layer with a weight of shape (classes, features). {nearest(name, layers)}"
        )
    return heads[0]


def feature_width(head: nn.Module) -> int:
    """How many features go into a head."""
    weight = head.weight
    assert isinstance(weight, Tensor)
    return weight.shape[1]


def pooled(features: Tensor, head: nn.Module) -> Tensor:
    """What went into a head as (N, D): the mean over positions if there are any."""
    if features.dim() == 2:
        return features
    return features.flatten(2).mean(2) if _is_convolution(head) else features.flatten(1, -2).mean(1)


def clear_caches_before_passes(module: nn.Module) -> None:
    """Let no layer keep for later passes what it computed from its parameters, which change in between.

    Attention layers of timm do so in eval mode (LeViT, TinyViT, EfficientFormer): in `attention_bias_cache`.
    """
    for layer in module.modules():
        if isinstance(getattr(layer, "attention_bias_cache", None), dict):
            layer.register_forward_pre_hook(_clear_cache)


def _clear_cache(layer: Any, _: Any) -> None:
    layer.attention_bias_cache.clear()


def remove_hook(layer: nn.Module, hook: Callable[..., Any]) -> None:
    """Take a forward pre-hook off a layer, wherever it was copied from."""
    for key in [key for key, found in layer._forward_pre_hooks.items() if found is hook]:
        del layer._forward_pre_hooks[key]
        layer._forward_pre_hooks_with_kwargs.pop(key, None)


def remove_own_hooks(module: nn.Module) -> None:
    """Take off what `clear_caches_before_passes` put on, for a module whose parameters change no more."""
    for layer in module.modules():
        if isinstance(cache := getattr(layer, "attention_bias_cache", None), dict):
            cache.clear()
            remove_hook(layer, _clear_cache)


def has_hooks(module: nn.Module) -> bool:
    """Whether the network has forward hooks."""
    hooks = ((*one._forward_hooks.values(), *one._forward_pre_hooks.values()) for one in module.modules())
    return any(hook is not _clear_cache for found in hooks for hook in found)


def shared_weight_copy(module: nn.Module) -> nn.Module:
    """A module of its own with the same tensors."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})


def overwrite(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy values in place, tensor by tensor."""
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


@torch.no_grad()
def interpolate(weights: Iterable[Tensor], targets: Iterable[Tensor], weight: float | Tensor) -> None:
    """weights <- (1 - weight) weights + weight targets, in place. A weight that is a tensor is 0-d."""
    pairs = [pair for pair in zip(weights, targets, strict=True) if pair[0].is_floating_point()]
    moved, aims = [own for own, _ in pairs], [target for _, target in pairs]
    if isinstance(weight, Tensor):
        torch._foreach_lerp_(moved, aims, [weight.to(own.dtype).expand_as(own) for own in moved])
    else:
        torch._foreach_lerp_(moved, aims, weight)


def _is_convolution(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)


def _outputs(layer: nn.Module) -> int | None:
    """How many outputs a linear layer or a 1x1 convolution has; none for another layer."""
    if isinstance(layer, nn.Linear):
        return layer.out_features
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and all(size == 1 for size in layer.kernel_size):
        return layer.out_channels
    return None


def _has_width(layer: nn.Module) -> bool:
    weight = getattr(layer, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() >= 2
