"""What a seed moves: `vary: [method, order, samples]`; only the method's own draws if the section is not given.

    method    the method's own draws: augmentations, stochastic restore ... If it is not named, they are those of seed 0
    order     the order of the samples, the same in every domain of one size; the order of domains is the protocol's
    samples   which samples are used, `data.images` of all from `data.first` on, and the draws of their corruptions

The same seed gives every method the same stream, so that differences between methods are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import quoted
from ctta.data.combine import reordered
from ctta.data.dataset import Data
from ctta.data.datasets import checked, known, open_stream
from ctta.data.protocols import Protocol
from ctta.data.stream import Domain, Rows, Stream

METHOD, ORDER, SAMPLES = VARIED = ("method", "order", "samples")
DEFAULT = (METHOD,)


def vary_problems(vary: Any, data: Data | None) -> list[str]:
    """List what is wrong with the section."""
    if not isinstance(vary, list) or not vary:
        return [f"vary must be a list of what seeds move, at least one of {', '.join(VARIED)}. Got {quoted(vary)}."]
    found = [f"vary: seeds cannot move {quoted(one)}. {nearest(one, VARIED)}" for one in vary if one not in VARIED]
    found += ["vary: each is named once."] if not found and len(set(vary)) < len(vary) else []
    dataset = None if data is None else known(data)
    if SAMPLES in vary and data and dataset and data.images is None and dataset.holds != "clean":
        found.append("vary: samples draws data.images of all samples, and without data.images it takes all. Give it.")
    return found


def seeded_stream(data: Data, protocol: Protocol, vary: Sequence[str], seed: int) -> Stream:
    """Open the data, arranged by the protocol, with the samples and in the order that the seed draws."""
    if not {ORDER, SAMPLES} & set(vary):
        return open_stream(data, protocol)
    dataset, pool = checked(data, protocol), data
    if SAMPLES in vary:
        pool = data.replace(images=None)
        pool = pool.replace(seed=data.seed + seed) if dataset.holds == "clean" else pool

    def drawn(domain: Domain) -> Domain:
        rows = np.arange(len(domain))
        if SAMPLES in vary:
            rows = _some(len(domain), data, seed, corrupted=dataset.holds == "clean")
        if ORDER in vary:
            rows = np.random.default_rng((seed, 1)).permutation(rows)
        return reordered(domain, rows)

    def opened(_: Data, pairs: tuple[tuple[str, int], ...]) -> Stream:
        stream = dataset.open(pool, pairs)
        return replace(stream, domains=tuple(map(drawn, stream.domains)))

    return protocol.arrange(replace(dataset, open=opened), data)


def _some(count: int, data: Data, seed: int, *, corrupted: bool) -> Rows:
    """The rows of the samples that are used, in their order; `corrupted`: by other draws for every seed."""
    if data.images is None or data.images >= count:
        if not corrupted:
            raise ConfigError(
                f"vary: there are {count} samples and data.images takes all of them, so that seeds cannot draw others. "
                "Give fewer images, or leave 'samples' out."
            )
        return np.arange(count)
    return np.sort(np.random.default_rng((seed, 0)).choice(count, data.images, replace=False))
