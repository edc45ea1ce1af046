"""The contract that every method keeps, for a method of your own.

from ctta.testing import check_method

def test_contract():
    check_method(MyMethod)

`ctta check-method my_file.py:MyMethod` does the same on the command line. `CHECKS`, `NETWORKS` and `Case` are the
parts, for a test per check.
"""

from __future__ import annotations

from ctta.testing.checking import check_method
from ctta.testing.contract import CHECKS, Case
from ctta.testing.networks import NETWORKS

__all__ = ["CHECKS", "NETWORKS", "Case", "check_method"]
