"""Source: the model as it is.

The baseline every method has to beat: eval mode, the source's own statistics, nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ctta.base.config import Config
from ctta.core.adapter import Adapter, Step
from ctta.core.settings import Traits


@dataclass(frozen=True)
class SourceConfig(Config):
    """Nothing to set."""


class Source(Adapter):
    """Predicts and never adapts."""

    name = "source"
    title = "Source"
    traits = Traits("nothing", forwards=(1, 1), backwards=(0, 0))
    config_type = SourceConfig
    config: SourceConfig

    def adapt(self, x: Tensor) -> Step:
        return Step(self.run(self.source_model, x))
