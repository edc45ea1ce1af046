"""What a method may touch in a network: norm layers of every kind, their statistics, the head, parameter groups.

Statistics of a BatchNorm layer come in four kinds. None of them loses the source's own, which stay in the layer.

    source    the running statistics the model was trained with
    batch     those of the current batch
    mixed     (1 - share) source + share batch
    running   an average that starts at the source's and follows the stream, so that batches of 1 to 8 work
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ctta.base.errors import InputError, ModelError, nearest

Statistics = Literal["source", "batch", "mixed", "running"]

NORM_LAYERS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class Normalized(nn.Module):
    """Puts a model's own normalisation inside it, so that the outside sees images in [0, 1].

    >>> model = Normalized(nn.Flatten(), mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    >>> model(torch.ones(1, 3, 1, 1)).tolist()
    [[1.0, 1.0, 1.0]]
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        super().__init__()
        self.model = model
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
                f"Normalized is for images (N, C, H, W), and this is a batch of shape {tuple(x.shape)}. Clouds have no "
                "mean and standard deviation of channels: give the model as it is, without mean and std."
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
    """The name of the classifier's last layer. What goes into it are the features.

    It is the last linear layer or 1x1 convolution with as many outputs as there are classes, in the order of
    registration. So it is where a classifier ends in several layers, and where it answers with the mean of several
    heads (distilled transformers). A `name` goes first; it may leave out the outer modules: "fc" for "model.fc".
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
    """What went into a head as (N, D): the mean over positions where there are any."""
    if features.dim() == 2:
        return features
    return features.flatten(2).mean(2) if _is_convolution(head) else features.flatten(1, -2).mean(1)


def forget_between_passes(module: nn.Module) -> None:
    """Let no layer keep for later passes what it computed from its parameters, which change in between.

    Attention layers of timm do so in eval mode (LeViT, TinyViT, EfficientFormer): in `attention_bias_cache`.
    """
    for layer in module.modules():
        if isinstance(getattr(layer, "attention_bias_cache", None), dict):
            layer.register_forward_pre_hook(_forget)


def _forget(layer: Any, _: Any) -> None:
    layer.attention_bias_cache.clear()


class StreamStatistics:
    """A forward pre-hook that makes a BatchNorm layer in eval mode normalise with mixed or running statistics.

    The layer goes on normalising with the source's. The hook maps its input so that the result is the one that the
    wanted statistics would give: x' = k x + c with k = sqrt((var_source + eps) / (var + eps)) and
    c = mean_source - k mean. So any subclass with a forward of its own (norm and activation in one) works too, and
    gradients flow through the batch's share as they do in training.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.kind: Statistics = "source"
        self.seen: list[tuple[Tensor, Tensor]] = []  # this batch's statistics, one entry a pass

    def __call__(
        self, layer: _BatchNorm, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self.kind == "source":
            return None
        x: Tensor = args[0] if args else kwargs["input"]
        dims = [d for d in range(x.dim()) if d != 1]
        source_mean, source_var = _source(layer)
        variance, mean = torch.var_mean(x.to(source_mean.dtype), dims, correction=0)  # under autocast x may be narrower
        if self.kind == "running":
            self.seen.append((mean.detach(), variance.detach()))
        if self.kind in ("mixed", "running"):
            start_mean, start_var = _stream(layer) if self.kind == "running" else (source_mean, source_var)
            mean, variance = start_mean.lerp(mean, self.share), start_var.lerp(variance, self.share)
        scale = ((source_var + layer.eps) / (variance + layer.eps)).sqrt()
        shift = source_mean - scale * mean
        shape = [-1 if d == 1 else 1 for d in range(x.dim())]
        return (torch.addcmul(shift.to(x.dtype).view(shape), x, scale.to(x.dtype).view(shape)),), {}

    def commit(self, layer: _BatchNorm) -> None:
        """The average follows what this batch's passes saw; a non-finite batch leaves it as it is."""
        if self.seen:
            for average, values in zip(_stream(layer), zip(*self.seen, strict=True), strict=True):
                target = torch.stack(values).mean(0)
                average.copy_(torch.where(target.isfinite(), average.lerp(target, self.share), average))
        self.seen.clear()


def install_statistics(module: nn.Module, kind: Statistics, share: float) -> None:
    """Prepare every BatchNorm layer for `kind`, once; then `use_statistics` switches between it and the source's."""
    for layer in _batch_norms(module):
        # Synchronised layers would wait for other processes in training mode, so batch statistics go through the hook.
        if kind in ("mixed", "running") or (kind == "batch" and isinstance(layer, nn.SyncBatchNorm)):
            layer.stream = StreamStatistics(share)  # type: ignore[assignment]
            layer.register_forward_pre_hook(layer.stream, with_kwargs=True)  # type: ignore[arg-type]
        if kind == "running":
            mean, variance = _source(layer)
            layer.register_buffer("stream_mean", mean.clone())
            layer.register_buffer("stream_var", variance.clone())
    use_statistics(module, kind)


def use_statistics(module: nn.Module, kind: Statistics) -> None:
    """Normalise with `kind` from now on. Layers that never had statistics of their own always use the batch's."""
    for layer in _batch_norms(module):
        hook = _hook(layer)
        if hook is not None:
            hook.kind = kind
        # In training mode without tracking, a layer uses the batch's statistics and leaves its own alone.
        native = kind == "batch" and hook is None
        layer.training = native
        layer.track_running_stats = not native


@contextmanager
def source_statistics(module: nn.Module, kind: Statistics) -> Iterator[None]:
    """Normalise with the source's statistics inside the block, with `kind` after it."""
    use_statistics(module, "source")
    try:
        yield
    finally:
        use_statistics(module, kind)


def commit_statistics(module: nn.Module) -> None:
    """Let running statistics take in what the passes since the last call saw."""
    for layer in _batch_norms(module):
        if hook := _hook(layer):
            hook.commit(layer)


def discard_statistics(module: nn.Module) -> None:
    """Forget what the passes since the last commit saw."""
    for layer in _batch_norms(module):
        if hook := _hook(layer):
            hook.seen.clear()


def twin(module: nn.Module) -> nn.Module:
    """A module of its own with the same tensors."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})


def hooked(module: nn.Module) -> bool:
    """Whether somebody listens to the network's passes, maybe from a place that twins share."""
    hooks = ((*one._forward_hooks.values(), *one._forward_pre_hooks.values()) for one in module.modules())
    return any(hook is not _forget for found in hooks for hook in found)


def can_group(module: nn.Module) -> bool:
    """Whether `grouped_statistics` knows every layer of the network that looks across the batch."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    plain = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return all(type(layer) in plain and not _hook(layer) and "forward" not in vars(layer) for layer in norms)


@contextmanager
def grouped_statistics(module: nn.Module, groups: int) -> Iterator[None]:
    """Inside the block a batch is `groups` batches one after the other, each normalised as if it came alone."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)] if groups > 1 else []
    norms = [layer for layer in norms if layer.training or layer.running_mean is None]
    try:
        for layer in norms:
            layer.forward = partial(_normalize_groups, layer.forward, groups)  # type: ignore[method-assign]
        yield
    finally:
        for layer in norms:
            del layer.forward


def _normalize_groups(normalize: Callable[[Tensor], Tensor], groups: int, x: Tensor) -> Tensor:
    return torch.cat([normalize(part) for part in x.chunk(groups)])


def restart_statistics(module: nn.Module) -> None:
    """Running statistics go back to the source's."""
    for layer in _batch_norms(module):
        if hasattr(layer, "stream_mean"):
            overwrite(_stream(layer), _source(layer))


@contextmanager
def training_statistics(module: nn.Module) -> Iterator[None]:
    """As in training: inside, the batch's statistics normalise and a layer's own follow them by its momentum.

    A layer's own stay as they were where a pass fails or gives what is not finite. Synchronised layers keep theirs.
    The backward pass belongs inside too.
    """
    followers = [layer for layer in _batch_norms(module) if not isinstance(layer, nn.SyncBatchNorm)]
    before = [[statistic.clone() for statistic in _source(layer)] for layer in followers]
    failed = True
    try:
        for layer in followers:
            layer.training = True
        yield
        failed = False
    finally:
        for layer, old in zip(followers, before, strict=True):
            layer.training = False
            for statistic, value in zip(_source(layer), old, strict=True):
                statistic.copy_(value if failed else torch.where(statistic.isfinite(), statistic, value))


def overwrite(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy values in place, tensor by tensor."""
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


def assign_finite(state: Tensor, value: Tensor) -> Tensor:
    """Copy a value into a buffer, except what is not finite."""
    return state.copy_(torch.where(value.isfinite(), value, state))


@torch.no_grad()
def move(weights: Iterable[Tensor], targets: Iterable[Tensor], share: Tensor) -> None:
    """weights <- (1 - share) weights + share targets, in place. The share is 0-d and stays on the device."""
    pairs = [pair for pair in zip(weights, targets, strict=True) if pair[0].is_floating_point()]
    moved, aims = [weight for weight, _ in pairs], [target for _, target in pairs]
    torch._foreach_lerp_(moved, aims, [share.to(weight.dtype).expand_as(weight) for weight in moved])


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


def _batch_norms(module: nn.Module) -> list[_BatchNorm]:
    return [m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


def _hook(layer: _BatchNorm) -> StreamStatistics | None:
    hook = getattr(layer, "stream", None)
    return hook if isinstance(hook, StreamStatistics) else None


def _source(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean, layer.running_var


def _stream(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    mean, variance = layer.stream_mean, layer.stream_var
    assert isinstance(mean, Tensor)
    assert isinstance(variance, Tensor)
    return mean, variance
