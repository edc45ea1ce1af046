"""Check a method of one's own: the contract on every network, and that it does not spoil what is easy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ctta.base.errors import CttaError
from ctta.base.text import failure
from ctta.core.adapter import Adapter
from ctta.testing import easy
from ctta.testing.contract import CHECKS, Case
from ctta.testing.networks import NETWORKS

EASY = "easy stream"
EMA = 0.99  # of every moving average, so that a teacher shows within the stream what its student has learned
LR = 0.04  # large enough that a wrong direction shows within the stream
# Points by which the error may exceed the source model's; those in ctta stay below, but for DeYO, MEMO and TTT-MAE.
WORSE = 12.0


@dataclass(frozen=True)
class Result:
    """One check of a method on one network: it holds, it does not, or the method refuses the network."""

    check: str  # what must hold
    network: str
    problem: str = ""  # empty if it holds
    refused: str = ""  # why the method does not take this network


def check_method(
    method: type[Adapter], networks: Sequence[str] = tuple(NETWORKS), arguments: Mapping[str, Any] | None = None
) -> None:
    """Print what holds and what does not; an AssertionError sums up what does not.

    `networks` are names from `NETWORKS`, and `arguments` are passed on to the method.
    """
    wrong = []
    for result in results(method, networks, arguments or {}):
        print(describe(result))
        wrong += [result] if result.problem else []
    assert not wrong, "\n".join([f"{method.__name__} does not keep the contract.", *map(describe, wrong)])


def describe(result: Result) -> str:
    """A result on one line."""
    mark, why = ("refused", result.refused) if result.refused else ("wrong", result.problem)
    ending = f": {why}" if why else ""
    return f"{mark if why else 'holds':<8}{result.network:<12} {result.check}{ending}"


def results(
    method: type[Adapter], networks: Sequence[str] = tuple(NETWORKS), arguments: Mapping[str, Any] | None = None
) -> Iterator[Result]:
    """Yield every check as it is made."""
    cases, taken = [Case(method, network, arguments or {}) for network in networks], []
    for case in cases:
        try:
            with _quiet():
                case.adapter()
            taken.append(case)
        except CttaError as error:
            yield Result("An adapter can be made.", case.network, refused=str(error))
    if not taken:
        yield Result("At least one network is not refused.", "all", problem="the method refuses all of them")
    for check in CHECKS:
        for case in taken:
            yield _tried(check, case.network, partial(check, case))
    yield _tried(not_worse_than_source, EASY, partial(not_worse_than_source, method, arguments or {}))


def not_worse_than_source(method: type[Adapter], arguments: Mapping[str, Any]) -> None:
    """On an easy stream the method is not much worse than the source model, as it would be with a wrong sign."""
    given = {"lr": LR, "views": 2, "ema": EMA}
    fields = {name: value for name, value in given.items() if name in method.config_type.fields()}
    adapter = method(easy.source_model(), **{**fields, **arguments})
    adapter.prepare(easy.source_batches())
    wrong = source = samples = 0
    for number, (x, y) in enumerate(easy.stream()):
        predicted = adapter(x).argmax(1)
        if number >= easy.BATCHES // 2:
            wrong += int((predicted != y).sum())
            source += int((adapter.source(x).argmax(1) != y).sum())
            samples += len(y)
    error, before = 100 * wrong / samples, 100 * source / samples
    assert error <= before + WORSE, (
        f"its error in the second half is {error:.1f} %, the source model's {before:.1f} %. If the method minimises "
        "a loss, look at its sign"
    )


def _tried(check: Callable[..., None], network: str, run: Callable[[], None]) -> Result:
    words = (check.__doc__ or check.__name__).splitlines()[0]
    try:
        with _quiet():
            run()
    except AssertionError as error:
        return Result(words, network, str(error) or "an assertion of the method failed")
    except Exception as error:  # it is the user's own code
        return Result(words, network, failure(error))
    return Result(words, network)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings about batches as small as these, and with the caller's random numbers as they were."""
    log = logging.getLogger("ctta")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        log.setLevel(level)
