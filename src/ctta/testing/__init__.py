"""The contract that every method keeps, for tests of a method of your own.

import pytest
from ctta.testing import CHECKS, NETWORKS, Case

@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("check", CHECKS)
def test_contract(check, network):
    check(Case(MyMethod, network))
"""

from __future__ import annotations

from ctta.testing.contract import CHECKS, Case
from ctta.testing.networks import NETWORKS

__all__ = ["CHECKS", "NETWORKS", "Case"]
