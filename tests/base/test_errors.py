"""Errors: they can be caught by the built-in kinds, and they name the nearest right word."""

from __future__ import annotations

import pytest

from ctta.base.errors import ConfigError, CttaError, InputError, ModelError, StateError, nearest


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [(InputError, ValueError), (ModelError, RuntimeError), (ConfigError, ValueError), (StateError, RuntimeError)],
)
def test_every_error_is_a_ctta_error_and_a_built_in_one(kind, builtin):
    assert issubclass(kind, CttaError)
    assert issubclass(kind, builtin)


def test_nearest():
    assert nearest("tnet", {"tent", "dss", "cotta"}) == "Did you mean 'tent'? Accepted: cotta, dss, tent."
    assert nearest("xyz", ["tent", "dss"]) == "Accepted: dss, tent."
