"""Threads that share an adapter: one adapts, the others predict, each from one consistent set of weights."""

from __future__ import annotations

import copy
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import nn

from ctta import DSS, TENT, Guard, ModelError, StateError
from ctta.core.turns import Turns
from ctta.testing.networks import make_network, make_stream

PATIENCE = 60  # seconds after which a test gives up
STREAM = make_stream("image_bn", 24)
X = STREAM[0]


class Queue(dict):
    """The ends of turns, by ticket; says when a thread has come: it looks up its own, and then the one before it."""

    def __init__(self):
        self.came, self.asked = threading.Semaphore(0), itertools.count(1)

    def setdefault(self, ticket, lock):
        found = super().setdefault(ticket, lock)
        if next(self.asked) % 2 == 0:
            self.came.release()
        return found


def make_turns():
    turns = Turns()
    turns._ends = queue = Queue()
    return turns, queue


def come(turns, queue, work):
    """Start a thread that does some work in its turn, and wait until it stands in the queue."""

    def run():
        with turns.take():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    assert queue.came.acquire(timeout=PATIENCE)
    return thread


def test_turns_come_in_the_order_of_arrival():
    turns, queue = make_turns()
    order = []
    with turns.take():
        assert queue.came.acquire(timeout=PATIENCE)
        threads = [come(turns, queue, lambda i=i: order.append(i)) for i in range(6)]
        assert order == []
    for thread in threads:
        thread.join(PATIENCE)
    assert order == list(range(6))


def test_who_asks_again_stands_behind_those_who_wait():
    turns, queue = make_turns()
    order = []
    with turns.take():
        assert queue.came.acquire(timeout=PATIENCE)
        thread = come(turns, queue, lambda: order.append("other"))
    with turns.take():
        order.append("again")
    thread.join(PATIENCE)
    assert order == ["other", "again"]


def test_a_turn_inside_a_turn_and_one_that_fails():
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.take(adapts=True), turns.take(), turns.take(adapts=True):
        _ = 1 / 0
    with turns.take(adapts=True):
        pass


def test_who_gives_up_waiting_lets_nobody_in_too_early():
    """An interrupt in the queue: the thread behind it still waits for the one that is at work."""
    turns, queue = make_turns()
    order, tried = [], threading.Semaphore(0)

    class Impatient:
        def acquire(self):
            raise KeyboardInterrupt

    class Tried:
        def __init__(self, lock):
            self.lock, self.locked = lock, lock.locked

        def __enter__(self):
            tried.release()
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    with turns.take():
        assert queue.came.acquire(timeout=PATIENCE)
        turns._ends[0], turns._lock = Impatient(), Tried(turns._lock)
        with ThreadPoolExecutor(1) as pool:
            assert isinstance(pool.submit(turns.take().__enter__).exception(PATIENCE), KeyboardInterrupt)
        assert queue.came.acquire(timeout=PATIENCE)
        thread = come(turns, queue, lambda: order.append("behind"))
        assert tried.acquire(timeout=PATIENCE)
        assert order == []
    thread.join(PATIENCE)
    assert order == ["behind"]


class Stops(nn.Module):
    """Passes its input on; if it is told so, not before somebody lets it. All copies are one."""

    def __init__(self):
        super().__init__()
        self.stops, self.reached, self.go = False, threading.Event(), threading.Event()

    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        if self.stops:
            self.stops = False
            self.reached.set()
            assert self.go.wait(PATIENCE)
        return x


def test_a_prediction_waits_for_the_batch_and_a_second_thread_may_not_adapt():
    stop = Stops()
    adapter = TENT(nn.Sequential(stop, make_network("image_bn")))
    twin = copy.deepcopy(adapter)
    before = twin.predict(X)
    twin(STREAM[1])
    after = twin.predict(X)
    assert not torch.equal(before, after)
    adapter._turns._ends = queue = Queue()
    stop.stops = True
    with ThreadPoolExecutor(3) as pool:
        step = pool.submit(adapter.step, STREAM[1])
        assert stop.reached.wait(PATIENCE)
        assert queue.came.acquire(timeout=PATIENCE)
        with pytest.raises(StateError, match=r"middle of a batch\. Only one thread may adapt"):
            adapter.step(X)
        with pytest.raises(StateError, match="Only one thread"):
            Guard(adapter).step(X)
        readers = [pool.submit(adapter.predict, X), pool.submit(adapter.source, X)]
        assert all(queue.came.acquire(timeout=PATIENCE) for _ in readers)
        assert not any(reader.done() for reader in readers)
        stop.go.set()
        assert step.result(PATIENCE).logits.isfinite().all()
        answers = [reader.result(PATIENCE) for reader in readers]
    assert torch.equal(answers[0], after)
    assert torch.equal(answers[1], twin.source(X))


def test_a_batch_waits_for_a_prediction():
    stop = Stops()
    adapter = TENT(nn.Sequential(stop, make_network("image_bn")))
    twin = copy.deepcopy(adapter)
    adapter._turns._ends = queue = Queue()
    stop.stops = True
    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(adapter.predict, X)
        assert stop.reached.wait(PATIENCE)
        assert queue.came.acquire(timeout=PATIENCE)
        step = pool.submit(adapter.step, STREAM[1])
        assert queue.came.acquire(timeout=PATIENCE)
        stop.go.set()
        assert torch.equal(reader.result(PATIENCE), twin.predict(X))
        assert torch.equal(step.result(PATIENCE).logits, twin(STREAM[1]))


def test_a_model_that_calls_its_own_adapter_is_told_instead_of_waiting_for_ever():
    class Calls(nn.Module):
        adapter = None

        def forward(self, x):
            return x if Calls.adapter is None else Calls.adapter.predict(x)

    adapter = TENT(nn.Sequential(Calls(), make_network("image_bn")))
    adapter(X)
    Calls.adapter = adapter
    with pytest.raises(ModelError, match="its model has called it"):
        adapter(X)
    Calls.adapter = None
    adapter(X)


MAKERS = {
    "tent, auto statistics": lambda: TENT(make_network("image_bn"), lr=0.05),
    "tent, running statistics": lambda: TENT(make_network("image_bn"), statistics="running", lr=0.05),
    "dss": lambda: DSS(make_network("image_bn"), views=2),
    "a guard": lambda: Guard(TENT(make_network("image_bn"), preset="cifar10", lr=0.05)),
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_answers_under_load_are_those_of_one_consistent_state(name, monkeypatch):
    """Three threads predict as fast as they can while one adapts: every answer is one that a single thread gives."""
    monkeypatch.setattr("ctta.core.health.excess", lambda logits, reference: torch.tensor(1e9))
    for name_of, value in {"AGAIN": 0, "FIRST": 0, "RETRIAL": 0}.items():
        monkeypatch.setattr(f"ctta.core.guard.{name_of}", value)  # a guard rolls back at every third batch
    adapter = MAKERS[name]()
    if isinstance(adapter, Guard):
        adapter.state = replace(adapter.state, trial=0)
    twin, wanted = copy.deepcopy(adapter), []
    for x in STREAM:
        wanted.append(twin.predict(X))
        twin(x)
    wanted.append(twin.predict(X))
    assert len({one.numpy().tobytes() for one in wanted}) > 10
    if isinstance(twin, Guard):
        assert [event.kind for event in twin.events].count("roll-back") == 8
    unadapted, ended, start = twin.source(X), threading.Event(), threading.Barrier(4)

    def read():
        start.wait(PATIENCE)
        answers = [adapter.predict(X)]
        while not ended.is_set():
            answers.append(adapter.predict(X))
            assert torch.equal(adapter.source(X), unadapted)
        return answers

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            start.wait(PATIENCE)
            for x in STREAM:
                adapter.step(x)
        finally:
            ended.set()
        answers = [answer for reader in readers for answer in reader.result(PATIENCE)]
    odd = [answer for answer in answers if not any(torch.equal(answer, one) for one in wanted)]
    assert not odd, f"{len(odd)} of {len(answers)} answers are of no state"
    assert torch.equal(adapter.predict(X), wanted[-1])
