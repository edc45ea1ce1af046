"""Settings of the source model: a name and its weights, an embedded model, or any function that returns a network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ctta.base.config import Config, setting
from ctta.base.errors import nearest
from ctta.base.text import quoted
from ctta.core.networks import Normalized
from ctta.models import EMBEDDED_NETWORKS, MODELS, embedded_cloud_model, embedded_model, from_factory, load

FACTORY = "Instead of a name: package.module:function or file.py:function. Its code is run: use one that you trust."
CHANNELS = (1, 3)  # values of a mean: one for all channels, or one each
EMBEDDED = {"embedded": embedded_model, "embedded_clouds": embedded_cloud_model}


@dataclass(frozen=True)
class Model(Config):
    """The source model."""

    name: str | None = setting(
        "embedded", "'embedded', 'embedded_clouds', a name from ctta.models.MODELS, or 'timm:...' and similar."
    )
    weights: str | None = setting(None, "The file with its weights; not for an embedded model.")
    factory: str | None = setting(None, FACTORY)
    mean: tuple[float, ...] | None = setting(None, "Mean of the normalisation, if the model does not contain it.")
    std: tuple[float, ...] | None = setting(None, "Standard deviation of the normalisation.")
    expected_error: float | None = setting(
        None,
        "The source error in percent that you expect: on clean samples if the data set has them, else over the domains "
        "of the run. A run whose source error differs is marked as not valid.",
        low=0,
        high=100,
    )
    tolerance: float = setting(3.0, "Points by which the source error may differ, besides sampling error.", low=0)

    def load(self) -> nn.Module:
        """Return the model in eval mode, for images in [0, 1]."""
        if self.factory:
            return from_factory(self.factory, self.weights, mean=self.mean, std=self.std)
        if self.name is not None and self.name not in EMBEDDED:
            return load(self.name, self.weights, mean=self.mean, std=self.std)
        model = EMBEDDED[self.name or "embedded"]()
        if self.mean is not None and self.std is not None:
            model = Normalized(model, self.mean, self.std)
        return model.eval()

    def problems(self) -> list[str]:
        """List what is wrong although every field is valid."""
        found = []
        if (self.mean is None) != (self.std is None):
            found.append("mean and std belong together: give both, or neither.")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in CHANNELS:
                found.append(f"{name} has one value per channel, three, or one for all. Got {quoted(values)}.")
        if self.std is not None and not all(value > 0 for value in self.std):
            found.append(f"std must be more than 0. Got {quoted(self.std)}.")
        if self.factory is not None:
            if not all(self.factory.rpartition(":")):
                found.append(
                    f"factory must read package.module:function or file.py:function. Got {quoted(self.factory)}."
                )
            if self.name not in (None, "embedded"):
                found.append(f"name and factory exclude each other: leave out {quoted(self.name)}, or the factory.")
            return found
        known = [*MODELS, *EMBEDDED]
        if self.name is None:
            found.append("Give a name or a factory.")
        elif self.name not in known and ":" not in self.name:
            found.append(f"There is no model {quoted(self.name)}. {nearest(self.name, known)}")
        if self.name in EMBEDDED and self.weights is not None:
            networks = " and ".join(map(repr, EMBEDDED_NETWORKS.values()))
            found.append(f"Embedded models come with their weights. To load others, name their networks: {networks}.")
        network = EMBEDDED_NETWORKS.get(str(self.name), str(self.name))
        if network in MODELS and MODELS[network].clouds and self.mean is not None:
            found.append(
                f"{quoted(self.name)} takes point clouds, which have no mean and std per channel. Leave them out."
            )
        return found

    def misfit(self, samples: str) -> str:
        """Report that the model takes images and the data are point clouds, or the reverse; empty if it fits."""
        name = EMBEDDED_NETWORKS.get(str(self.name), str(self.name))
        if self.factory is not None or name not in MODELS or MODELS[name].clouds == (samples == "clouds"):
            return ""
        kinds = ("point clouds", "images") if MODELS[name].clouds else ("images", "point clouds")
        return f"{quoted(self.name)} takes {kinds[0]}, and the data are {kinds[1]}. Give another model or other data."
