"""How requests become batches."""

from __future__ import annotations

import pytest

from ctta.serving.messages import Question
from ctta.serving.queue import Queue, Waiting
from ctta.serving.refusals import Refused
from small_service import pixels

LATER = 1e12


def waiting(stream, samples=1, action=None, **given):
    return Waiting(stream, action or Question(stream, pixels(0, samples), **given), LATER)


def take_all(queue):
    queue.close()
    batches = []
    while batch := queue.take(lambda: None):
        batches.append([(one.stream, one.samples) for one in batch])
    return batches


def test_requests_of_one_stream_are_collected_and_others_never_join_them():
    queue = Queue(batch=4, max_delay=LATER, most=100, most_of_stream=100)
    for stream in "abababa":
        queue.put(waiting(stream))
    assert take_all(queue) == [[("a", 1)] * 4, [("b", 1)] * 3]


def test_a_full_batch_does_not_wait():
    queue = Queue(batch=4, max_delay=LATER, most=100, most_of_stream=100)
    queue.put(waiting("slow"))
    queue.put(waiting("full", 3))
    queue.put(waiting("full", 1))
    assert [one.stream for one in queue.take(lambda: None)] == ["full", "full"]


def test_a_request_that_does_not_fit_makes_the_ones_before_it_a_batch():
    queue = Queue(batch=4, max_delay=LATER, most=100, most_of_stream=100)
    for samples in (3, 3, 9):
        queue.put(waiting("a", samples))
    assert take_all(queue) == [[("a", 3)], [("a", 3)], [("a", 9)]]


def test_nobody_waits_longer_than_the_delay():
    queue = Queue(batch=100, max_delay=0.0, most=100, most_of_stream=100)
    queue.put(waiting("a"))
    assert len(queue.take(lambda: None)) == 1


@pytest.mark.parametrize(
    "second",
    [{"adapt": False}, {"source": True}, {"start": True}, {"action": "freeze"}],
    ids=["adapt", "source", "start", "action"],
)
def test_what_is_not_alike_is_not_mixed_and_order_is_kept(second):
    queue = Queue(batch=10, max_delay=LATER, most=100, most_of_stream=100)
    for given in ({}, second, {}):
        queue.put(waiting("a", **given))
    batches = take_all(queue)
    assert [len(batch) for batch in batches] == ([1, 2] if "start" in second else [1, 1, 1])


def test_nothing_joins_behind_the_end_of_a_sequence():
    queue = Queue(batch=10, max_delay=LATER, most=100, most_of_stream=100)
    for given in ({}, {"end": True}, {}):
        queue.put(waiting("a", **given))
    assert [len(batch) for batch in take_all(queue)] == [2, 1]


def test_lines_are_bounded():
    queue = Queue(batch=10, max_delay=LATER, most=3, most_of_stream=2)
    queue.seconds = 2.0
    queue.put(waiting("a"))
    queue.put(waiting("a"))
    with pytest.raises(Refused, match="2 requests of stream 'a' wait already") as caught:
        queue.put(waiting("a"))
    assert (caught.value.status, caught.value.retry_after) == (429, 4)
    queue.put(waiting("b"))
    with pytest.raises(Refused, match="3 requests wait already"):
        queue.put(waiting("c"))
    queue.close()
    with pytest.raises(Refused, match="about to end"):
        queue.put(waiting("d"))
