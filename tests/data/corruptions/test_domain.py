"""What all corruptions share: checked settings, one generator per sample, chunks in order."""

from __future__ import annotations

import numpy as np
import pytest

from ctta.base.errors import ConfigError
from ctta.data.corruptions.domain import check_domain, domain_key, in_chunks, sample_generators, sample_indices


def draws(name="fog", severity=5, seed=0, indices=(0, 1)):
    return [generator.random() for generator in sample_generators(domain_key(name, severity, seed), indices)]


def test_draws_are_a_function_of_seed_name_severity_and_index():
    first, second = draws()
    assert first != second
    assert draws(indices=(1, 0, 1)) == [second, first, second]
    others = [*draws(name="snow"), *draws(severity=4), *draws(seed=1), *draws(indices=(2, 3))]
    assert len({first, second, *others}) == 10


def test_indices_count_from_the_first_or_are_given():
    assert list(sample_indices(3, 4)) == [3, 4, 5, 6]
    assert sample_indices(np.array([7, 0, 7]), 3) == [7, 0, 7]
    for wrong in (-1, 1.5, True, np.array([0, 1]), np.array([0.0, 1.0, 2.0]), np.array([0, -1, 2])):
        with pytest.raises(ConfigError, match="`first`"):
            sample_indices(wrong, 3)


def test_settings_that_do_not_exist_are_refused():
    check_domain("fog", ("fog", "snow"), np.int64(5), 0)
    for name, severity, seed, words in (
        ("fgo", 5, 0, "Did you mean 'fog'"),
        ("fog", 6, 0, "one of 1, 2, 3, 4, 5. Got 6"),
        ("fog", 5, -1, "`seed` must be a whole number of at least 0. Got -1"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_domain(name, ("fog", "snow"), severity, seed)


@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_cover_all_samples_in_order(threads, monkeypatch):
    monkeypatch.setattr("ctta.data.corruptions.domain.THREADS", threads)

    def chunks(count):
        drawn = in_chunks(
            lambda chunk, generators: [(i, g.random()) for i, g in zip(range(count)[chunk], generators, strict=True)],
            domain_key("fog", 5, 0),
            range(count),
            3,
        )
        assert [draw for chunk in drawn for _, draw in chunk] == draws(indices=range(count))
        return [[index for index, _ in chunk] for chunk in drawn]

    assert chunks(7) == [[0, 1, 2], [3, 4, 5], [6]]
    assert chunks(2) == [[0, 1]]
    assert chunks(0) == []
