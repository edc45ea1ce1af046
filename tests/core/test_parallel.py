"""Passes of views side by side: the same answers as one after the other, whatever the network does."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta import Execution
from ctta.core import networks as layers
from ctta.core.execution import SIDE_BY_SIDE
from ctta.core.parallel import side_by_side
from ctta.testing.networks import make_batch, make_network


def adapter(network: nn.Module, lanes: int | None, **settings: object) -> ctta.DSS:
    execution = Execution(lanes=lanes, chunk=1, **settings)
    return ctta.DSS(network, preset="cifar10", gate=1.0, views=5, lr=1e-2, ema=0.9, execution=execution)


def answers(made: ctta.DSS) -> Tensor:
    dtype = made.placement[1]
    return torch.stack([made(make_batch("image_bn", 8, seed).to(dtype)) for seed in range(3)])


class Small(nn.Module):
    """A network with something between its layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def between(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.norm(self.conv(x)).mean((2, 3))))


class Noting(Small):
    """Keeps its features in an attribute while it runs."""

    def between(self, x: Tensor) -> Tensor:
        self.note = x
        time.sleep(0.002)
        return self.note


class Drawing(Small):
    """Draws random numbers."""

    def between(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


class Generating(Small):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def between(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn(x.shape, generator=self.generator, dtype=x.dtype)


class Counting(Small):
    """Counts its passes, and answers by the count."""

    count = 0

    def between(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * (1 + self.count % 3)


class Locking(Small):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.made = False

    def between(self, x: Tensor) -> Tensor:
        if self.made is False:
            self.made = threading.Lock()
        with self.made:
            return x


class Centring(Small):
    """Looks across the batch in its own way."""

    def between(self, x: Tensor) -> Tensor:
        return x / x.abs().amax(0)


class Failing(Small):
    """Refuses images that somebody has changed."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise ValueError("Something is wrong with this view.")
        return super().forward(x)


@pytest.mark.parametrize("kind", ["image_bn", "image_gn", "vit_ln"])
def test_answers_are_those_of_one_view_after_the_other(kind):
    network = make_network(kind).double()
    expected = answers(adapter(network, 1))
    for lanes in (2, 3, 8):
        torch.testing.assert_close(answers(adapter(network, lanes)), expected, atol=1e-9, rtol=1e-9)


def test_answers_do_not_depend_on_which_lane_is_faster():
    network = make_network("image_bn")
    first = answers(adapter(network, 3))
    assert all(torch.equal(answers(adapter(network, 3)), first) for _ in range(3))


@pytest.mark.parametrize("kind", [Noting, Drawing, Generating, Counting, Locking])
def test_networks_that_keep_things_and_networks_that_draw(kind):
    network = kind().double()
    made = adapter(network, 3)
    torch.testing.assert_close(answers(made), answers(adapter(network, 1)), atol=1e-12, rtol=1e-12)
    # The first batch does not show that a network cannot be copied later on.
    assert made._passes.tried == {(made.teacher, False, True): kind in (Noting, Locking)}


def test_views_of_a_network_that_looks_across_the_batch_are_not_pooled():
    expected = answers(adapter(Centring().double(), 1))
    made = ctta.DSS(Centring().double(), preset="cifar10", gate=1.0, views=5, lr=1e-2, ema=0.9)
    torch.testing.assert_close(answers(made), expected, atol=1e-12, rtol=1e-12)
    assert made._passes.tried == {(made.teacher, True, False): False}


@pytest.mark.parametrize("late", [False, True])
def test_a_network_that_somebody_listens_to_has_one_pass_at_a_time(late):
    made, heard = adapter(Small(), 3), []
    if late:
        answers(made)
    made.teacher.head.register_forward_hook(lambda *_: heard.append(threading.current_thread()))
    answers(made)
    assert len(heard) == 15
    assert set(heard) == {threading.current_thread()}


def test_a_batch_that_is_refused_changes_nothing():
    network = Small().double()
    expected = answers(adapter(network, 3))
    for early in (True, False):
        made = adapter(network, 3)
        if not early:
            made(make_batch("image_bn", 8, 0).double())
        with pytest.raises(ctta.CttaError, match=r"\(8, 1, 16, 16\)"):
            made(make_batch("image_bn", 8, 0)[:, :1].double())
        made.reset()
        assert torch.equal(answers(made), expected)
        assert made._passes.tried == {(made.teacher, False, True): True}


def test_one_view_at_a_time_where_there_is_no_room_for_more(monkeypatch):
    made, expected = adapter(Small().double(), 3), answers(adapter(Small().double(), 1))
    answers(made)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(made._passes, "_in_chunks", full)
    made.reset()
    torch.testing.assert_close(answers(made), expected, atol=1e-12, rtol=1e-12)


def test_lanes_of_a_lane_are_one():
    def nested(number: int) -> list[int]:
        return side_by_side([lambda item: item + number] * 2, range(3))

    assert side_by_side([nested] * 2, (0, 10)) == [[0, 1, 2], [10, 11, 12]]


def test_items_may_be_none():
    assert side_by_side([str, str], [1, None, 3]) == ["1", "None", "3"]


def test_chunks_are_even():
    x = torch.empty(4, 3, 32, 32)
    assert Execution(chunk=20, lanes=2).arrange(x, 32) == (8, 2), "not ten, ten, ten and two"
    assert Execution(chunk=20, lanes=2).arrange(x, 1) == (1, 1)
    assert Execution(chunk=3, lanes=1).arrange(x, 7) == (3, 1)
    assert Execution(compile=True, lanes=2).arrange(x, 32) == (1, 1)


def test_after_a_reset_the_answers_are_the_same():
    for network in (Small(), Drawing()):
        made = adapter(network, 2)
        first = answers(made)
        made.reset()
        assert torch.equal(answers(made), first)


def test_what_fails_side_by_side_fails_with_the_words_of_one_pass():
    with pytest.raises(ctta.ModelError, match=r"failed on a batch of shape .*Something is wrong with this view"):
        answers(adapter(Failing(), 2))


def test_forward_passes_are_counted():
    counts = [adapter(Small(), lanes).step(make_batch("image_bn", 8, 0)).info["forwards"] for lanes in (1, 2)]
    assert counts[0] == counts[1] == 6  # five views and the student


def test_precision_holds_in_every_lane():
    network = make_network("image_bn")
    full, narrow = (answers(adapter(network, 2, precision=precision)) for precision in ("full", "bfloat16"))
    assert not torch.equal(full, narrow)
    torch.testing.assert_close(narrow, answers(adapter(network, 1, precision="bfloat16")), atol=1e-2, rtol=1e-2)
    with torch.autocast("cpu", torch.bfloat16):
        assert Execution(lanes=2).passes_at_once(make_batch("image_bn", 8, 0)) == 1


def test_lanes_go_by_size_and_threads():
    threads, execution = torch.get_num_threads(), Execution()
    assert execution.passes_at_once(torch.empty(2, 3, 32, 32)) == threads
    assert execution.passes_at_once(torch.empty(1 + SIDE_BY_SIDE // 2)) == 1
    assert execution.passes_at_once(torch.empty(2, 3, 32, 32, device="meta")) == 1
    assert Execution(lanes=5).passes_at_once(torch.empty(2, 3, 32, 32)) == 5


def test_a_twin_has_the_same_tensors_and_modules_of_its_own():
    network = make_network("image_bn")
    twin = layers.twin(network)
    mine, theirs = list(network.modules()), list(twin.modules())
    assert len(mine) == len(theirs)
    assert not {id(module) for module in mine} & {id(module) for module in theirs}
    assert all(one is other for one, other in zip(network.parameters(), twin.parameters(), strict=True))
    assert all(one is other for one, other in zip(network.buffers(), twin.buffers(), strict=True))


def test_items_are_made_in_order_and_results_are_in_order():
    made: list[int] = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    def slow(number: int) -> int:
        time.sleep(0.003 * (number % 3))
        return -number

    assert side_by_side([slow, slow, slow], items()) == [-number for number in range(20)]
    assert made == list(range(20))


def test_a_failure_ends_every_lane():
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    endless = iter(range(10**9))
    with pytest.raises(ValueError, match="three"):
        side_by_side([work, work], endless)
    assert next(endless) < 10**6


def test_lanes_have_their_share_of_the_threads_and_others_keep_theirs():
    before = torch.get_num_threads()
    assert side_by_side([lambda _: torch.get_num_threads()] * 2, range(4)) == [max(1, before // 2)] * 4
    assert torch.get_num_threads() == before
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert seen == [before]
