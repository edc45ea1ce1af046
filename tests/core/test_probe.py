"""Clean samples tell whether the model still knows them, and whether the stream is like them."""

from __future__ import annotations

import copy
import io
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ctta import EATA, TENT, Guard, InputError, StateError, Step
from ctta.core import guard as guards
from ctta.core import probe as probes
from ctta.testing.contract import flat_state, same
from ctta.testing.device import pretended
from ctta.testing.networks import CLASSES, make_batch, make_network

CLEAN = [make_batch("image_bn", 40, seed) for seed in range(100, 105)]
STREAM = [make_batch("image_bn", 16, seed) for seed in range(60)]


class Forgetful(TENT):
    """Answers on the stream as it should; from batch `since` on its weights give one class for clean samples."""

    name, title = "forgetful", "Forgetful"
    since = 12

    def adapt(self, x: Tensor) -> Step:
        logits = self.run(self.source_model, x)
        if self.batches >= self.since:
            with torch.no_grad():
                self.model.bn2.weight.zero_()
        return Step(logits)


def labelled() -> list[tuple[Tensor, Tensor]]:
    network = make_network("image_bn").eval()
    return [(x, network(x).argmax(1)) for x in CLEAN]


def guarded(method: type[TENT] = Forgetful, **fields: float) -> Guard:
    guard = Guard(method(make_network("image_bn"), lr=0.0, **fields))
    guard.prepare(CLEAN)
    return guard


def test_effective_rank_in_numbers():
    assert probes.effective_rank(torch.eye(4)).item() == pytest.approx(4)
    assert probes.effective_rank(torch.ones(6, 3)).item() == pytest.approx(1)
    shares = (0.75, 0.25)
    entropy = -sum(share * math.log(share) for share in shares)
    assert probes.effective_rank(torch.diag(torch.tensor([3.0, 1.0]))).item() == pytest.approx(math.exp(entropy))
    assert probes.effective_rank(torch.zeros(6, 3)).item() == pytest.approx(1)


def test_bins_are_those_of_the_entropy():
    """Of two classes: no doubt, a tenth of ln 2, and all doubt; impossible classes make no difference."""
    low, high = 0.0, 0.5
    for _ in range(60):  # the probability whose entropy is a tenth of ln 2
        middle = (low + high) / 2
        doubt = -(middle * math.log(middle) + (1 - middle) * math.log(1 - middle)) / math.log(2)
        low, high = (middle, high) if doubt < 0.1 else (low, middle)
    logits = torch.tensor([[1e4, 0.0], [math.log(1.02 * low), math.log(1 - 1.02 * low)], [0.0, 0.0]])
    assert probes.bins(logits) == [0, (probes.DECADES - 1) * probes.PER_DECADE, probes.BINS - 1]


def test_a_bet_in_numbers():
    """Three clean entropies in bin 1. The first is above them: rank (3 + draw) / 4; the second ties with it."""
    clean = [0] * probes.BINS
    clean[1] = 3
    first = probes.Bet().place([5], [0.6], clean)
    assert first.wealth == 0, "nothing is staked at first"
    assert first.squares == pytest.approx(0.4**2), "u = 0.9"
    assert first.stake == pytest.approx(probes.RATE)
    second = first.place([5], [0.5], clean)
    assert second.wealth == pytest.approx(math.log1p(probes.RATE * (4 / 5 - 0.5))), "u = (3 + 0.5 x 2) / 5"
    assert second.seen[5] == 2
    assert probes.Bet().place([5, 5], [0.6, 0.5], clean) == second


def alarms(stream: Tensor, clean: int, generator: torch.Generator) -> float:
    """The share of streams, (streams, samples) of bins, that give an alarm; their first samples are the clean ones."""
    found = 0
    for line in stream.tolist():
        counts = [0] * probes.BINS
        for place in line[:clean]:
            counts[place] += 1
        bet = probes.Bet()
        for start in range(clean, len(line), 50):
            part = line[start : start + 50]
            bet = bet.place(part, torch.rand(len(part), generator=generator).tolist(), counts)
            if bet.won:
                found += 1
                break
    return found / len(stream)


@pytest.mark.parametrize("clean", [20, 300])
@pytest.mark.parametrize("ties", [0.0, 0.9])
def test_false_alarms_are_rarer_than_stated(clean, ties):
    """200 streams like their clean samples; with ties, nine of ten entropies are the same."""
    generator = torch.Generator().manual_seed(1)
    bins = torch.randint(0, probes.BINS, (200, clean + 1000), generator=generator)
    bins[torch.rand(bins.shape, generator=generator) < ties] = 0
    # 2 of 200 are expected at most; more than 6 have a probability of 0.5 %.
    assert alarms(bins, clean, generator) <= 0.03


@pytest.mark.parametrize("sign", [1, -1])
def test_a_shift_is_found(sign):
    generator = torch.Generator().manual_seed(2)
    bins = 128 + 25 * torch.randn(40, 700, generator=generator)
    bins[:, 300:] += sign * 25
    assert alarms(bins.clamp(0, probes.BINS - 1).long(), 300, generator) == 1


def test_a_stream_unlike_the_clean_samples_is_told_once():
    guard, same_world = guarded(TENT), guarded(TENT)
    for x in STREAM:
        guard(0.3 * x)
        same_world(x)
    kinds = [event.kind for event in guard.events]
    assert kinds.count("changed") == 1
    assert [event.alarming for event in guard.events if event.kind == "changed"] == [False]
    assert "changed" not in [event.kind for event in same_world.events]
    guard.reset()
    assert guard.bet == probes.Bet()
    assert guard.probe is not None, "what was shown is not forgotten"


@pytest.mark.parametrize("labels", [False, True])
def test_a_planted_collapse_is_found_by_the_probe(labels, monkeypatch):
    """On the stream the answers are the reference's, so that nothing else can see it."""
    monkeypatch.setattr(guards, "APART", 5)
    monkeypatch.setattr(probes, "APART", 10)
    plain, guard = Guard(Forgetful(make_network("image_bn"), lr=0.0)), guarded()
    for each in (plain, guard):
        each.state = replace(each.state, trial=0, lost=True)
    guard.prepare(labelled() if labels else CLEAN)
    for x in STREAM[:20]:
        plain(x)
        guard(x)
    assert guard.events == plain.events == []
    guard(STREAM[20])
    (event,) = guard.events
    assert (event.batch, event.kind) == (20, "roll-back")
    assert "since batch 10 (of 150 clean samples" in event.words
    assert "went back to the last healthy state" in event.words
    assert [snapshot.batch for snapshot in guard.snapshots] == [5], "that of batch 10 was not judged yet"
    for x in STREAM[21:]:
        plain(x)
        guard(x)
    kinds = [[event.kind for event in one.events if event.kind != "lost"] for one in (guard, plain)]
    assert kinds == [["roll-back"] * 2 + ["frozen"], []]


def test_the_rank_alone_is_enough():
    """All answers right, and all nearly the same."""
    x, y = torch.rand(40, 3, 4, 4), torch.arange(40) % 3
    start = 50 * torch.eye(3)[y]
    probe = probes.Probe(x, y, (0,) * probes.BINS)
    narrow = 1e-3 * torch.eye(3)[y]

    def answers(logits: Tensor):
        parts = iter(logits.split(probes.TOGETHER))
        return lambda _: next(parts)

    assert probe.forgotten(answers(start), answers(start), x.device) == ""
    assert "rank of 1.0 instead of 3.0" in probe.forgotten(answers(narrow), answers(start), x.device)


def test_clean_samples_are_kept_at_random_up_to_a_number(caplog):
    gathered = probes.Gatherer()
    for start in range(0, 400, 50):
        x = torch.arange(start, start + 50).float().view(-1, 1, 1).expand(-1, 2, 2)
        gathered.add(x, torch.arange(start, start + 50), torch.zeros(50, 3))
    probe = gathered.probe()
    assert len(probe.x) == probes.SAMPLES
    assert torch.equal(probe.x[:, 0, 0].long(), probe.y), "labels stay with their samples"
    assert 150 < probe.y.float().mean() < 250
    assert len(probe.y.unique()) == probes.SAMPLES
    assert sum(probe.clean) == 400
    guard = Guard(TENT(make_network("image_bn")))
    guard.prepare([STREAM[0]])
    assert guard.probe is None
    assert "fewer than 20" in caplog.text


def test_the_guard_reads_no_more_than_it_needs():
    read = []

    def batches():
        for number in range(1000):
            read.append(number)
            yield make_batch("image_bn", 100, number)

    Guard(TENT(make_network("image_bn"))).prepare(batches())
    assert len(read) == probes.MOST // 100


def test_a_method_that_needs_source_data_gets_all_of_them():
    alone, guard = EATA(make_network("image_bn")), Guard(EATA(make_network("image_bn")))
    alone.prepare(labelled())
    guard.prepare(labelled())
    assert guard.probe.y is not None
    assert same(flat_state(alone.state_dict()), flat_state(guard.adapter.state_dict()))
    with pytest.raises(InputError, match=r"EATA needs source data with labels"):
        Guard(EATA(make_network("image_bn"))).prepare(CLEAN)


def test_what_is_no_clean_sample():
    guard = guarded()
    before = guard.probe
    for wrong in (
        [CLEAN[0], (CLEAN[1], torch.zeros(40, dtype=torch.int64))],
        [(CLEAN[0], torch.zeros(39, dtype=torch.int64))],
        [CLEAN[0], make_batch("image_bn", 40, 0)[..., :8]],
        [CLEAN[0] * float("nan")],
    ):
        with pytest.raises(InputError):
            guard.prepare(wrong)
        assert guard.probe is before


def test_a_saved_guard_goes_on(monkeypatch):
    monkeypatch.setattr(probes, "APART", 10)
    whole, first = guarded(), guarded()
    expected = [whole(x) for x in STREAM]
    for x in STREAM[:17]:
        first(x)
    second = Guard(Forgetful(make_network("image_bn"), lr=0.0))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert same(expected[17:], [second(x) for x in STREAM[17:]])
    assert (second.state, second.bet) == (whole.state, whole.bet)
    assert second.bet.squares > 0


def test_a_damaged_state_changes_nothing():
    guard, other = (Guard(TENT(make_network("image_bn"))) for _ in range(2))
    guard.prepare(labelled())
    guard(STREAM[0])
    before = flat_state(other.state_dict())
    nothing = object()
    for part, name, value in (
        ("bet", "wealth", math.nan),
        ("bet", "wealth", 1),
        ("bet", "stake", 5.0),
        ("bet", "squares", -1.0),
        ("bet", "seen", (0,) * 3),
        ("bet", "seen", (-1,) * probes.BINS),
        ("probe", "clean", None),
        ("probe", "clean", (0.5,) * probes.BINS),
        ("probe", "x", torch.zeros(5, 3, 16, 16)),
        ("probe", "x", torch.full((150, 3, 16, 16), math.nan)),
        ("probe", "x", torch.zeros(150, 3, 16, 16, device="meta")),
        ("probe", "x", torch.zeros(1, 1).expand(150, 10**12)),
        ("probe", "x", "pictures"),
        ("probe", "y", torch.full((150,), CLASSES)),
        ("probe", "y", torch.zeros(150)),
        ("probe", "y", torch.zeros(149, dtype=torch.int64)),
        ("probe", "strange", 1),
        ("probe", None, nothing),
        ("bet", None, nothing),
    ):
        saved = copy.deepcopy(guard.state_dict())
        saved["_extra_state"][part] = {**saved["_extra_state"][part], name: value} if name else value
        with pytest.raises(StateError):
            other.load_state_dict(saved)
        assert same(before, flat_state(other.state_dict()))
    other.load_state_dict(guard.state_dict())
    assert torch.equal(other.probe.x, guard.probe.x)


def test_on_another_device_the_guard_finds_the_same(monkeypatch):
    """What is computed in double precision is computed on the host, because not every device has it."""
    monkeypatch.setattr(probes, "APART", 10)
    told = []
    with pretended() as device:
        for there in (torch.device("cpu"), device):
            guard = Guard(Forgetful(make_network("image_bn").to(there), lr=0.0))
            guard.prepare((x.to(there), y.to(there)) for x, y in labelled())
            for x in STREAM[:21]:
                guard(x.to(there))
            told.append([(event.batch, event.words) for event in guard.events])
    assert told[0]
    assert told[0] == told[1]


def test_double_precision_is_only_asked_of_the_host():
    class NoDoubles(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            given = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
            made = operation(*args, **(kwargs or {}))
            doubled = isinstance(made, Tensor) and made.dtype == torch.float64
            assert not (doubled and any(one.device.type == "meta" for one in given)), operation
            return made

    with NoDoubles(), pytest.raises(NotImplementedError, match="meta"):  # it is copied to the host first
        probes.bins(torch.zeros(4, 3, device="meta"))
