"""Source: the model as it is."""

from __future__ import annotations

import torch

from ctta import Source
from ctta.testing.networks import make_network, make_stream


def test_it_predicts_as_the_model_in_eval_mode():
    network = make_network("image_bn")
    adapter = Source(network)
    network.eval()
    for x in make_stream("image_bn"):
        with torch.no_grad():
            assert torch.equal(adapter(x), network(x))
