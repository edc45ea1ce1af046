"""What comes in from outside: the model, of which the adapter takes its own copy, and the batches, checked."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ctta.base.errors import InputError, ModelError
from ctta.core.views import Views

FAINT, RELATED = 0.05, 0.2  # standard deviation, and correlation of neighbouring pixels, below which an image is noise
ROUNDING = 0.01  # of the mean square: float32 tells no smaller variance of a large image by two sums
SLACK = 1e-3  # how far a pixel may lie outside [0, 1] (resizing and float rounding overshoot), and a sum beside 1


def own_copy(model: nn.Module) -> nn.Module:
    """A frozen copy in eval mode. Wrappers that hide the network (parallel, compiled) are taken off."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"A model must be a torch.nn.Module. Got {type(model).__name__} instead.")
    while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module) or (
        isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
        and isinstance(inner := model.module, nn.Module)
    ):
        model = inner
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("A scripted model hides its layers. Give the nn.Module it was made from.")
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in model.parameters()):
        raise ModelError("The model has lazy layers without weights. Run one batch through it first.")
    try:
        own = copy.deepcopy(model)
    except Exception as error:
        raise ModelError(
            f"The model cannot be copied ({error}). The adapter needs its own copy. A tensor that is the result of a "
            "computation and kept as an attribute is the usual reason: detach it, or register it as a buffer; with the "
            "old weight_norm, use torch.nn.utils.parametrizations.weight_norm or remove_weight_norm first."
        ) from error
    for parameter in own.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    return own.eval()


def placement(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the model's weights."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    return torch.device("cpu"), torch.get_default_dtype()


def check_form(x: Tensor, device: torch.device, dtype: torch.dtype) -> None:
    """Check all that can be known of a batch without reading its values."""
    if not isinstance(x, Tensor):
        raise InputError(f"A batch must be a torch.Tensor. Got {type(x).__name__} instead; try torch.as_tensor(x).")
    if x.dim() < 2:
        raise InputError(
            f"A batch must have a batch dimension first: (N, 3, H, W) images or (N, P, 3) point clouds. Got "
            f"{tuple(x.shape)}; for one sample use x.unsqueeze(0)."
        )
    if x.numel() == 0:
        raise InputError(f"The batch is empty: its shape is {tuple(x.shape)}. Leave empty batches out.")
    if not x.is_floating_point():
        raise InputError(f"A batch must be floating point. Got {x.dtype}; for uint8 images use x.float() / 255.")
    if x.dtype != dtype or x.device != device:
        raise InputError(
            f"The batch is {x.dtype} on {x.device}, the model is {dtype} on {device}. "
            f"Use x.to({str(device)!r}, {dtype})."
        )


def value_range(x: Tensor) -> tuple[float, float] | None:
    """The values that a batch of this shape may hold: [0, 1] for images, any for other inputs."""
    return (0.0, 1.0) if x.dim() == 4 and x.shape[1] in (1, 3) else None


def check_values(low: float, high: float, wanted: tuple[float, float] | None, views: Views | None) -> None:
    """Check the smallest and the largest value of a batch against the `wanted` range, and that of what makes views."""
    if not (float("-inf") < low <= high < float("inf")):
        raise InputError(
            "The batch holds NaN or infinity. Nothing was learned from it; find out where they come from, or drop "
            "the batch."
        )
    viewed: tuple[float, float] | None = getattr(views, "limits", None)
    if (least_most := wanted or viewed) and not least_most[0] - SLACK <= low <= high <= least_most[1] + SLACK:
        remedy = (
            "look like 8-bit values: use x / 255."
            if low >= 0 and 2 < high < 256
            else "look normalised: feed raw images, and put the normalisation inside the model, "
            "ctta.Normalized(model, mean, std)."
        )
        own_views = ", and with views that are made for such values, views=..." if viewed else ""
        raise InputError(
            f"Pixels must lie in [0, 1]. These lie in [{low:.3g}, {high:.3g}], so they {remedy} If the model wants "
            f'other values than pixels, make the adapter with inputs="any"{own_views}.'
        )


def check_logits(*predictions: Tensor) -> None:
    """Refuse answers of a model to a batch that are not finite."""
    bad = [(~logits.isfinite()).any(1).sum() for logits in predictions]
    for logits, count in zip(predictions, torch.stack(bad).tolist() if bad else [], strict=True):
        if count:
            raise ModelError(
                f"The model answers NaN or infinity for {count} of {len(logits)} samples, though the batch is finite. "
                "Nothing was learned from it. Look for a division by zero or an overflow in the model; float16 "
                "overflows at 65504. To rule out a class, give its logit a large negative value such as -1e4, not -inf."
            )


def are_probabilities(logits: Tensor) -> Tensor:
    """Whether what a model answers looks like the output of a softmax, 0-d."""
    return (logits.min() >= 0) & ((logits.sum(1, dtype=torch.float32) - 1).abs().max() < SLACK)


def blank_samples(x: Tensor, *, pixels: bool = True) -> Tensor | None:
    """Which samples of a batch (N, C, ...) show nothing, as those of a dead sensor, (N,); None if all show something.

    They are of one value per channel, or images of `pixels` in [0, 1] that vary little, with neighbours that have
    nothing to do with each other: noise. Point clouds, (N, P, 3), are blank if all points are the same.
    """
    if x.dim() == 3 and x.shape[2] == 3:
        x = x.transpose(1, 2)
    if x.dim() < 3 or x[0, 0].numel() < 2:
        return None
    flat = _is_flat(x)
    if not flat.any():  # of an ordinary batch nothing else is read on the host
        return None
    blank = torch.zeros_like(flat)
    blank[flat] = _is_noise_or_constant(x[flat], pixels=pixels and x.dim() == 4)
    return blank if blank.any() else None


def _is_flat(x: Tensor) -> Tensor:
    """Which samples vary so little that they may be blank, (N,), found in one reading of the batch."""
    values = x.flatten(2)
    norm: Tensor = torch.linalg.vector_norm(values, dim=2, dtype=torch.float32)
    square = norm.square().mean(1) / values.shape[2]
    variance = square - values.mean(2, dtype=torch.float32).square().mean(1)
    return variance < FAINT**2 + ROUNDING * square


def _is_noise_or_constant(x: Tensor, *, pixels: bool) -> Tensor:
    values = x.flatten(2)
    constant = (values == values[:, :, :1]).flatten(1).all(1)
    if not pixels:
        return constant
    own = x - x.mean((2, 3), keepdim=True)
    power, related = own.square().sum((1, 2, 3)), (own[..., 1:] * own[..., :-1]).sum((1, 2, 3))
    return constant | (power < FAINT**2 * values.shape[1:].numel()) & (related < RELATED * power)
