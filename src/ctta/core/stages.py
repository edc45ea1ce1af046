"""A method that learns norm parameters, but for those of the stages that it is told to leave alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ctta.base.config import Config, setting
from ctta.base.errors import ModelError
from ctta.core.adapter import Adapter, log
from ctta.core.networks import norm_parameters

LAST_STAGES = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm")  # of ResNets, and of ViT-Base in timm


@dataclass(frozen=True)
class FrozenStages(Config):
    """Which stages keep their norm parameters."""

    frozen: tuple[str, ...] = setting((), "Paths of the modules whose norm layers do not learn: the last stage.")


class StageAdapter(Adapter):
    """Learns the norm parameters outside `frozen`, which are logged."""

    config: FrozenStages
    needs_norm = True

    def build(self) -> None:
        self.model = self.copy_source()
        frozen = {parameter for stage in self._frozen().values() for parameter in norm_parameters(stage)}
        learned = [parameter for parameter in norm_parameters(self.model) if parameter not in frozen]
        if frozen and not learned:
            raise ModelError(
                f"{type(self).__name__} has nothing to learn: all norm layers are in {self.config.frozen}. Freeze less."
            )
        self.train_on(learned)

    def review(self) -> None:
        found = list(self._frozen())
        named = self.config.frozen != LAST_STAGES or self.preset.startswith("imagenet")  # small networks may lack those
        if self.config.frozen and named and not found:
            log.warning(
                "%s: the model has none of the modules %s, so all norm layers learn. Name its last stage, "
                "frozen=(...), or say that there is none, frozen=(). It has: %s.",
                self.name,
                ", ".join(self.config.frozen),
                ", ".join(name for name, _ in _network(self.model).named_children()),
            )
        else:
            log.info("%s: the norm layers of these modules do not learn: %s", self.name, ", ".join(found) or "none")

    def _frozen(self) -> dict[str, nn.Module]:
        """The modules of `frozen` that the network has, by name."""
        modules = dict(_network(self.model).named_modules())
        return {name: modules[name] for name in self.config.frozen if name in modules}


def _network(model: nn.Module) -> nn.Module:
    """What is inside wrappers, such as a normalisation: modules of which a single child has parameters."""
    while len(inside := [child for child in model.children() if next(child.parameters(), None) is not None]) == 1:
        (model,) = inside
    return model
