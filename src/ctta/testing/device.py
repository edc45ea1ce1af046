"""A pretended device: tensors that say they are elsewhere, compute on the CPU, and refuse what a GPU would refuse.

    with pretended() as device:
        adapter = TENT(model.to(device))
        adapter(x.to(device))

A tensor that was left on the CPU fails here as it would on a GPU, without one: an operation that mixes devices, a
generator of the host that fills a tensor of the device, `numpy()` without `cpu()`. Reads on the host and copies that
wait are listed in `waits`. What it cannot show is how a real device rounds, or which operations it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ctta.core import device as devices

# A kind of device that torch knows by name, has no kernels for, and differentiates in the thread that asks for it.
DEVICE = torch.device("lazy:0")
COPIES = ("aten::_to_copy", "aten::copy_")
READS = [
    f"aten::{name}" for name in ("_local_scalar_dense", "nonzero", "masked_select", "bincount", "_unique2", "equal")
]
MASKED = ("aten::index", "aten::index_put_")  # by a mask, whose length the host must know

ELSEWHERE = 2**63  # added to the seed of a generator on the device; its draws do not depend on this bit

waits: list[str] = []  # what has made the host wait for the device, in order


class MixedDevicesError(RuntimeError):
    """An operation that a real device refuses."""


class Pretended(Tensor):
    """A tensor on the pretended device; its values are in `host`, on the CPU."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, values: Tensor) -> Pretended:
        made = Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=DEVICE,
        )
        made.host = values
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _apply(operation, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain = self.host.detach()  # a file is read to the CPU first
        return plain.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"Pretended({self.host!r})"


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sends operations that make tensors, and so have none among their arguments, to the pretended device too."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _apply(operation, args, kwargs or {})


class _Generator(torch._C.Generator):
    """A generator that draws on the CPU, and whose seed says where it pretends to be, since operations see no more."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made: _Generator = super().__new__(cls)
        made.pretends = torch.device(device).type == DEVICE.type
        return made

    pretends: bool

    def manual_seed(self, seed: int) -> _Generator:
        super().manual_seed(seed | ELSEWHERE if self.pretends else seed)
        return self


def _apply(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute on the CPU, if all arguments are on one device."""
    name, given = operation.name().partition(".")[0], [*_leaves((args, *kwargs.values()))]
    there = [one for one in given if isinstance(one, Pretended)]
    here = [one for one in given if isinstance(one, Tensor) and not isinstance(one, Pretended)]
    wanted = kwargs.get("device")
    on_device = bool(there) if wanted is None else torch.device(wanted).type == DEVICE.type
    _check(operation, name, there, here, [one for one in given if isinstance(one, torch._C.Generator)], on_device)
    _count(name, args, there, here, kwargs)
    if on_device and wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if name == "aten::_to_copy":
        kwargs = {key: value for key, value in kwargs.items() if key != "non_blocking"}
    plain = {key: _changed(_on_host, value) for key, value in kwargs.items()}
    made = operation(*_changed(_on_host, args), **plain)
    if name == "aten::copy_":
        return args[0]
    if not on_device:
        return made
    same = {id(one.host): one for one in there}  # what was changed in place stays the same object
    return _changed(lambda one: _placed(one, same) if isinstance(one, Tensor) else one, made)


def _leaves(value: Any) -> Iterator[Any]:
    """What lists and tuples hold; torch's own walk through them takes most of the time here."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    """The same lists and tuples, with what they hold changed."""
    return type(value)([_changed(change, one) for one in value]) if isinstance(value, list | tuple) else change(value)


def _on_host(value: Any) -> Any:
    return value.host if isinstance(value, Pretended) else value


def _placed(values: Tensor, same: dict[int, Pretended]) -> Pretended:
    return same[id(values)] if id(values) in same else Pretended(values)


def _check(
    operation: Any, name: str, there: list[Pretended], here: list[Tensor], generators: list[Any], on_device: bool
) -> None:
    if there and name not in COPIES:
        numbers = torch.Tag.pointwise in operation.tags  # take a number from the host
        if any(one.dim() or not numbers for one in here):
            shapes = [tuple(one.shape) for one in here]
            raise MixedDevicesError(
                f"Expected all tensors to be on the same device: {name} got some on {DEVICE} and some on the CPU, of "
                f"shape {shapes}."
            )
    if any(bool(generator.initial_seed() & ELSEWHERE) != on_device for generator in generators):
        where = DEVICE if on_device else "the CPU"
        raise MixedDevicesError(f"{name} fills a tensor on {where} with a generator of another device.")


def _count(name: str, args: Any, there: list[Pretended], here: list[Tensor], kwargs: dict[str, Any]) -> None:
    masked = name in MASKED and any(one.dtype == torch.bool for one in there[1:])
    if there and (name in READS or masked):
        waits.append(name.removeprefix("aten::"))
    elif name == "aten::_to_copy" and "device" in kwargs:
        target = torch.device(kwargs["device"]).type
        down, up = there and target != DEVICE.type, here and target == DEVICE.type
        if down or (up and not kwargs.get("non_blocking")):
            waits.append("read" if down else "copy")
    elif name == "aten::copy_" and there and here:
        down = not isinstance(args[0], Pretended)
        if down or not (kwargs.get("non_blocking") or args[2:] == (True,)):
            waits.append("read" if down else "copy")


@contextmanager
def pretended() -> Iterator[torch.device]:
    """Within it, `lazy` is the device that `auto` takes, in this thread; gives that device."""
    waits.clear()
    kind = devices.Kind(lambda: 1, fast_bfloat16=lambda: False)
    kinds = mock.patch.object(devices, "KINDS", {DEVICE.type: kind, **devices.KINDS})
    fused = "torch.optim.optimizer._get_fused_kernels_supported_devices"
    optimizers = mock.patch(fused, return_value=["cpu", DEVICE.type])
    lifts, swaps = torch._C._only_lift_cpu_tensors(), torch.__future__.get_swap_module_params_on_conversion()
    torch._C._set_only_lift_cpu_tensors(True)
    torch.__future__.set_swap_module_params_on_conversion(True)  # a parameter that moves stays the same object
    try:
        with kinds, mock.patch("torch.Generator", _Generator), optimizers, _Mode():  # type: ignore[no-untyped-call]
            yield DEVICE
    finally:
        torch._C._set_only_lift_cpu_tensors(lifts)
        torch.__future__.set_swap_module_params_on_conversion(swaps)
