"""Test Aug: the mean over many augmented views, nothing trained.

Only the augmentation of CoTTA (Wang et al., CVPR 2022), the second row of the field's ablations.

    logits = mean over augmented views of model(view(x)), each view with its own batch statistics

Departures: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.base.limits import VIEWS
from ctta.core.adapter import Adapter, Step
from ctta.core.settings import Augmentation, Normalization, Presets, Traits, same_presets


@dataclass(frozen=True)
class TestAugConfig(Augmentation, Normalization):
    """Settings of Test Aug."""

    __test__ = False  # not a test case, whatever its name says

    views: int = setting(32, "Augmented views to average.", low=1, high=VIEWS)


class TestAug(Adapter):
    """Averages the source model over augmented views."""

    __test__ = False

    name = "test_aug"
    title = "Test Aug"
    traits = Traits("nothing", forwards=(32, 32), backwards=(0, 0))
    config_type = TestAugConfig
    config: TestAugConfig
    presets: ClassVar[Presets] = {**same_presets(), "clouds": {"draw": "sample"}}

    def build(self) -> None:
        self.model = self.copy_source(many_passes=True)

    def adapt(self, x: Tensor) -> Step:
        return Step(self.logits(x), {"views": torch.tensor(self.config.views)})

    def logits(self, x: Tensor) -> Tensor:
        return torch.stack(list(self.run_views(self.model, x, self.config.views))).mean(0)
