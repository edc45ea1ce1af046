"""What numbers were made with."""

from __future__ import annotations

import json

import torch

from ctta.running.environment import environment


def test_the_threads_are_those_of_whoever_computes():
    found = environment()
    assert (found["threads"], environment(7)["threads"]) == (torch.get_num_threads(), 7)
    assert json.loads(json.dumps(found)) == found
    assert all(found.values())
