"""The optimiser: made from settings, with its whole state from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import ModelError
from ctta.core.settings import OptimizerSettings

FULL = 64  # samples: published rates are for batches of at least so many


def make_optimizer(parameters: Sequence[nn.Parameter], config: OptimizerSettings, method: str) -> torch.optim.Optimizer:
    """Adam or SGD by fused kernels, for these parameters only. Its state is there from the start, so it never grows."""
    if not parameters:
        raise ModelError(
            f"{method} found nothing to learn: the model's norm layers have no weight and bias (affine=False). Use a "
            "method that trains all parameters, such as 'cotta' or 'dss'."
        )
    if any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in parameters):
        raise ModelError(
            f"Weights in {parameters[0].dtype} are too coarse to learn: small steps vanish in rounding. Give the model "
            "in float32, model.float(), and call the adapter under torch.autocast for speed."
        )
    optimizer: torch.optim.Optimizer
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, betas=(0.9, 0.999), **common)
    else:
        optimizer = torch.optim.SGD(parameters, momentum=0.9, nesterov=config.nesterov, **common)
    for parameter in parameters:
        parameter.requires_grad_()
        if config.optimizer == "adam":
            count = torch.zeros((), dtype=torch.float32, device=parameter.device)
            moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
            optimizer.state[parameter] = {"step": count, **moments}
        else:
            optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
    return optimizer


def differentiate(optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
    """Put the gradients into `.grad`; gives whether loss and gradients are finite, 0-d."""
    if not loss.requires_grad:
        raise ModelError(
            "The loss has no gradient: the model computes its prediction under no_grad, or its weights were frozen by "
            "requires_grad_(False) on the adapter."
        )
    optimizer.zero_grad(set_to_none=True)  # an interrupted batch may have left some
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ModelError(f"The gradient of the model cannot be computed: {error}") from error
    gradients = [parameter.grad for parameter in trained_parameters(optimizer) if parameter.grad is not None]
    return loss.detach().isfinite() & torch.nn.utils.get_total_norm(gradients).isfinite()


def descend(optimizer: torch.optim.Optimizer, left_out: Tensor, share: Tensor | float = 1.0) -> None:
    """Take the step with the gradients that are there, at this share of the rate, unless `left_out`, 0-d, is set."""
    # The fused kernels read this flag on the device and leave weights and moments as they are if it is set.
    optimizer.found_inf = left_out.to(torch.float32)  # type: ignore[attr-defined]
    # They do not count their changes as other operations do. Counted first, no change is missed by an interrupt.
    torch.autograd.graph.increment_version([*trained_parameters(optimizer), *moments(optimizer)])
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            # The fused kernels read a tensor on its device, and as float32.
            group["lr"] = rate * (share.to(torch.float32) if isinstance(share, Tensor) else share)
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The optimiser's state."""
    return [value for slots in optimizer.state.values() for value in slots.values()]


def trained_parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """The parameters that the optimiser trains."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def pace(samples: int) -> float:
    """The share of the rate at which a batch of so many samples is learned from."""
    return min(1.0, samples / FULL)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Learn at this rate from now on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clear_moments(optimizer: torch.optim.Optimizer) -> None:
    """Set the optimiser's state to where it began."""
    for value in moments(optimizer):
        value.zero_()


def problem_of_tensor(value: Any, own: Tensor) -> str:
    """What keeps a loaded value from taking the place of our tensor; empty if nothing does."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return "is not a dense tensor"
    if value.shape != own.shape or value.is_floating_point() != own.is_floating_point():
        return f"is {value.dtype} {tuple(value.shape)} instead of {own.dtype} {tuple(own.shape)}"
    if value.is_meta or value.is_quantized or value.is_complex() or type(value) not in (Tensor, nn.Parameter):
        return "is not a plain tensor with values"
    if not _in_memory(value):
        return "has less memory than its shape needs"
    # A model may hold infinities on purpose, as attention masks do.
    lost = own.isfinite() & ~value.to(own.device, own.dtype).isfinite()
    return "has values that are not finite" if lost.any() else ""


def _in_memory(value: Tensor) -> bool:
    """Whether the memory of a tensor holds all of its values; it may have been freed since."""
    last = value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return value.numel() == 0 or value.untyped_storage().nbytes() >= (last + 1) * value.element_size()


def problem_of_state(optimizer: torch.optim.Optimizer, saved: Any) -> str:
    """What keeps a saved state from being loaded into the optimiser; empty if nothing does.

    The fused kernels trust shapes: a moment of another shape would be read and written out of bounds.
    """
    states, own = saved.get("state") if isinstance(saved, Mapping) else None, optimizer.state_dict()["state"]
    if not isinstance(states, Mapping) or states.keys() != own.keys():
        return "the optimiser's state is missing or of other parameters"
    for number, slots in own.items():
        found = states[number]
        if not isinstance(found, Mapping) or found.keys() != slots.keys():
            return f"the optimiser's state of parameter {number} has other entries"
        for name, value in slots.items():
            if problem := problem_of_tensor(found[name], value):
                return f"the optimiser's {name} of parameter {number} {problem}"
            if name in ("step", "exp_avg_sq") and (found[name] < 0).any():
                return f"the optimiser's {name} of parameter {number} is negative"
    return ""


@torch.no_grad()
def load_state(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Take the moments of a checked state; the optimiser's settings stay those of the configuration."""
    # Copied, as weights are: the tensors of a state may belong to another adapter, or share memory.
    for number, parameter in enumerate(trained_parameters(optimizer)):
        for name, value in optimizer.state[parameter].items():
            value.copy_(saved["state"][number][name])


def align_moments(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimiser's state the device, dtype and memory layout of the weights, which the fused kernels expect."""
    for parameter, slots in optimizer.state.items():
        for name, value in slots.items():
            if name == "step":
                slots[name] = value.to(parameter.device)
            else:
                moved = value.to(parameter)
                same = moved.shape != parameter.shape or moved.stride() == parameter.stride()
                slots[name] = moved if same else torch.empty_like(parameter).copy_(moved)
