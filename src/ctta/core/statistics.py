"""Statistics of BatchNorm layers. No kind loses the source's own, which stay in the layer.

source    the running statistics that the model was trained with
batch     those of the current batch
mixed     (1 - weight) source + weight batch
running   an average that starts at the source's and follows the stream, so that batches of 1 to 8 work
robust    RoTTA's: that average with its step, 0.05, and without a limit to what one batch may do; one step per batch,
          with the mean of its passes
instance  NOTE's: the source's, corrected per sample and channel where its own are too far away to be chance; in NOTE
          the source's also follow its memory
auto      mixed, each layer by how far the batch's shift exceeds what its images and their classes explain; beside a
          small batch the recent images count too, see `shares`
average   for methods with running or robust statistics: the average as it is, whatever the batch is
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ctta.core import shares
from ctta.core.networks import overwrite, remove_hook

Statistics = Literal["source", "batch", "mixed", "running", "robust", "instance", "auto", "average"]
HOOKED = ("mixed", "running", "robust", "instance", "auto", "average")  # the layer's own kernel does the others
FOLLOWING = ("running", "robust")  # the average follows the stream
AVERAGED = (*FOLLOWING, "average")

# What one batch may do to running statistics: it counts as no farther away than so many standard deviations, with a
# variance no more than so many times larger or smaller. Corruptions stay within; pixels from 0 to 255 do not.
MOST_DEVIATIONS, WIDEST = 3.0, 9.0
ROBUST_STEP = 0.05  # RoTTA's alpha
CHANCE = 4.0  # NOTE's k: deviations of the statistics of an instance that are taken for chance
STREAM_BUFFERS = ("stream_mean", "stream_var")  # names of the average along the stream, in a layer
RECENT = "stream_recent"  # and of what auto statistics know of the recent images
OURS = (*STREAM_BUFFERS, RECENT)


class StreamStatistics:
    """A forward pre-hook that makes a BatchNorm layer in eval mode normalise with statistics other than its own.

    The layer goes on normalising with the source's. The hook maps its input so that the result is the one that the
    wanted statistics would give: x' = k x + c with k = sqrt((var_source + eps) / (var + eps)) and
    c = mean_source - k mean. So any subclass with a forward of its own (norm and activation in one) works too, and
    gradients flow through the batch's part as they do in training.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.constant = False  # the batch's statistics are taken as running ones are: unbiased, and without gradient
        self.kind: Statistics = "source"
        self.seen: list[tuple[Tensor, Tensor]] = []  # this batch's statistics, one entry per pass
        self.belief = shares.CAUTIOUS  # what is known of this batch
        self.blended: shares.Blended | None = None  # in the last pass, for auto statistics
        self.origin: StreamStatistics | None = None  # that of the same layer in the source network, if this is another
        self.correction: shares.Correction | None = None  # of this batch's statistics, in the source network
        self.gathered: Tensor | None = None  # the recent images and this batch's, in its first pass

    def __call__(
        self, layer: _BatchNorm, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self.kind == "source":
            return None
        x: Tensor = args[0] if args else kwargs["input"]
        source_mean, source_var = _source(layer)
        mean, variance = self._statistics(layer, x.to(source_mean.dtype))  # under autocast x may be narrower
        scale = ((source_var + layer.eps) / (variance + layer.eps)).sqrt()
        shift = source_mean - scale * mean
        shape = (*scale.shape[:-1], -1, *[1] * (x.dim() - 2))  # (C,), or (N, C) if each sample has its own
        return (torch.addcmul(shift.to(x.dtype).view(shape), x, scale.to(x.dtype).view(shape)),), {}

    def _statistics(self, layer: _BatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance to normalise with."""
        source_mean, source_var = _source(layer)
        others = (0, *range(2, x.dim()))
        if self.kind == "auto":
            if x[0, 0].numel() == 1:
                self.blended = shares.Blended.source(source_mean, source_var)
                return self.blended.mean, self.blended.variance
            images = shares.Gathered.of(x, source_mean, source_var, layer.eps).with_recent(_recent(layer))
            if self.gathered is None:
                self.gathered = images.rows.detach()
            correction = self.origin.correction if self.origin else None
            if correction is not None and correction.samples == len(x):
                return correction.of(*images.statistics(), layer.eps)
            self.blended = shares.blend(images, self.belief)
            return self.blended.mean, self.blended.variance
        if self.kind == "instance":
            return instance_statistics(x, source_mean, source_var, layer.eps)
        if self.kind == "average":
            return _stream(layer)
        mean, variance = shares.moments(x.detach() if self.constant else x, others)
        if self.constant:
            values = x.numel() // x.shape[1]
            variance = variance * (values / max(values - 1, 1))
        if self.kind in FOLLOWING:
            self.seen.append((mean.detach(), variance.detach()))
        if self.kind != "batch":
            start_mean, start_var = _stream(layer) if self.kind in FOLLOWING else (source_mean, source_var)
            mean, variance = start_mean.lerp(mean, self.step), start_var.lerp(variance, self.step)
        return mean, variance

    @property
    def step(self) -> float:
        """The weight of the batch."""
        return ROBUST_STEP if self.kind == "robust" else self.weight

    def commit(self, layer: _BatchNorm) -> None:
        """Let what follows the stream take in what this batch's passes saw."""
        if self.gathered is not None:
            _recent(layer).copy_(self.gathered)
            self.gathered = None
        if self.seen:
            means, variances = (torch.stack(values).mean(0) for values in zip(*self.seen, strict=True))
            average, spread = _stream(layer)
            if self.kind == "running":
                reach = MOST_DEVIATIONS * (spread + layer.eps).sqrt()
                means = means.clamp(average - reach, average + reach)
                variances = variances.clamp(spread / WIDEST, (spread + layer.eps) * WIDEST)
            average.lerp_(means, self.step)
            spread.lerp_(variances, self.step)
        self.seen.clear()


def instance_statistics(x: Tensor, mean: Tensor, variance: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and variance per sample and channel, (N, C): the layer's, (C,), moved by what is beyond chance in a sample.

    Chance is `CHANCE` standard deviations of mean and variance over as many positions, if they were independent.
    """
    positions = x[0, 0].numel()
    if positions <= 1:
        return mean, variance
    own_variance, own_mean = torch.var_mean(x.flatten(2), 2)
    reach = CHANCE * ((variance + eps) / positions).sqrt()
    wide = CHANCE * (variance + eps) * (2 / (positions - 1)) ** 0.5
    return mean + soft_threshold(own_mean - mean, reach), (
        variance + soft_threshold(own_variance - variance, wide)
    ).clamp(min=0)


def soft_threshold(x: Tensor, by: Tensor) -> Tensor:
    """Nearer to 0 by so much, and no farther than 0."""
    return (x - by).clamp(min=0) - (-x - by).clamp(min=0)


def install_statistics(module: nn.Module, kind: Statistics, weight: float) -> None:
    """Prepare every BatchNorm layer for `kind`; then `use_statistics` switches between it and the source's."""
    for layer in _batch_norms(module):
        # Synchronised layers would wait for other processes in training mode, so batch statistics go through the hook.
        if kind in HOOKED or (kind == "batch" and isinstance(layer, nn.SyncBatchNorm)):
            if _hook(layer) is None:
                _attach(layer, StreamStatistics(weight))
            layer.stream.weight = weight  # type: ignore[union-attr]
        if kind in FOLLOWING:
            mean, variance = _source(layer)
            for name, start in zip(STREAM_BUFFERS, (mean, variance), strict=True):
                layer.register_buffer(name, start.clone())
        if kind == "auto":
            layer.register_buffer(RECENT, _source(layer)[0].new_zeros(5, len(_source(layer)[0])))
    use_statistics(module, kind)


def copied(module: nn.Module) -> nn.Module:
    """A copy that normalises in the same way, also of a network that says itself how it is copied."""
    layers = _batch_norms(module)
    ours = [{name: layer._buffers.pop(name) for name in OURS if name in layer._buffers} for layer in layers]
    try:
        other = copy.deepcopy(module)
    finally:
        for layer, buffers in zip(layers, ours, strict=True):
            layer._buffers.update(buffers)
    for layer, twin, buffers in zip(layers, _batch_norms(other), ours, strict=True):
        for name, buffer in buffers.items():
            twin.register_buffer(name, None if buffer is None else buffer.detach().clone())
        if (hook := _hook(layer)) and _hook(twin) is None:
            same = copy.copy(hook)
            same.seen = list(hook.seen)
            _attach(twin, same)
        twin.training, twin.track_running_stats = layer.training, layer.track_running_stats
    return other


def make_constant(module: nn.Module) -> None:
    """Let the batch's part in statistics be unbiased and without gradient, as if the layer's own had been set to it."""
    for layer in _batch_norms(module):
        if hook := _hook(layer):
            hook.constant = True


def use_statistics(module: nn.Module, kind: Statistics) -> None:
    """Normalise with `kind` from now on. Layers that never had statistics of their own always use the batch's."""
    for layer in _batch_norms(module):
        hook = _hook(layer)
        if hook is not None:
            hook.kind = kind
        # In training mode without tracking, a layer uses the batch's statistics and leaves its own as they are.
        native = kind == "batch" and hook is None
        layer.training = native
        layer.track_running_stats = not native


def modes(module: nn.Module) -> list[tuple[Any, str, Any]]:
    """Everything besides statistics that decides how layers normalise: objects, names of attributes, values."""
    found: list[tuple[Any, str, Any]] = []
    for layer in _batch_norms(module):
        found += [(layer, name, getattr(layer, name)) for name in ("training", "track_running_stats")]
        found += [(hook, "kind", hook.kind)] if (hook := _hook(layer)) else []
    return found


def restore_modes(found: list[tuple[Any, str, Any]]) -> None:
    """Set them as `modes` found them."""
    for owner, name, value in found:
        setattr(owner, name, value)


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
    """Forget what the passes since the last commit saw, and what is known of this batch."""
    for layer in _batch_norms(module):
        if hook := _hook(layer):
            hook.seen.clear()
            hook.belief, hook.blended, hook.correction, hook.gathered = shares.CAUTIOUS, None, None, None


def expect(module: nn.Module, belief: shares.Belief) -> None:
    """Let auto statistics know what is believed of this batch, until it is over; passes before that do not count."""
    for layer in _batch_norms(module):
        if hook := _hook(layer):
            hook.belief, hook.gathered = belief, None


def doubt(module: nn.Module) -> Tensor | None:
    """How much a shift of this batch's domain is doubted, 0-d, if auto statistics have formed a belief."""
    beliefs = (hook.belief for layer in _batch_norms(module) if (hook := _hook(layer)))
    return next((belief.doubt for belief in beliefs if isinstance(belief.doubt, Tensor)), None)


def excesses(module: nn.Module) -> list[Tensor]:
    """How far the shift in each layer exceeded what images and classes explain, in the last pass."""
    found = (hook.blended for layer in _batch_norms(module) if (hook := _hook(layer)))
    return [blended.excess for blended in found if blended is not None]


def follow_corrections(module: nn.Module, source: nn.Module) -> None:
    """Let auto statistics of a copy of the source network correct the batch's as that does."""
    for layer, original in zip(_batch_norms(module), _batch_norms(source), strict=True):
        if hook := _hook(layer):
            hook.origin = _hook(original)


def keep_corrections(source: nn.Module) -> None:
    """What the last pass of the source network came to is what its copies follow until the batch is over."""
    for layer in _batch_norms(source):
        if (hook := _hook(layer)) and hook.blended is not None:
            hook.correction = hook.blended.correction


def take_averages(module: nn.Module, leader: nn.Module) -> None:
    """Set running statistics to those of another copy of the network."""
    for layer, other in zip(_batch_norms(module), _batch_norms(leader), strict=True):
        if hasattr(layer, "stream_mean"):
            overwrite(_stream(layer), _stream(other))


def restart_statistics(module: nn.Module) -> None:
    """Set running statistics back to the source's, and forget the recent images."""
    for layer in _batch_norms(module):
        if hasattr(layer, RECENT):
            _recent(layer).zero_()
        if hasattr(layer, "stream_mean"):
            overwrite(_stream(layer), _source(layer))


@contextmanager
def training_statistics(module: nn.Module) -> Iterator[None]:
    """As in training: inside, the batch's statistics normalise and a layer's own follow them by its momentum.

    Synchronised layers keep their own. The backward pass belongs inside too.
    """
    followers = [layer for layer in _batch_norms(module) if not isinstance(layer, nn.SyncBatchNorm)]
    for layer in followers:
        torch.autograd.graph.increment_version(_source(layer))  # the layer does not count its changes
    try:
        for layer in followers:
            layer.training = True
        yield
    finally:
        for layer in followers:
            layer.training = False


def follows_batch(module: nn.Module) -> bool:
    """Whether a BatchNorm layer normalises with statistics that each batch decides on, and nothing else remembers."""
    hooks = [hook for layer in _batch_norms(module) if (hook := _hook(layer))]
    return uses_batch(module) or any(hook.kind in ("batch", "mixed", "auto") for hook in hooks)


def freeze_statistics(module: nn.Module, x: Tensor | None = None) -> None:
    """Let every BatchNorm layer normalise for good, without our hook, with the statistics that it has in a pass of x.

    Without x, running statistics are the average so far.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    used = {layer: _stream(layer) for layer in layers if (hook := _hook(layer)) and hook.kind in AVERAGED}
    if x is not None:
        take = partial(_take_statistics, used)
        handles = [layer.register_forward_pre_hook(take, prepend=True, with_kwargs=True) for layer in layers]
        module(x.clone())
        for handle in handles:
            handle.remove()
    for layer in layers:
        if layer in used:
            layer.running_mean, layer.running_var = (value.detach().clone() for value in used[layer])
        layer.training, layer.track_running_stats = False, layer.running_mean is not None
        if hook := _hook(layer):
            remove_hook(layer, hook)
            vars(layer).pop("stream")
        for name in OURS:
            layer._buffers.pop(name, None)


def _take_statistics(
    used: dict[_BatchNorm, tuple[Tensor, Tensor]], layer: _BatchNorm, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    hook, x = _hook(layer), args[0] if args else kwargs["input"]
    if hook is not None and hook.kind != "source":
        used[layer] = hook._statistics(layer, x.to(_source(layer)[0].dtype))
    elif layer.training or layer.running_mean is None:
        used[layer] = shares.moments(x, (0, *range(2, x.dim())))


def keeps_source(module: nn.Module) -> bool:
    """Whether every BatchNorm layer normalises with the source's statistics, or there is none."""
    hooks = [hook for layer in _batch_norms(module) if (hook := _hook(layer))]
    return not uses_batch(module) and all(hook.kind == "source" for hook in hooks)


def has_own(module: nn.Module) -> bool:
    """Whether a BatchNorm layer normalises each sample with statistics of its own."""
    return any(hook.kind == "instance" for layer in _batch_norms(module) if (hook := _hook(layer)))


def is_auto(module: nn.Module) -> bool:
    """Whether a BatchNorm layer normalises with auto statistics."""
    return any(hook.kind == "auto" for layer in _batch_norms(module) if (hook := _hook(layer)))


def uses_batch(module: nn.Module) -> bool:
    """Whether a BatchNorm layer normalises with the statistics of the current batch, and nothing else."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return any(layer.training or layer.running_mean is None for layer in norms)


def can_group(module: nn.Module) -> bool:
    """Whether `grouped_statistics` works: all BatchNorm layers are torch's own, without our hook."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    known = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return all(type(layer) in known and not _hook(layer) and "forward" not in vars(layer) for layer in norms)


@contextmanager
def grouped_statistics(module: nn.Module, groups: int) -> Iterator[None]:
    """Inside the block a batch is `groups` batches one after the other, each normalised as if it were the only one."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)] if groups > 1 else []
    norms = [layer for layer in norms if layer.training or layer.running_mean is None]
    try:
        for layer in norms:
            layer.forward = partial(_normalize_groups, layer.forward, groups)  # type: ignore[method-assign]
        yield
    finally:
        for layer in norms:
            vars(layer).pop("forward", None)


def _normalize_groups(normalize: Callable[[Tensor], Tensor], groups: int, x: Tensor) -> Tensor:
    return torch.cat([normalize(part) for part in x.chunk(groups)])


def _batch_norms(module: nn.Module) -> list[_BatchNorm]:
    return [m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


def _attach(layer: _BatchNorm, hook: StreamStatistics) -> None:
    layer.stream = hook  # type: ignore[assignment]
    layer.register_forward_pre_hook(hook, with_kwargs=True)


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


def _recent(layer: _BatchNorm) -> Tensor:
    recent = layer.stream_recent
    assert isinstance(recent, Tensor)
    return recent
