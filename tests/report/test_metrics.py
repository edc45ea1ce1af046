"""Every equation with numbers worked by hand; intervals also against scipy.stats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from ctta.records.run_folder import BINS, Done, Record
from ctta.report import metrics
from ctta.report.metrics import Difference, Split, Value


def record(step: int, wrong: int, n: int = 10, *, batches: int = 3, **options: object) -> Record:
    """A batch of a stream whose segments have `batches` batches."""
    position = step // batches
    info = {"forwards": 1.0 + step}
    made = {"seconds": 0.5, "info": info, "position": position} | options
    return Record("x", 0, step, f"domain {position}", 5, n, wrong, **made)  # type: ignore[arg-type]


def stream(wrong: Sequence[int], *, n: int = 10, batches: int = 3) -> list[Record]:
    return [record(step, count, n, batches=batches) for step, count in enumerate(wrong)]


def test_error_counts_samples_not_batches() -> None:
    records = [record(0, 1, 10), record(1, 1, 10), record(2, 5, 5), record(3, 3, 10)]
    assert metrics.segment_counts(records, None, None) == {0: (7, 25)}, "the second segment has not ended"
    counts = metrics.segment_counts(records, Done(4, 35, 10, 1.0, 1.0), None)
    assert counts == {0: (7, 25), 1: (3, 10)}
    assert metrics.error(counts, (0,)) == pytest.approx(28.0)
    assert metrics.error(counts, (0, 1)) == pytest.approx(100 * 10 / 35)
    assert metrics.error(counts, (0, 2)) is None
    assert metrics.error(counts, ()) is None


def test_samples_without_labels_do_not_count() -> None:
    # A segment with 3 wrong of 4 with labels, none, and 1 of 10; one without any.
    records = [record(0, 3, labelled=4), record(1, -1), record(2, 1), record(3, -1)]
    assert metrics.segment_counts(records, Done(4, 40, 4, 1.0, 1.0), None) == {0: (4, 14)}
    assert metrics.total_error(records) == pytest.approx(100 * 4 / 14)
    assert metrics.mean_recovery([record(0, 9), record(1, -1), record(2, 1)]) is None, "two batches are too few"
    # Five wrong more in 14; places 0 and 2 have a part, 4 of 4 and 1 of 10.
    baseline = [record(0, 0, labelled=4), record(1, -1), record(2, 0)]
    own = [record(0, 4, labelled=4), record(1, -1), record(2, 1)]
    squares = (4 - 4 * 5 / 14) ** 2 + (1 - 10 * 5 / 14) ** 2
    half = 12.7062 * math.sqrt(2 * squares) / 14
    expected = (100 * (5 / 14 - half), 100 * (5 / 14 + half))
    assert metrics.interval_over_batches([(own, baseline)]) == pytest.approx(expected, abs=1e-2)
    selecting = record(0, 3, labelled=4, selected=2, selected_wrong=1)
    assert metrics.selection([selecting]) == Split(20.0, None, None)


def test_running_error() -> None:
    errors, sizes = (10.0, 20.0, None, 40.0), (10.0, 10.0, 10.0, 5.0)
    assert metrics.running_error(errors, sizes, 2) == (10.0, 15.0, 20.0, 40.0)
    whole = (10.0, 15.0, 15.0, pytest.approx((100 + 200 + 200) / 25))
    assert metrics.running_error(errors, sizes, 4) == whole
    assert metrics.running_error(errors, sizes) == whole


def test_recovery_time() -> None:
    # Six batches, so a third is two. Thirds from each batch on: 70, 50, 30, 20, 20 %; the level is 20.
    # One standard error: sqrt(2 * 20 * 80 / 2000) = 1.26 points with batches of 1000, 12.6 with batches of 10.
    assert metrics.recovery_time([800, 600, 400, 200, 200, 200], [1000] * 6) == 3
    assert metrics.recovery_time([8, 6, 4, 2, 2, 2], [10] * 6) == 2, "30 is no more than 20 + 1 + 12.6"
    # Level 50, one standard error sqrt(2 * 50 * 50 / 5000) = 1: 52 is within reach and 52.04 is not.
    assert metrics.recovery_time([2600, 2500, 2500], [5000] * 3) == 0
    assert metrics.recovery_time([2602, 2500, 2500], [5000] * 3) == 1
    assert metrics.recovery_time([100, 200, 900], [1000] * 3) == 0, "an error that climbs has nothing to recover from"
    assert metrics.recovery_time([900, 100], [1000] * 2) is None


def test_recovery_of_a_cell_is_the_mean_over_its_segments() -> None:
    steep = [800, 600, 400, 200, 200, 200]  # 3, as above
    assert metrics.mean_recovery(stream([*steep, *[500] * 6], n=1000, batches=6)) == 1.5
    assert metrics.mean_recovery(stream([1, 2], batches=2)) is None


def bins(*filled: tuple[int, float, int]) -> tuple[tuple[int, float, int], ...]:
    return (*filled, *((0, 0.0, 0),) * (BINS - len(filled)))


def test_calibration() -> None:
    # Gaps of 2 and 1 samples in 20.
    assert metrics.calibration_error(((10, 8.0, 6), (10, 5.0, 6))) == pytest.approx(15.0)
    # Two batches whose gaps cancel within a bin: together 13 against 12 in 20.
    first, second = record(0, 4, bins=bins((10, 8.0, 6))), record(1, 4, bins=bins((10, 5.0, 6)))
    unlabelled = record(2, -1, bins=bins((10, 9.0, 0)))
    broken = record(3, 5, bins=bins((10, math.nan, 5)))
    together = metrics.calibration_bins([first, second, unlabelled, broken])
    assert together[0] == (20, 13.0, 12)
    assert metrics.calibration_error(together) == pytest.approx(5.0)
    assert metrics.calibration_bins([unlabelled]) == ()
    assert metrics.calibration_error(()) is None


def test_selection() -> None:
    records = [record(2, 4, selected=6, selected_wrong=1), record(3, 2, selected=6, selected_wrong=2), record(4, 5)]
    # 12 of 20 are selected, 9 of these are right; of the other 8, 5 are.
    assert metrics.selection(records) == Split(60.0, pytest.approx(75.0), pytest.approx(62.5))
    assert metrics.selection(records[1:]) == Split(60.0, pytest.approx(100 * 4 / 6), 100.0)
    assert metrics.selection(records[2:]) is None
    unlabelled = record(0, -1, selected=6, selected_wrong=-1)
    assert metrics.selection([unlabelled]) == metrics.selection([*records[:1], unlabelled]) == Split(60.0, None, None)
    assert metrics.selection([record(0, 4, selected=10, selected_wrong=4)]) == Split(100.0, 60.0, None)


def test_forgetting() -> None:
    records = [record(0, 1), record(2, 1, clean=(50, 5, 4)), record(5, 1, clean=(50, 10, 4))]
    assert metrics.clean_errors(records) == {0: 10.0, 1: 20.0}
    assert metrics.forgetting(records) == pytest.approx(12.0)  # 10 wrong instead of 4, of 50
    assert metrics.forgetting(records[:1]) is None


def test_cost() -> None:
    seconds = [0.1, 0.2, 0.3, 0.4, 5.0]
    found = metrics.cost([record(step, 1, seconds=s) for step, s in enumerate(seconds)], [60.0, 80.0])
    assert (found.seconds, found.p50, found.memory) == (pytest.approx(1.2), 0.3, 70.0)
    assert found.p95 == pytest.approx(0.4 + 0.8 * 4.6), "four fifths of the way from the fourth to the fifth"
    assert found.images_per_second == pytest.approx(50 / 6)
    assert (found.forwards, found.backwards) == (3.0, None)
    assert metrics.cost([], []) == metrics.Cost(*[None] * 8)


def test_seeds() -> None:
    assert metrics.over_seeds([10.0, 20.0]) == Value(15.0, pytest.approx(50**0.5), 2)
    assert metrics.over_seeds([10.0]) == Value(10.0, None, 1)
    assert metrics.over_seeds([]) is None


def test_interval_over_seeds() -> None:
    # -1, -2, -3: mean -2, standard deviation 1, two degrees of freedom: 4.303 / sqrt(3) to each side.
    found = metrics.interval_over_seeds([-1.0, -2.0, -3.0])
    assert found == pytest.approx((-2 - 4.3027 / 3**0.5, -2 + 4.3027 / 3**0.5), abs=1e-4)
    assert found == pytest.approx(tuple(stats.ttest_1samp([-1.0, -2.0, -3.0], 0).confidence_interval(0.95)))


def test_interval_over_batches() -> None:
    # Two segments of three batches of 10. Wrong predictions above the baseline's, by place: 3 + 1, 2 + 2, 0 + 1 of 20.
    baseline, own = stream([1, 1, 1, 2, 2, 2]), stream([4, 3, 1, 3, 4, 3])
    found = metrics.interval_over_batches([(own, baseline)])
    # 20, 20 and 5 points: standard deviation sqrt(75), over sqrt(3) is 5, times 4.303.
    assert found == pytest.approx((15 - 5 * 4.3027, 15 + 5 * 4.3027), abs=1e-3)
    assert found == pytest.approx(tuple(stats.ttest_1samp([20.0, 20.0, 5.0], 0).confidence_interval(0.95)))
    # A second seed has 3 + 0, 2 + 2, 1 + 1: together 7, 8, 3 of 40.
    both = metrics.interval_over_batches([(own, baseline), (stream([4, 3, 2, 2, 4, 3]), baseline)])
    assert both == pytest.approx(tuple(stats.ttest_1samp([17.5, 20.0, 7.5], 0).confidence_interval(0.95)))
    assert metrics.interval_over_batches([(own[:1], baseline[:1])]) is None


def test_a_smaller_last_batch_counts_by_its_samples() -> None:
    """The interval of a ratio, against the same by matrices; the difference is that of the errors."""
    own = [record(0, 4, 10), record(1, 3, 10), record(2, 2, 4), record(3, 5, 10), record(4, 1, 10), record(5, 0, 4)]
    baseline = [record(step, 1, one.n) for step, one in enumerate(own)]
    found = metrics.difference({0: own}, {0: baseline})
    assert found is not None
    assert found.mean == pytest.approx(100 * (15 - 6) / 48)
    more, n = np.array([3 + 4, 2 + 0, 1 - 1]), np.array([20, 20, 8])
    residuals = more - n * more.sum() / n.sum()
    half = 100 * math.sqrt(3 * residuals.var(ddof=1)) / n.sum() * stats.t.ppf(0.975, 2)
    assert found.over_batches == pytest.approx((found.mean - half, found.mean + half))


def test_which_intervals_there_are() -> None:
    baseline = {0: stream([5, 5, 5]), 1: stream([5, 5, 5])}
    moved = metrics.difference({0: stream([4, 5, 5]), 1: stream([3, 5, 5])}, baseline)
    # Seeds -10/3 and -20/3: a standard deviation of 10/3 / sqrt(2), over sqrt(2), times 12.706. Places -15, 0, 0.
    seeds = 5 / 3 * 12.7062
    places = 5 * 4.3027
    assert moved == Difference(
        pytest.approx(-5.0),
        pytest.approx((-5 - seeds, -5 + seeds), abs=1e-3),
        pytest.approx((-5 - places, -5 + places), abs=1e-3),
    )
    unmoved = metrics.difference({0: stream([4, 5, 5]), 1: stream([4, 5, 5])}, baseline)
    single = metrics.difference({1: stream([4, 5, 5]), 2: stream([0, 0, 0])}, baseline)
    assert single is not None
    assert single.over_seeds is None
    assert single.over_batches is not None
    assert single == unmoved, "seeds that change nothing are as good as the common seed alone"
    short = metrics.difference({0: stream([4]), 1: stream([3])}, {0: stream([5]), 1: stream([5])})
    assert short is not None
    assert short.over_seeds is not None
    assert short.over_batches is None, "one batch"
    assert metrics.difference({7: stream([4, 5, 5])}, baseline) is None


def test_the_interval_over_batches_covers_as_often_as_it_says() -> None:
    """Five segments show the same samples to two methods that find others hard, and none is better.

    Batches taken one by one would know five times as much as there is to know, and miss too often.
    """
    random, trials, inside, naive = np.random.default_rng(0), 300, 0, 0
    for _ in range(trials):
        hard = random.beta(0.5, 0.5, (2, 10, 50)).repeat(5, 0).reshape(2, 5, 10, 50)
        wrong = (random.random(hard.shape) < hard).sum(-1).reshape(2, 50)
        own, baseline = (
            [record(step, int(count), 50, batches=10) for step, count in enumerate(counts)] for counts in wrong
        )
        low, high = metrics.interval_over_batches([(own, baseline)]) or (0, 0)
        inside += low <= 0 <= high
        low, high = stats.ttest_1samp(wrong[0] - wrong[1], 0).confidence_interval(0.95)
        naive += low <= 0 <= high
    assert 0.92 <= inside / trials <= 0.98
    assert naive / trials < 0.85


def test_seeds_that_agree_say_nothing_of_the_samples() -> None:
    """Two methods of which none is better, each with three seeds that hardly differ, on ten batches."""
    random, trials, seeds, batches = np.random.default_rng(0), 300, 0, 0
    for _ in range(trials):
        hard = random.random((2, 1, 10, 50)) < 0.5
        wrong = (random.random((2, 3, 10, 50)) < 0.1 + 0.8 * hard).sum(-1)
        own, baseline = (
            {seed: stream(counts, n=50, batches=10) for seed, counts in enumerate(label.tolist())} for label in wrong
        )
        found = metrics.difference(own, baseline)
        assert found is not None
        assert found.over_seeds is not None
        assert found.over_batches is not None
        seeds += found.over_seeds[0] <= 0 <= found.over_seeds[1]
        batches += found.over_batches[0] <= 0 <= found.over_batches[1]
    assert 0.92 <= batches / trials <= 0.98
    assert seeds / trials < 0.85
