"""Memory of DSS: networks, optimiser state and what both were before the last batch; a chunk of views within one.

It is counted in two ways: the parts of the adapter one by one, and every tensor in the process that was not there
before. If something else were kept, the second number would be larger than the first.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from ctta import DSS
from ctta.core.execution import FAST
from ctta.running.memory import PeakMemory

MEGABYTE = 2**20


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors; shared memory counts once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def network_bytes(network: nn.Module) -> int:
    """Bytes of a network's parameters and buffers."""
    return tensor_bytes([*network.parameters(), *network.buffers()])


def alive() -> list[Tensor]:
    """Every dense tensor that Python can reach, except the compiler's, which have no memory."""
    gc.collect()
    tensors = (thing for thing in gc.get_objects() if type(thing) in (Tensor, nn.Parameter))
    return [tensor for tensor in tensors if tensor.layout is torch.strided]


def around_passes(network: nn.Module, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap a network's forward passes, and those of its shared-weight copies, which have its class.

    With a hook, views would go one at a time; a new `forward` of the object only would lead its copies back to it.
    """
    kind = type(network)
    forward = around(kind.forward)
    network.__class__ = type(kind.__name__, (kind,), {"forward": lambda *args: forward(*args)})


class ViewsInside:
    """Counts how many views of a batch go through a network and its shared-weight copies at once."""

    def __init__(self, network: nn.Module, batch: int) -> None:
        self.now = self.most = 0
        lock = threading.Lock()

        def counted(forward: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(module: nn.Module, x: Tensor) -> Any:
                views = len(x) // batch
                with lock:
                    self.now += views
                    self.most = max(self.most, self.now)
                try:
                    return forward(module, x)
                finally:
                    with lock:
                        self.now -= views

            return wrapper

        around_passes(network, counted)


def measure(model: nn.Module, x: Tensor, **fields: Any) -> dict[str, Any]:
    """Measure DSS after two batches: each part, all tensors and the peak, over the model's bytes; and views at once."""
    before = tensor_bytes(alive())
    peak = PeakMemory()
    adapter = DSS(model, preset=DSS.preset_name("paper", x.shape), **{"execution": FAST, **fields})
    views = ViewsInside(adapter.teacher, len(x))
    for _ in range(2):  # what has changed is copied before the next batch
        adapter.step(x)
    megabytes = peak.megabytes()
    assert adapter.optimizer is not None
    slots = [value for state in adapter.optimizer.state.values() for value in state.values()]
    gradients = [parameter.grad for parameter in adapter.parameters() if parameter.grad is not None]
    parts = {
        "source weights": network_bytes(adapter.source_model),
        "student": network_bytes(adapter.student),
        "teacher": network_bytes(adapter.teacher),
        "optimiser state": tensor_bytes(slots),
        "state before the batch": tensor_bytes(adapter._before.copies()),
        "gradients": tensor_bytes(gradients),
        "threshold, counters, their start": tensor_bytes([*adapter.buffers(recurse=False), *adapter._initial]),
    }
    size = network_bytes(model)
    return {
        "batch": len(x),
        "model_megabytes": size / MEGABYTE,
        "parts": {name: count / size for name, count in parts.items()},
        "held": sum(parts.values()) / size,
        "alive": (tensor_bytes(alive()) - before) / size,
        "peak": megabytes * MEGABYTE / size,
        "views": adapter.config.views,
        "views_in_a_pass": adapter.execution.views_at_once(x),
        "passes_at_once": adapter.execution.passes_at_once(x),
        "views_at_once": views.most,
        "view": tensor_bytes([x]) / size,
    }


def show(result: dict[str, Any]) -> Table:
    """Make the table."""
    title = f"Memory of DSS, WRN-28-10 ({result['model_megabytes']:.0f} MB), batch {result['batch']}, over the model"
    table = Table("what", "x model", title=title)
    for name, value in result["parts"].items():
        table.add_row(name, f"{value:.3f}")
    table.add_section()
    table.add_row("sum of these", f"{result['held']:.3f}")
    table.add_row("all tensors after a batch", f"{result['alive']:.3f}")
    most, together, lanes = (result[name] for name in ("views_at_once", "views_in_a_pass", "passes_at_once"))
    text = f"augmented views at once: {most} of {result['views']} ({together} per pass, {lanes} parallel passes)"
    table.add_row(text, f"{most * result['view']:.3f}")
    table.add_row("peak within a batch, with activations", f"{result['peak']:.3f}")
    return table
