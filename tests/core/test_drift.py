"""The drift detector: numbers worked by hand, delay and false alarms, and its place inside an adapter."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch

import ctta
from benchmarks.drift import Score, score, true_starts
from ctta.core import drift
from ctta.core.drift import Detector
from ctta.data.stream import Domain, Stream
from ctta.experiments.experiment import make as make_experiment
from ctta.records.run_folder import RunFolder
from ctta.testing.contract import CHECKS, Case, flat_state, predictions, same
from ctta.testing.device import pretended, waits
from ctta.testing.networks import make_network
from run_folders import execute

PARTS = (("fog", 25), ("snow", 20), ("fog", 10), ("fog", 10))  # domains and their sizes


def stream(means, samples=64, seed=0):
    """Signals of a batch a mean: standard normal around it, all five alike but independent."""
    generator = torch.Generator().manual_seed(seed)
    return [mean + torch.randn(samples, 5, generator=generator) for mean in means]


def alarms(batches, detector=None):
    detector = detector or Detector()
    found = []
    for number, values in enumerate(batches):
        look = detector.judge(values)
        detector.accept(look)
        found += [number] if look.boundary else []
    return found


# What is looked at


def test_signals_of_a_picture():
    # Two channels, 2 x 2: rows (0, .5), (0, .5) in the one, (.5, 1), (.5, 1) in the other.
    x = torch.tensor([[[[0.0, 0.5], [0.0, 0.5]], [[0.5, 1.0], [0.5, 1.0]]]])
    brightness, contrast, colour, across, down = drift.signals(x)[0].tolist()
    assert brightness == pytest.approx(0.5)
    assert contrast == pytest.approx(math.sqrt((0.25 + 0 + 0 + 0.25) / 4))  # values 0, .5, .5, 1, twice each
    assert colour == pytest.approx(0.25)  # each pixel's channels lie .25 on either side of their mean
    assert across == pytest.approx(0.5)
    assert down == 0


@pytest.mark.parametrize("shape", [(4, 3, 8, 8), (4, 1, 8, 1), (4, 64, 3), (4, 7), (1, 1), (2, 3, 4, 8, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_signals_of_any_input(shape, dtype):
    values = drift.signals(torch.rand(shape).to(dtype))
    assert values.shape == (shape[0], 5)
    assert values.dtype == torch.float32
    assert values.isfinite().all()


# The equations


def test_groups_merge_as_if_they_were_one():
    one, other = torch.randn(7, 5), torch.randn(4, 5) * 3 + 1
    both = torch.cat([one, other])
    count, mean, deviations = drift.merge(drift.summary(one), drift.summary(other))
    assert (count == 11).all()
    torch.testing.assert_close(mean, both.mean(0))
    torch.testing.assert_close(deviations / 10, both.var(0))
    assert torch.equal(drift.merge(torch.zeros(3, 5), drift.summary(one)), drift.summary(one))


def test_distance_worked_by_hand():
    # Four samples with mean 0 and variance 4, nine with mean 3 and variance 18: 3^2 / (4/4 + 18/9) = 3 for each signal.
    reference = torch.tensor([[4.0], [0.0], [12.0]]).expand(3, 5)
    batch = torch.tensor([[9.0], [3.0], [144.0]]).expand(3, 5)
    assert drift.distance(reference, batch).item() == pytest.approx(math.sqrt(3))
    # With one signal of five apart, the mean over signals is a fifth of it.
    batch = torch.stack([batch[0], torch.tensor([3.0, 0, 0, 0, 0]), batch[2]])
    assert drift.distance(reference, batch).item() == pytest.approx(math.sqrt(3 / 5))


def test_what_is_usual_moves_to_the_median():
    up = drift.median_step(torch.tensor(2.0), torch.tensor(9.0)).item()
    down = drift.median_step(torch.tensor(2.0), torch.tensor(1.5)).item()
    assert up == pytest.approx(2 * math.exp(0.15))
    assert down == pytest.approx(2 * math.exp(-0.15))
    assert drift.median_step(torch.tensor(1.0), torch.tensor(0.5)) == 1
    generator, usual = torch.Generator().manual_seed(0), torch.tensor(1.0)
    seen, path = (torch.rand(3000, generator=generator) * 8 + 2), []
    for value in seen:
        usual = drift.median_step(usual, value)
        path.append(usual.item())
    assert (seen > torch.tensor(path).roll(1)).float()[1000:].mean().item() == pytest.approx(0.5, abs=0.02)


def test_forgetting_keeps_mean_and_variance():
    kept = drift.forget(drift.summary(torch.randn(100, 5)), 10)
    assert kept[0].tolist() == pytest.approx([10] * 5)
    torch.testing.assert_close(drift.forget(kept, 10), kept)
    values = torch.arange(20.0).unsqueeze(1).expand(20, 5)
    less = drift.forget(drift.summary(values), 10)
    assert less[:, 0].tolist() == pytest.approx([10, 9.5, 332.5])  # the variance of 0 ... 19 is (20^2 - 1) / 12 = 33.25


# Delay and false alarms


def test_a_jump_is_seen_at_once_and_once():
    assert alarms(stream([0] * 10 + [2] * 10 + [0] * 10)) == [10, 20]


def test_chance_makes_no_alarm():
    assert alarms(stream([0] * 400)) == []


def test_a_small_jump_is_left_alone():
    # Half a standard error of a batch of 64.
    assert alarms(stream([0] * 10 + [0.5 / 8] * 10)) == []


def test_what_is_usual_makes_few_alarms():
    """Batches that differ by ten standard errors all the time, nearly all of them over the limit; then by a hundred."""
    generator = torch.Generator().manual_seed(1)
    wander = (torch.randn(120, generator=generator) * 10 / 8).tolist()
    found = alarms(stream([*wander, *(mean + 100 / 8 for mean in wander[:20])]))
    assert 120 in found
    assert len([number for number in found if 20 <= number < 120]) <= 12


@pytest.mark.parametrize("slope", [0.002, 0.02, 0.1])
def test_an_even_slope_has_no_boundary(slope):
    found = alarms(stream([slope * number for number in range(60)] + [60 * slope + 10] * 5))
    assert found == [60]


def test_few_samples_wait_for_more():
    assert alarms(stream([0] * 40 + [3] * 40, samples=8)) == [43]  # four batches of 8 are 32
    assert alarms(stream([0] * 400, samples=1)) == []


def test_a_shorter_last_batch_is_no_alarm():
    batches = stream([0] * 30)
    assert alarms([values[:5] if number % 10 == 9 else values for number, values in enumerate(batches)]) == []


def test_grey_pictures_have_no_colour_to_differ_in():
    generator, detector = torch.Generator().manual_seed(0), Detector()
    grey = [torch.rand(50, 1, 8, 8, generator=generator).expand(50, 3, 8, 8) for _ in range(20)]
    assert not any(detector(x) for x in grey)
    assert detector(grey[0] * torch.tensor([1.0, 0.9, 0.9]).view(3, 1, 1))


# Inside an adapter


def batches(count=8, samples=40):
    generator = torch.Generator().manual_seed(0)
    dark = [torch.rand(samples, 3, 16, 16, generator=generator) * 0.5 for _ in range(count)]
    return dark[: count // 2] + [x + 0.4 for x in dark[count // 2 :]]


def make(**fields):
    return ctta.DSS(
        make_network("image_bn"), preset="cifar10", views=2, augmentation_threshold=0.5, boundaries="detected", **fields
    )


def test_the_threshold_steps_back_where_a_domain_is_detected():
    steps = [adapter.step(x) for adapter in [make()] for x in batches()]
    assert [int(step.info["boundary"]) for step in steps] == [0, 0, 0, 0, 1, 0, 0, 0]
    told = ctta.DSS(make_network("image_bn"), preset="cifar10", views=2, augmentation_threshold=0.5)
    for number, (x, step) in enumerate(zip(batches(), steps, strict=True)):
        if number == 4:
            told.begin_domain()
        assert torch.equal(told.step(x).info["threshold"], step.info["threshold"])
    assert "boundary" not in told.step(batches()[0]).info


def test_no_pass_and_no_read_is_added():
    with pretended() as device:
        settings = {"preset": "cifar10", "views": 2, "augmentation_threshold": 0.5}
        made = [
            ctta.DSS(make_network("image_bn").to(device), **settings, **more)
            for more in ({}, {"boundaries": "detected"})
        ]
        for x in batches():
            counts, there = [], x.to(device)
            for one in made:
                waits.clear()
                forwards = one.step(there).info["forwards"]
                counts.append((len(waits), float(forwards)))
            assert counts[0] == counts[1]
            assert counts[0][0] > 0


class Detecting(ctta.DSS):
    """DSS that looks for boundaries itself, for the contract."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, boundaries="detected", **kwargs)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(Case(Detecting, "image_bn"))


def test_reset_and_save_between_few_samples():
    adapter, small = make(), [part for x in batches() for part in x.chunk(2)]
    fresh = flat_state(adapter.state_dict())
    first = predictions(adapter, small[:3])  # 20 + 20 are judged, 20 wait
    assert adapter.drift.gathered[0, 0] == 20
    buffer = io.BytesIO()
    torch.save(adapter.state_dict(), buffer)
    buffer.seek(0)
    other = make(seed=9)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    rest = [adapter.step(x) for x in small[3:]]
    again = [other.step(x) for x in small[3:]]
    assert same([step.logits for step in rest], [step.logits for step in again])
    assert sum(int(step.info["boundary"]) for step in rest) == 1
    adapter.reset()
    assert same(fresh, flat_state(adapter.state_dict()))
    assert same(first, predictions(adapter, small[:3]))


def test_a_bad_batch_is_not_looked_at():
    adapter = make()
    adapter(batches()[0])
    before = flat_state(adapter.state_dict())
    with pytest.raises(ctta.InputError):
        adapter(batches()[0] * math.nan)
    assert same(before, flat_state(adapter.state_dict()))


def test_wrong_settings_are_explained():
    with pytest.raises(ctta.ConfigError, match="must be 'known' or 'detected'"):
        ctta.TENT(make_network("image_bn"), boundaries="hidden")
    told, detects = ctta.TENT(make_network("image_bn")), ctta.TENT(make_network("image_bn"), boundaries="detected")
    with pytest.raises(ctta.StateError, match="boundaries='known'"):
        detects.load_state_dict(told.state_dict())
    with pytest.raises(ctta.StateError, match="boundaries='detected'"):
        told.load_state_dict(detects.state_dict())


# How it is measured


def test_delay_misses_and_false_alarms_are_counted():
    # Domains start with batches 4, 8 and 12. Alarms: one at once, one two batches late, none; and three for nothing.
    found = [number in (2, 4, 5, 10, 15) for number in range(16)]
    assert score([4, 8, 12], found) == Score(batches=16, boundaries=3, delays=(0, 2), false=3)
    assert score([], [False, True]) == Score(batches=2, false=1)


def test_a_boundary_is_where_something_changes():
    domains = [Domain(name, 5, np.zeros(size, np.int64), np.zeros((size, 5)).__getitem__) for name, size in PARTS]
    assert true_starts(Stream(tuple(domains), batch=10)) == [3, 5]


def test_the_detector_in_a_run(tmp_path):
    """An experiment with detected boundaries: records say where, and the first batch of the stream is none."""
    data = {"domains": ["gaussian_noise", "brightness"], "images": 80, "batch": 40, "boundaries": "detected"}
    experiment = make_experiment({"data": data, "methods": ["source", "bn_adapt"]})
    folder = RunFolder(tmp_path / "run")
    list(execute(experiment, folder))
    for cell in folder.run().cells:
        assert [record.info["boundary"] for record in folder.records(cell.cell)] == [0, 0, 1, 0]
    assert folder.run().stream["boundaries"] == "detected"
