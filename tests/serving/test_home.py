"""Streams in a home: put away and back, saved and lost, late and failing."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest

from ctta import InputError, StateError
from ctta.serving import streams
from ctta.serving.messages import Question
from ctta.serving.queue import Waiting
from ctta.serving.refusals import Refused, explained
from small_service import pixels


def ask(home, stream, seed, **given):
    return home.ask(Question(stream, pixels(seed, 32), **given)).result(60)


def answers(home, stream, seeds):
    return [ask(home, stream, seed).probabilities for seed in seeds]


def test_streams_that_were_put_away_come_back_as_they_were(open_home):
    expected = answers(open_home(state=None), "a", range(6))
    home = open_home(streams=1)
    found = []
    for seed in range(6):
        found += answers(home, "a", [seed])
        ask(home, "b", seed)
        home.act("b", "checkpoint").result(60)  # comes behind the last one's putting away
        assert list(home.streams.resident) == ["b"]
        assert home.show("a") == {"name": "a", "resident": False}
    assert np.array_equal(found, expected)


def test_blank_pictures_teach_nothing(open_home):
    home = open_home()
    blank = home.ask(Question("a", np.full_like(pixels(0, 32), 0.5))).result(60)
    assert (blank.adapted, blank.step, blank.guard) == (False, 0, "ok")
    assert 'reason="nothing_to_learn"} 1.0' in home.metrics.text().decode()
    assert ask(home, "a", 0).step == 1


def test_a_camera_that_is_dead_from_the_start_is_told_though_streams_alternate(open_home):
    home, blank = open_home(), np.full_like(pixels(0, 1), 0.5)
    for seed in range(20):
        home.ask(Question("dead", blank)).result(60)
        ask(home, "alive", seed)
    home.act("dead", "checkpoint").result(60)
    assert [event["kind"] for event in home.show("dead")["events"] if event["kind"] == "blank"] == ["blank"]
    home.ask(Question("dead", blank, start=True)).result(60)
    assert home.streams.seat.adapter.state.blank == len(blank), "it begins anew"


def test_bytes_are_bounded_too(open_home):
    home = open_home(stream_bytes=1000)  # one stream of this model has some hundred
    for stream in "abcdef":
        ask(home, stream, 0)
    for _ in range(2):
        home.act("f", "checkpoint").result(60)
    assert 0 < home.streams.bytes <= 1000
    assert home.listing()["total"] == 6


def test_the_number_of_streams_is_bounded(open_home):
    home = open_home(stored=2)
    for stream in "ab":
        ask(home, stream, 0)
    with pytest.raises(Refused, match="There are 2 streams, the limit"):
        ask(home, "c", 0)
    home.act("a", "delete").result(60)
    ask(home, "c", 0)


def test_a_service_that_ended_goes_on(open_home):
    expected = answers(open_home(state=None), "a", range(6))
    first = open_home()
    found = answers(first, "a", range(3))
    first.act("a", "freeze").result(60)
    first.close()
    second = open_home()
    assert second.listing()["streams"] == [{"name": "a", "resident": False}]
    assert ask(second, "a", 0, adapt=False).guard == "frozen"
    second.act("a", "resume").result(60)
    found += answers(second, "a", range(3, 6))
    assert np.array_equal(found, expected)
    assert [event["kind"] for event in second.show("a")["events"]] == ["freeze", "resume"]


def test_a_folder_has_one_service_at_a_time_and_one_model(open_home):
    home = open_home()
    with pytest.raises(StateError, match="is locked by process"):
        open_home()
    home.close()
    with pytest.raises(StateError, match="method was 'tent', is 'bn_adapt'"):
        open_home(method="bn_adapt")


def test_a_damaged_file_is_refused_until_it_is_deleted(open_home):
    home = open_home()
    ask(home, "a", 0)
    home.close()
    (path,) = home.streams.store.folder.glob("a.*.safetensors")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    again = open_home()
    with pytest.raises(StateError) as caught:
        ask(again, "a", 0)
    assert explained(caught.value).status == 409
    again.act("a", "delete").result(60)
    assert ask(again, "a", 0).step == 1


def test_streams_are_saved_after_so_many_updates(open_home):
    home = open_home(save_updates=3, save_seconds=1e6)
    saved = []
    for seed in range(7):
        ask(home, "a", seed)
        home.act("a", "resume").result(60)  # an action comes behind the save
        saved.append(home.streams.store.read("a")["step"] if "a" in home.streams.store.names else 0)
    assert all(step - kept <= 3 for step, kept in zip(range(1, 8), saved, strict=True))
    assert saved[-1] > 3


def test_what_a_batch_moved_is_kept_if_nothing_was_learned_from_it(open_home):
    """Its counters, the averages and trial of the guard."""
    home = open_home(method="eta", changes={"margin": 1e-6}, streams=1)  # no sample is sure enough
    for seed in range(2):
        answer = ask(home, "a", seed)
        assert (answer.adapted, answer.step, answer.version) == (False, seed + 1, 0)
        ask(home, "b", 0)
        home.act("b", "checkpoint").result(60)  # comes behind the putting away of a
        assert home.show("a") == {"name": "a", "resident": False}


def test_streams_are_saved_after_so_much_time(open_home):
    home = open_home(save_updates=10**6, save_seconds=0.0)
    ask(home, "a", 0)
    deadline = time.monotonic() + 60
    while "a" not in home.streams.store.names:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert home.streams.store.read("a")["step"] == 1


def test_a_disk_that_fails_loses_nothing_and_is_told(open_home, monkeypatch):
    expected = answers(open_home(state=None), "a", range(3))
    home = open_home(save_updates=1, streams=1)
    write = home.streams.store.write

    def full(*_):
        raise InputError("the disk is full")

    monkeypatch.setattr(home.streams.store, "write", full)
    found = answers(home, "a", range(2))
    ask(home, "b", 0)
    assert home.show("a")["events"][-1]["kind"] == "not saved"
    assert "ctta_failed_saves_total" in home.metrics.text().decode()
    with pytest.raises(Refused, match="the disk is full"):
        home.act("a", "checkpoint").result(60)
    monkeypatch.setattr(home.streams.store, "write", write)
    found += answers(home, "a", [2])
    assert np.array_equal(found, expected)


def test_a_disk_that_fails_has_a_rest(open_home, monkeypatch):
    home = open_home(save_updates=2, save_seconds=0.0, streams=1)
    tries, write = [], home.streams.store.write

    def full(name, _):
        tries.append(name)
        raise InputError("the disk is full")

    monkeypatch.setattr(home.streams.store, "write", full)
    monkeypatch.setattr(streams, "REST", 1e6)
    for seed in range(3):
        for stream in "ab":
            ask(home, stream, seed)
    assert len(tries) == 1, "after so many batches, after so much time, and to make room"
    with pytest.raises(Refused, match="the disk is full"):
        home.act("a", "checkpoint").result(60)
    monkeypatch.setattr(home.streams.store, "write", write)
    assert home.act("a", "checkpoint").result(60)["unsaved_updates"] == 0


def test_a_save_that_failed_is_tried_again_at_the_next_batch(open_home, monkeypatch):
    home = open_home(save_updates=2, save_seconds=1e6)
    write, tries = home.streams.store.write, []

    def full_at_first(*given):
        tries.append(given)
        return write(*given) if len(tries) > 1 else 1 / 0

    monkeypatch.setattr(streams, "REST", 0.0)
    monkeypatch.setattr(home.streams.store, "write", full_at_first)
    for seed in range(3):
        ask(home, "a", seed)
    ask(home, "a", 0, adapt=False)  # comes behind the save
    assert [event["kind"] for event in home.show("a")["events"]] == ["not saved"]
    assert home.streams.store.read("a")["step"] == 3


def test_a_request_that_is_late_is_given_up_and_teaches_nothing(open_home):
    home = open_home()
    ask(home, "a", 0)
    late = Waiting("a", Question("a", pixels(1)), deadline=time.monotonic() - 1)
    home.queue.put(late)
    with pytest.raises(Refused, match="Nothing was learned") as caught:
        late.result.result(60)
    assert caught.value.status == 504
    assert home.show("a")["step"] == 1


def test_a_failure_is_told_to_those_who_wait_and_others_go_on(open_home, monkeypatch):
    home = open_home()
    process = home.streams.seat.process
    monkeypatch.setattr(home.streams.seat, "process", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(home, "a", 0)
    monkeypatch.setattr(home.streams.seat, "process", process)
    assert ask(home, "a", 0).step == 1


def test_closing_answers_what_waits(open_home):
    home = open_home(max_delay=60.0, deadline=60.0)
    waits = [home.ask(Question("a", pixels(seed))) for seed in range(3)]
    home.close()
    assert [one.result(0).step for one in waits] == [1, 1, 1]
    assert home.streams.store.read("a")["step"] == 1
    with pytest.raises(Refused, match="about to end"):
        home.ask(Question("a", pixels(0)))


def test_a_refusal_can_go_to_another_process():
    made = pickle.loads(pickle.dumps(Refused(429, "Ask again.", 3)))
    assert (made.status, str(made), made.retry_after) == (429, "Ask again.", 3)


def test_point_clouds(open_home):
    home = open_home(model="embedded_clouds", size=None, method="bn_adapt")
    x = np.random.default_rng(0).standard_normal((2, 1024, 3)).astype(np.float32)
    assert home.ask(Question("a", x)).result(60).probabilities.shape == (2, 12)


def test_the_guard_s_alarms_are_events_and_metrics(open_home):
    home = open_home()
    ask(home, "a", 0)
    guard = home.streams.seat.adapter
    guard.state = replace(guard.state, evidence=1e6)
    assert ask(home, "a", 1).guard == "rolled back"
    shown = home.show("a")
    assert [event["kind"] for event in shown["events"]] == ["roll-back"]
    assert (shown["version"], shown["unsaved_updates"]) == (2, 2), "one per batch, also if it was taken back"
    assert 'ctta_rollbacks_total{model="m",to="source"} 1.0' in home.metrics.text().decode()
    home.act("a", "rollback").result(60)
    assert home.show("a")["version"] == 3


def test_without_a_guard_a_roll_back_is_a_change_too(open_home):
    home = open_home(guard=False)
    ask(home, "a", 0)
    assert home.act("a", "rollback").result(60)["version"] == 2
