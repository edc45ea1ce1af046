"""The guard takes back what does harm, and only that."""

from __future__ import annotations

import copy
import logging
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ctta import TENT, ConfigError, CoTTA, Guard, RoTTA, Sift, Source, StateError, Step
from ctta.core import guard as guards
from ctta.core import guard_state, health, inputs
from ctta.core.guard_state import Snapshot
from ctta.core.statistics import STREAM_BUFFERS
from ctta.testing.contract import flat_state, same
from ctta.testing.device import pretended, waits
from ctta.testing.networks import make_batch, make_network

X = make_batch("image_bn", 16, 0)


class Broken(TENT):
    """Answers with the class after the right one from batch `since` on, unless it is at the source again."""

    name, title = "broken", "Broken"
    since = 20

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        return Step(step.logits.roll(1, 1), step.info, step.samples) if self.batches >= self.since else step


def sure_network() -> torch.nn.Module:
    """A network that is sure of its answers."""
    network = make_network("image_bn")
    with torch.no_grad():
        network.head.weight.mul_(10)
    return network


def trusting(guard: Guard) -> Guard:
    """A guard whose adapter has passed its trial."""
    guard.state = replace(guard.state, trial=0)
    return guard


def test_excess_in_numbers():
    # Reference: sure of class 0 by 3/4, twice. The first label agrees: -1/4 - 0.1; the second does not: 1 - 1/4 - 0.1.
    reference = torch.tensor([[3.0, 1.0], [3.0, 1.0]]).log()
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert health.excess(logits, reference).item() == pytest.approx(-0.35 + 0.65)


def test_the_limit_is_that_of_the_stated_rate():
    assert health.SAMPLES * math.exp(-8 * health.SLACK * health.LIMIT) == pytest.approx(health.FALSE_ALARMS)


@pytest.mark.parametrize("doubt", [0.02, 0.3, 0.5])
def test_false_alarms_are_rarer_than_stated(doubt):
    """Labels that differ just as often as the reference doubts itself, 200 streams of 20,000 samples."""
    generator = torch.Generator().manual_seed(0)
    excess = (torch.rand(200, 20_000, generator=generator) < doubt).float() - doubt - health.SLACK
    evidence, most = torch.zeros(200), torch.zeros(200)
    for sample in excess.T:
        evidence = (evidence + sample).clamp(min=0)
        most = torch.maximum(most, evidence)
    assert (most > health.LIMIT).float().mean() <= health.FALSE_ALARMS


def test_signs_in_numbers():
    reference = torch.eye(4)[[0, 1, 2, 3]] * 50
    logits = torch.eye(4)[[0, 0, 0, 3]] * 50
    signs = {name: value.item() for name, value in health.signs(logits, reference).items()}
    assert signs["disagreement"] == 0.5
    assert (signs["classes"], signs["reference_classes"]) == (2, 4)
    assert signs["confidence_gap"] == pytest.approx(0, abs=1e-5)


def standing(source, reference):
    """After one batch with these probabilities of the first of two classes, four times each."""
    logits = [torch.tensor([[p, 1 - p] for p in one]).repeat(4, 1).log() for one in (reference, source)]
    return health.Standing.start(2).with_batch(*logits)


@pytest.mark.parametrize(
    ("source", "reference", "heard"),
    [
        ([0.9, 0.1, 0.9, 0.2], [0.8, 0.2, 0.6, 0.6], 1),  # surer by 0.17, labels differ in a quarter; doubt is 0.3
        ([0.7, 0.3, 0.7, 0.36], [0.7, 0.3, 0.6, 0.6], 0.5),  # surer by 0.035
        ([0.6, 0.4, 0.6, 0.4], [0.9, 0.1, 0.9, 0.6], 0),  # less sure
        ([0.99, 0.99, 0.99, 0.99], [0.1, 0.1, 0.9, 0.9], 0),  # labels differ in half, 0.4 beyond the doubt of 0.1
        ([0.9, 0.9, 0.1, 0.1], [0.8, 0.8, 0.2, 0.2], 0),  # labels are the same: nothing to choose
        ([0.9, 0.9, 0.9, 0.4], [0.9, 0.9, 0.9, 0.7], 1),  # nearly all of one class, and hardly less sure
        ([0.6, 0.6, 0.6, 0.4], [0.9, 0.9, 0.9, 0.9], 0),  # all of one class, and much less sure
        ([0.01, 0.01, 0.01, 0.99], [0.8, 0.8, 0.8, 0.95], 1),  # all of one class: a dissent of 0.59 is not enough
        ([0.01, 0.01, 0.01, 0.99], [0.9, 0.9, 0.9, 0.9], 0),  # a dissent of 0.65 is
        ([0.2, 0.2, 0.2, 0.95], [0.8, 0.8, 0.8, 0.95], 0),  # a dissent of 0.59, and not surer
    ],
)
def test_who_is_heard(source, reference, heard):
    assert standing(source, reference).heard() == heard


@pytest.mark.parametrize(("confidence", "heard"), [(0.45, 1), (0.6, 0)])
def test_a_reference_that_is_lost_contradicts_nobody(confidence, heard):
    """The unadapted model predicts one class, surely; the reference all ten in turn, so labels differ in 9 of 10."""
    reference = torch.full((10, 10), (1 - confidence) / 9).fill_diagonal_(confidence).log()
    source = torch.full((10, 10), 0.001).index_fill_(1, torch.tensor([0]), 0.991).log()
    monotone = health.Standing.start(10).with_batch(reference, source)
    assert monotone.signs[2] - (1 - confidence) > health.CONTRADICTED
    assert monotone.heard() == heard


def test_a_model_is_lost_below_a_part_of_the_way_from_chance_to_certainty():
    # 1/2 + 4/9 x 1/2 = 0.722; 0.1 + 4/9 x 0.9 = 0.5; 0.01 + 4/9 x 0.99 = 0.45
    for classes, limit in ((2, 0.7222), (10, 0.5), (100, 0.45)):
        assert health.is_lost(limit - 0.001, classes)
        assert not health.is_lost(limit + 0.001, classes)


def test_averages_of_a_standing():
    first, second = standing([0.9, 0.4], [0.8, 0.6]), [torch.tensor([[p, 1 - p]] * 8).log() for p in (0.7, 0.9)]
    both = first.with_batch(*second)
    assert (first.samples, both.samples) == (8, 16)
    assert first.signs.tolist() == pytest.approx([0.75, 0.7, 0.5])
    assert both.signs.tolist() == pytest.approx([0.825, 0.7, 0.25]), "all samples count alike while there are few"
    assert both.mix.tolist() == pytest.approx([0.7, 0.3])
    much = [one.repeat(health.FEW, 1) for one in second]
    assert both.with_batch(*much).signs.tolist() == pytest.approx([0.9, 0.7, 0]), "the last FEW samples and no others"


def test_the_unadapted_model_has_a_say_while_statistics_make_the_model_less_sure():
    """Statistics of 16 images make a sure network less sure in some batches and surer in others."""
    network = sure_network().train()
    with torch.no_grad():
        for seed in range(200):
            network(make_batch("image_bn", 64, seed))
    adapter = TENT(network.eval(), statistics="batch", lr=1e-5)
    guard, said = trusting(Guard(adapter, every=2)), set()
    for seed in range(60):
        x = make_batch("image_bn", 16, seed)
        own, source = adapter.predict(x), adapter.source(x)
        step = guard.step(x)
        said.add(heard := guard.state.heard)
        expected = own.softmax(1).lerp(source.softmax(1), heard)
        assert torch.allclose(step.logits.softmax(1), expected, atol=1e-4)
        assert step.info["confidence"] == pytest.approx(expected.amax(1).mean().item(), abs=1e-4)
    assert said == {0, 1}, "both kinds of batches came"


def test_blank_samples_are_answered_by_the_unadapted_model_and_nothing_is_learned_from_them():
    x, mixed = make_batch("image_bn", 6, 0), make_batch("image_bn", 6, 0)
    mixed[[1, 4]] = torch.tensor([0.2, 0.5, 0.9])[:, None, None]
    guard, other = (trusting(Guard(TENT(sure_network(), statistics="batch"))) for _ in range(2))
    live = torch.tensor([0, 2, 3, 5])
    step, expected = guard.step(mixed), other.step(x[live])
    assert torch.equal(step.logits[live], expected.logits)
    assert torch.allclose(step.logits[[1, 4]], guard.source(mixed[[1, 4]]))
    assert step.samples["confidence"].shape == (6,)
    assert torch.equal(guard.predict(mixed)[live], other.predict(x[live]))
    assert all(torch.equal(a, b) for a, b in zip(guard.parameters(), other.parameters(), strict=True))
    batches = guard.adapter.batches
    idle = guard.step(mixed[[1, 4]])
    assert idle.info["idle"] == 1
    assert (step.info["blank"], idle.info["blank"]) == (2, 2)
    assert torch.allclose(idle.logits, guard.source(mixed[[1, 4]]))
    assert guard.adapter.batches == batches, "a batch of blank samples is not part of the stream"
    assert guard.events == []
    for _ in range(10):
        guard.step(mixed)
    (event,) = guard.events
    assert (event.kind, event.alarming, guard.state.blank) == ("blank", False, 24)
    assert event.words.startswith("16 samples so far show nothing")


def test_what_is_blank():
    x = torch.rand(4, 3, 5, 5)
    x[0], x[1, 0], x[2] = 0, 0.5, torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    x[3, 0, 0, 0] = torch.nan
    assert inputs.blank_samples(x).tolist() == [True, False, True, False]
    assert inputs.blank_samples(torch.ones(2, 3, 1, 1)) is None, "one value per channel is all that such a sample has"
    assert inputs.blank_samples(torch.ones(2, 3)) is None
    noise, ramp = torch.randn(3, 32, 32), torch.linspace(-1, 1, 32).expand(3, 32, 32)
    seen = [1 - 0.01 * noise.abs(), 0.04 * noise.abs(), 0.5 + 0.02 * ramp + 0.01 * noise, 0.5 + 0.2 * noise]
    assert inputs.blank_samples(torch.stack(seen).clamp(0, 1)).tolist() == [True, True, False, False], (
        "white and black with the noise of a sensor; a scene without contrast; a scene that is all noise"
    )
    assert inputs.blank_samples(seen[1][None], pixels=False) is None, "what is faint is known of pixels only"
    saturated = torch.full((2, 3, 300, 300), 1000.0)
    saturated[1, :, 7, 7] = 999.0
    for dtype in (torch.float32, torch.bfloat16):
        assert inputs.blank_samples(saturated.to(dtype), pixels=False).tolist() == [True, dtype == torch.bfloat16]
    points = torch.rand(3, 7, 3)
    points[0], points[1] = points[0, :1], points[1, :, :1]  # one point; points on the diagonal
    assert inputs.blank_samples(points).tolist() == [True, False, False]


@pytest.mark.parametrize("heard", [0.0, 0.5, 1.0])
def test_the_answer_has_the_weight_of_the_unadapted_model(heard, monkeypatch):
    monkeypatch.setattr(health.Standing, "heard", lambda self: torch.tensor(heard))
    adapter, x = TENT(make_network("image_bn"), statistics="batch", lr=1e-5), make_batch("image_bn", 16, 0)
    own, source = adapter.predict(x).softmax(1), adapter.source(x).softmax(1)
    assert not torch.allclose(own, source, atol=1e-2)
    answer = trusting(Guard(adapter)).step(x).logits.softmax(1)
    assert torch.allclose(answer, own.lerp(source, heard), atol=1e-4)


def test_narrowing_in_numbers():
    reference = torch.eye(4)[[0, 1, 2, 3]] * 50
    logits = torch.eye(4)[[0, 0, 0, 3]] * 50
    means = health.Means.uniform(4)
    assert means.narrowing() == 0
    for _ in range(health.MEMORY // 4):  # after so many samples the past counts exp(-1)
        means = means.with_batch(logits, reference)
    past = math.exp(-1)
    own = [past / 4 + (1 - past) * part for part in (0.75, 0, 0, 0.25)]
    entropy = -sum(part * math.log(part) for part in own)
    assert means.own.tolist() == pytest.approx(own, abs=1e-5)
    assert means.reference.tolist() == pytest.approx([0.25] * 4, abs=1e-5)
    assert means.narrowing().item() == pytest.approx(1 - entropy / math.log(4), abs=1e-5)


class Narrow(TENT):
    """Gives every fourth sample its favourite class."""

    name, title = "narrow", "Narrow"

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        logits = step.logits.clone()
        logits[::4] = torch.eye(logits.shape[1])[logits.softmax(1).mean(0).argmax()] * 100
        return Step(logits, step.info, step.samples)


def test_an_adapter_that_narrows_does_not_answer():
    """Each of its answers is within the reference's doubt, so there is no alarm; but they go one way."""
    guard = Guard(Narrow(make_network("image_bn"), lr=0.0), every=2)
    guard.state = replace(guard.state, lost=True)  # an untrained network looks lost, which is told once
    for _ in range(40):
        step = guard.step(X)
    assert guard.state.evidence == 0
    assert guard.events == []
    assert guard.verdict == "watched"
    assert torch.equal(step.logits, guard.adapter.reference(X))


@pytest.mark.parametrize(("samples", "part"), [(1, 1 / 64), (16, 1 / 4), (64, 1), (100, 1)])
def test_small_batches_are_learned_from_at_a_part_of_the_rate(samples, part):
    guard = Guard(TENT(make_network("image_bn"), lr=0.1))
    guard(make_batch("image_bn", samples, 0))
    assert guard.adapter.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * part)


@pytest.mark.parametrize(("kind", "part"), [("image_gn", (1 + 4 - 4 / 64) ** -2), ("image_bn", 1.0)])
def test_batches_of_one_class_are_learned_from_at_a_part_of_the_rate_without_batch_norm(kind, part):
    network = make_network(kind)
    head = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([50.0, 0.0, 0.0, 0.0, 0.0]))
    guard = Guard(TENT(network, lr=0.1))
    for seed in range(2):  # the first says what the second is likely to hold
        guard(make_batch(kind, 64, seed))
    assert guard.adapter.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * part)


def test_a_method_that_sees_to_small_batches_itself_is_not_slowed_twice():
    guard = Guard(Sift(make_network("image_bn"), lr=0.1, views=0))
    guard(make_batch("image_bn", 4, 0))
    assert guard.adapter.optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_a_healthy_adapter_is_left_alone(monkeypatch):
    monkeypatch.setattr(health.Standing, "heard", lambda self: torch.zeros(()))
    plain, adapter = (TENT(make_network("image_bn"), lr=1e-4) for _ in range(2))
    guard = Guard(adapter)
    for seed in range(12):
        x = make_batch("image_bn", 64, seed)
        step = guard.step(x)
        own = plain(x)
        trusted = seed >= guard_state.TRIAL // 64 - 1
        assert torch.equal(step.logits, own) == trusted
        assert torch.allclose(step.logits, own, atol=1e-6) == (trusted or seed == 0)  # at first both are the source's
        assert (step.info["guard"], step.info["trusted"]) == (0, trusted)
    assert guard.events == []
    assert guard.verdict == "healthy"


def test_the_adapter_answers_only_after_its_trial():
    """It answers nonsense from the start, and is found out while it is on trial."""
    adapter = Broken(sure_network(), lr=1e-3)
    adapter.since = 0
    guard = Guard(adapter, every=5)
    while not guard.events:
        assert torch.equal(guard(X[:1]), adapter.reference(X[:1]))
        assert torch.equal(guard.predict(X), adapter.reference(X))
    assert guard.state.trial == guards.RETRIAL
    assert "learns at 0.1 of its rate" in guard.events[0].words, "there is no healthy state to go back to"


@pytest.mark.parametrize(("shifted", "statistics"), [(False, "auto"), (True, "auto"), (False, "batch")])
def test_without_a_shift_the_source_s_weights_answer(shifted, statistics, monkeypatch):
    """On batches whose statistics are the source's own there is nothing to gain; they differ little from them."""
    monkeypatch.setattr(health.Standing, "heard", lambda self: torch.zeros(()))
    network = make_network("image_bn").train()
    with torch.no_grad():
        for seed in range(200):
            network(make_batch("image_bn", 64, seed))
    adapter = TENT(network.eval(), statistics=statistics, lr=1e-5)
    guard = trusting(Guard(adapter))
    for seed in range(12):
        x = make_batch("image_bn", 64, seed) * (0.2 if shifted else 1.0)
        step = guard.step(x)
    trusted = shifted or statistics == "batch"
    assert step.info["trusted"] == trusted
    assert torch.equal(guard.predict(x), (adapter.predict if trusted else adapter.reference)(x))
    assert guard.verdict == "healthy"


def test_one_comparison_per_so_many_batches():
    guard = trusting(Guard(TENT(make_network("image_bn"), statistics="batch", lr=0.0), every=4))
    compared = ["disagreement" in guard.step(X).info for _ in range(22)]
    assert compared == [True] * 10 + [number % 4 == 0 for number in range(10, 22)]


def test_the_ladder(caplog, monkeypatch):
    """Each alarm goes one rung further: an older state, the source, a smaller rate, no learning."""
    monkeypatch.setattr(health, "NARROW", 1.0)
    monkeypatch.setattr(guards, "APART", 5)
    monkeypatch.setattr(guards, "RETRIAL", 32)
    told = []
    guard = trusting(Guard(Broken(sure_network(), lr=1e-3), every=1, on_event=told.append))
    verdicts, rates = [], []
    for _ in range(60):
        step = guard.step(X)
        verdicts.append(guards.VERDICTS[int(step.info["guard"])])
        rates.append(guard.adapter.optimizer.param_groups[0]["lr"])
        if verdicts[-1] != "healthy":
            assert torch.equal(step.logits.argmax(1), guard.adapter.reference(X).argmax(1)), "it answers as the source"
            assert step.info["confidence"] == step.samples["confidence"].mean()
    assert verdicts[:20] == ["healthy"] * 20
    assert [event.kind for event in told] == ["roll-back", "roll-back", "roll-back", "frozen"]
    assert told == guard.events
    assert 20 < told[0].batch < 26, "the first alarm comes soon"
    assert "went back to the last healthy state" in told[0].words
    assert (rates[0], min(rates)) == pytest.approx((1e-3 / 4, 1e-4 / 4)), "16 samples are a quarter of a full batch"
    assert verdicts[-1] == "frozen"
    assert guard.adapter.batches == told[-1].batch + 1, "what is frozen learns no more"
    assert "guard of broken, batch" in caplog.text
    guard.reset()
    assert guard.verdict == "healthy"
    assert guard.snapshots == guard.events == []


def test_a_roll_back_returns_to_the_snapshot(monkeypatch):
    monkeypatch.setattr(health, "NARROW", 1.0)
    monkeypatch.setattr(guards, "APART", 5)
    guard = trusting(Guard(Broken(sure_network(), lr=1e-2), every=1))
    kept = {}
    while not guard.events:
        guard.step(X)
        kept[guard.adapter.batches - 1] = guard.adapter.learned()
    (snapshot,) = guard.snapshots[-1:]
    assert same(flat_state(kept[snapshot.batch]), flat_state(guard.adapter.learned()))
    norms = sum(value.numel() for value in snapshot.learned.values())
    weights = sum(parameter.numel() for parameter in guard.adapter.model.parameters())
    assert norms < 0.2 * weights, "only what has changed is kept"


def test_a_saved_guard_goes_on(monkeypatch):
    monkeypatch.setattr(guards, "APART", 5)

    def made() -> Guard:
        return trusting(Guard(Broken(sure_network(), lr=1e-3), every=2))

    stream = [make_batch("image_bn", 16, seed) for seed in range(45)]
    whole = made()
    expected = [whole(x) for x in stream]
    first, second = made(), made()
    for x in stream[:24]:
        first(x)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert same(expected[24:], [second(x) for x in stream[24:]])
    assert second.state == whole.state


def test_a_damaged_state_changes_nothing(monkeypatch):
    monkeypatch.setattr(guards, "APART", 3)
    guard, other = (trusting(Guard(TENT(make_network("image_bn"), lr=1e-4))) for _ in range(2))
    for _ in range(8):
        guard(X)
    before = flat_state(other.state_dict())
    for damage in (
        lambda saved: saved["_extra_state"]["state"].update(evidence="much"),
        lambda saved: saved["_extra_state"]["state"].pop("rung"),
        lambda saved: saved["_extra_state"]["means"].pop("own"),
        lambda saved: saved["_extra_state"]["means"].update(own=torch.full((5,), math.nan)),
        lambda saved: saved["_extra_state"].pop("means"),
        lambda saved: saved["_extra_state"].update(snapshots=5),
        lambda saved: saved["_extra_state"]["snapshots"][0]["learned"].update({"model.bn1.weight": torch.zeros(1)}),
        lambda saved: saved["_extra_state"]["snapshots"][0]["learned"].update(strange=torch.zeros(1)),
        lambda saved: saved["adapter._extra_state"].update(batches=-1),
        lambda saved: saved.pop("_extra_state"),
    ):
        saved = copy.deepcopy(guard.state_dict())
        damage(saved)
        with pytest.raises(StateError):
            other.load_state_dict(saved)
        assert same(before, flat_state(other.state_dict()))
    other.load_state_dict(guard.state_dict())


def test_a_source_model_that_is_lost_is_told_once(caplog):
    network = make_network("image_bn")
    with torch.no_grad():
        network.head.weight.mul_(1e-3)
    guard = Guard(Source(network), every=1)
    with caplog.at_level(logging.WARNING, "ctta"):
        for _ in range(30):
            guard(X)
    assert [event.kind for event in guard.events] == ["lost"]
    assert "adapted or not" in caplog.text


def test_what_cannot_be_guarded():
    with pytest.raises(ConfigError, match=r"around an adapter\. Got ImageBN"):
        Guard(make_network("image_bn"))
    with pytest.raises(ConfigError, match="every must be at least 1"):
        Guard(TENT(make_network("image_bn")), every=0)


def test_a_copy_of_a_guard_is_a_guard_of_its_own():
    guard = Guard(TENT(make_network("image_bn")))
    other = copy.deepcopy(guard)
    assert type(other) is Guard
    assert other.adapter is not guard.adapter
    assert torch.equal(guard(X), other(X))


@pytest.mark.parametrize("statistics", ["running", "robust"])
def test_the_reference_follows_the_stream_as_the_adapter_does(statistics):
    """Nothing is learned, so both are the same network; all batches are shifted in the same way."""
    adapter = TENT(make_network("image_bn"), statistics=statistics, lr=0.0)
    guard = trusting(Guard(adapter))
    follow(guard)
    assert_alike(adapter)
    guard.snapshots = [Snapshot(23, adapter.learned())]
    follow(guard, 8)
    guard.roll_back()
    assert_alike(adapter)  # a roll-back takes both back
    follow(guard, 8)
    guard.state = replace(guard.state, frozen=True)
    before = adapter.reference(X)
    for seed in range(24):
        guard.step(make_batch("image_bn", 16, seed))
    assert not torch.allclose(adapter.reference(X), before, atol=1e-2), "it answers alone, and follows the stream"


def follow(guard: Guard, batches: int = 24) -> None:
    for seed in range(batches):
        step = guard.step(make_batch("image_bn", 16, seed) * 0.3)
        assert step.info["disagreement"] == 0


def assert_alike(adapter) -> None:
    """The reference is the adapter's prediction, and not the unadapted model's."""
    assert torch.allclose(adapter.reference(X), adapter.predict(X), atol=1e-5)
    assert not torch.allclose(adapter.reference(X), adapter.source(X), atol=1e-2)


def averages(network):
    return torch.cat([value.flatten() for name, value in network.named_buffers() if name.endswith(STREAM_BUFFERS)])


def test_the_reference_follows_a_batch_once_if_a_method_asks_it_too():
    """CoTTA asks the source's weights how sure they are."""
    cotta = CoTTA(make_network("image_bn"), statistics="running", lr=0.0, restore=0.0, augmentation_threshold=0.01)
    tent = TENT(make_network("image_bn"), statistics="running", lr=0.0)
    for adapter in (cotta, tent):
        follow(Guard(adapter, every=1), 6)
    assert torch.allclose(averages(cotta.source_model), averages(tent.source_model))


def test_the_reference_of_a_memory_has_the_statistics_of_the_memory():
    guard = Guard(RoTTA(make_network("image_bn"), preset="cifar10"))
    for seed in range(80):
        guard.step(make_batch("image_bn", 1, seed))
    adapter = guard.adapter
    assert torch.equal(averages(adapter.source_model), averages(adapter.teacher))
    assert not torch.allclose(
        averages(adapter.source_model), averages(RoTTA(make_network("image_bn")).teacher), atol=1e-3
    )


def remembered(guard: Guard):
    return flat_state(guard.state_dict())


@pytest.mark.parametrize("place", ["_compare", "_roll_back"])
def test_a_batch_that_is_interrupted_in_the_guard_leaves_nothing_behind(place, monkeypatch):
    monkeypatch.setattr(health, "NARROW", 1.0)
    guard, after = (trusting(Guard(Broken(sure_network(), lr=1e-3), every=1)) for _ in range(2))
    for each in (guard, after):
        while each.state.evidence < health.LIMIT - 16:
            each.step(X)
    before, original, events = copy.deepcopy(remembered(guard)), getattr(guard, place), guard.events

    def interrupted(*arguments):
        original(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(guard, place, interrupted)
        for _ in range(30):
            try:
                guard.step(X)
            except KeyboardInterrupt:
                break
            after.step(X)
            before, events = copy.deepcopy(remembered(guard)), guard.events
        else:
            pytest.fail("it was never interrupted")
    assert same(before, remembered(guard))
    assert guard.events == events
    assert torch.equal(guard(X), after(X)), "the batch can be given again"


def test_who_is_told_cannot_undo_a_batch(caplog, monkeypatch):
    monkeypatch.setattr(health, "NARROW", 1.0)

    def fails(event):
        raise RuntimeError("no connection")

    told = []
    guard, other = (trusting(Guard(Broken(sure_network(), lr=1e-3), on_event=tell)) for tell in (fails, told.append))
    for _ in range(40):
        assert torch.equal(guard(X), other(X))
    assert guard.events == other.events == told != []
    assert "on_event failed" in caplog.text
    other.roll_back()
    other.roll_back()
    assert len(told) == len(other.events), "also of what it has told before in the same words"
    assert "no connection" in caplog.text


def test_a_roll_back_leaves_the_drift_detector_alone():
    guard = Guard(TENT(make_network("image_bn"), boundaries="detected", lr=1e-3))
    for seed in range(8):
        guard.step(make_batch("image_bn", 16, seed))
        if seed == 3:
            guard.snapshots, early = (
                [Snapshot(3, guard.adapter.learned())],
                flat_state(guard.adapter.drift.state_dict()),
            )
    before = copy.deepcopy(flat_state(guard.adapter.drift.state_dict()))
    guard.roll_back()
    assert same(before, flat_state(guard.adapter.drift.state_dict()))
    assert not same(before, early)


def test_the_default_dtype_has_no_part_in_it():
    network = make_network("image_bn")
    torch.set_default_dtype(torch.float64)
    try:
        guard = Guard(TENT(network))
        assert guard(X).dtype == torch.float32
        assert guard(X).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_versions_of_modules_reach_the_adapter(monkeypatch):
    guard, seen = Guard(TENT(make_network("image_bn"))), []
    guard(X)
    state = guard.state_dict()
    monkeypatch.setattr(type(guard.adapter), "load_state_dict", lambda self, found, **_: seen.append(found._metadata))
    Guard(TENT(make_network("image_bn"))).load_state_dict(state)
    assert seen == [dict(guard.adapter.state_dict()._metadata)]


@pytest.mark.parametrize("method", [TENT, Sift])
def test_how_often_a_guarded_batch_waits_for_the_device(method):
    """To know whether it is blank, valid and learned well; if compared, whether all is finite, and what it says."""
    with pretended() as device:
        guard = trusting(Guard(method(make_network("image_bn").to(device), statistics="auto", seed=0)))
        guard.step(make_batch("image_bn", 32, 0).to(device))  # by which the settings are chosen
        for number in range(1, 14):
            x = make_batch("image_bn", 32, number).to(device)
            heard = guard.state.heard > 0
            waits.clear()
            guard.step(x)
            compared = number < guards.FIRST or number % guard.every == 0
            assert len(waits) == (5 if compared else 3 + heard), f"batch {number} waited for the device: {waits}"
    assert guard.verdict == "healthy"
