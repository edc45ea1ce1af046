"""A network as it predicts now, taken out of its adapter: plain, in eval mode, with frozen statistics."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ctta.base.errors import InputError, StateError
from ctta.core import networks
from ctta.core import statistics as norms
from ctta.core.losses import averaged
from ctta.core.processing import Processing


def frozen_copy(adapter: Processing, network: nn.Module, x: Tensor | None) -> nn.Module:
    """A copy of one of the adapter's networks that answers for good as it does on this batch."""
    if norms.has_own(network):
        raise StateError(
            'With statistics="instance" each sample is normalised with statistics of its own, so no network with fixed '
            "ones answers alike. Use other statistics for a network that is to be exported."
        )
    if x is None:
        if norms.follows_batch(network):
            raise InputError(
                f'With statistics="{adapter.statistics}" the network normalises each batch anew. Give a batch of what '
                "it will meet, whose statistics are then frozen: adapter.export(x)."
            )
        plain = norms.copied(network)
        norms.freeze_statistics(plain)
    else:
        with adapter.passing(x) as x:
            plain = norms.copied(network)  # here, so that it knows what is known of the batch
            norms.freeze_statistics(plain, x)
    networks.remove_own_hooks(plain)
    return plain.to(memory_format=torch.contiguous_format).requires_grad_(False).eval()  # type: ignore[call-overload,no-any-return]


class Averaged(nn.Module):
    """Networks whose probabilities are averaged."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return averaged(torch.stack([part(x) for part in self.parts]))


class Summed(nn.Module):
    """Networks whose logits are added, each with this weight."""

    def __init__(self, *parts: nn.Module, weight: float = 1.0) -> None:
        super().__init__()
        self.parts, self.weight = nn.ModuleList(parts), weight

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.stack([part(x) for part in self.parts]).sum(0)


class Corrected(nn.Module):
    """A network whose logits are corrected batch by batch."""

    def __init__(self, network: nn.Module, correct: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.correct = network, correct
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.correct(self.network(x))
