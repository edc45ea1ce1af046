"""`ctta.testing` as somebody with a method of their own uses it."""

from __future__ import annotations

import pytest

from ctta import TENT, Adapter, Step, Traits
from ctta.testing import CHECKS, NETWORKS, Case


class LargestLogit(Adapter):
    """Learns all weights to make the largest logit larger, on a random half of the batch."""

    name = "largest_logit"
    title = "Largest logit"
    traits = Traits("all parameters", forwards=(1, 1), backwards=(1, 1))
    config_type = TENT.config_type

    def build(self):
        self.model = self.copy_source()
        self.train_on(self.model.parameters())

    def logits(self, x):
        return self.run(self.model, x)

    def adapt(self, x):
        logits = self.run(self.model, x, grad=True)
        chosen = self.random.uniform(0, 1, len(x)).to(x.device, x.dtype, non_blocking=True) < 0.5
        return Step(logits, {"loss": self.learn(-(logits.amax(1) * chosen).mean())})


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_method_of_one_s_own(check, network):
    check(Case(LargestLogit, network))
