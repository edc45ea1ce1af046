"""Random generators: every draw is a function of (seed, batch number)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """One well-mixed 63-bit seed from several numbers (splitmix64 over each)."""
    state = 0
    for number in numbers:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


class Randomness:
    """Generators of one batch: `host` for what Python decides on, `device` for what fills tensors there."""

    def __init__(self, seed: int, batch: int, device: torch.device) -> None:
        self.seed = mix(seed, batch)
        self.place = device
        self.host = torch.Generator().manual_seed(self.seed)
        self.device = self.host if device.type == "cpu" else torch.Generator(device).manual_seed(self.seed)

    def uniform(self, low: float, high: float, count: int) -> torch.Tensor:
        """`count` draws from U(low, high), made on the host in double precision."""
        return torch.empty(count, dtype=torch.float64, device="cpu").uniform_(low, high, generator=self.host)

    def antithetic(self) -> Iterator[Randomness]:
        """This randomness again and again; every second one draws antithetically to the one before it.

        The antithetic draw lies as far from the other end of its range: a rotation to the left for one to the right,
        flipped for not flipped. Errors of two such views in opposite directions cancel in their average. Noise that
        fills tensors is drawn afresh.
        """
        while True:
            first = _Remembered(self)
            yield first
            yield _Antithetic(self, first.drawn)

    @contextmanager
    def scoped(self) -> Iterator[None]:
        """For models that draw from the global generators: inside they follow the seed, after it they are as before."""
        cuda, mps = self.place.type == "cuda", self.place.type == "mps"
        before = torch.mps.get_rng_state() if mps else None
        with torch.random.fork_rng(devices=[self.place] if cuda else []):
            torch.default_generator.manual_seed(self.seed)
            if cuda:
                torch.cuda.default_generators[self.place.index].manual_seed(self.seed)
            if mps:
                torch.mps.manual_seed(self.seed)
            try:
                yield
            finally:
                if before is not None:
                    torch.mps.set_rng_state(before)


class _Remembered(Randomness):
    """Draws from the generators of another, and knows what it drew."""

    def __init__(self, random: Randomness) -> None:
        vars(self).update(vars(random))
        self.drawn: deque[torch.Tensor] = deque()

    def uniform(self, low: float, high: float, count: int) -> torch.Tensor:
        self.drawn.append(super().uniform(low, high, count))
        return self.drawn[-1].clone()


class _Antithetic(Randomness):
    """Gives the antithetic of what was drawn; if there is nothing of that size, a draw of its own."""

    def __init__(self, random: Randomness, drawn: deque[torch.Tensor]) -> None:
        vars(self).update(vars(random))
        self.drawn = drawn

    def uniform(self, low: float, high: float, count: int) -> torch.Tensor:
        if self.drawn and len(self.drawn[0]) == count:
            return low + high - self.drawn.popleft()
        return super().uniform(low, high, count)
