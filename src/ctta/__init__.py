"""Continual test-time adaptation: keep a trained classifier good while the world around it changes.

adapter = ctta.DSS(model)
for x in stream:
    logits = adapter(x)
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ctta import models
from ctta.base.errors import ConfigError, CttaError, InputError, ModelError, StateError, nearest
from ctta.core import views
from ctta.core.adapter import Adapter, Step
from ctta.core.execution import Execution
from ctta.core.networks import Normalized
from ctta.core.teacher import calibrate_gate
from ctta.data import corruptions
from ctta.methods import METHODS
from ctta.methods.adacontrast import AdaContrast
from ctta.methods.bn_adapt import BNAdapt
from ctta.methods.conjugate_pl import ConjugatePL
from ctta.methods.cotta import CoTTA
from ctta.methods.dss import DSS
from ctta.methods.eata import EATA
from ctta.methods.eta import ETA
from ctta.methods.lame import LAME
from ctta.methods.rdumb import RDumb
from ctta.methods.rmt import RMT
from ctta.methods.roid import ROID
from ctta.methods.sar import SAR
from ctta.methods.shot import SHOT
from ctta.methods.source import Source
from ctta.methods.tent import TENT
from ctta.methods.test_aug import TestAug

__version__ = "0.1.0"

__all__ = [
    "DSS",
    "EATA",
    "ETA",
    "LAME",
    "METHODS",
    "RMT",
    "ROID",
    "SAR",
    "SHOT",
    "TENT",
    "AdaContrast",
    "Adapter",
    "BNAdapt",
    "CoTTA",
    "ConfigError",
    "ConjugatePL",
    "CttaError",
    "Execution",
    "InputError",
    "ModelError",
    "Normalized",
    "RDumb",
    "Source",
    "StateError",
    "Step",
    "TestAug",
    "calibrate_gate",
    "corruptions",
    "create",
    "models",
    "views",
]


def create(method: str, model: nn.Module, **arguments: Any) -> Adapter:
    """Make an adapter by name. `arguments` are those of `Adapter`, or single fields of the method's configuration."""
    if method not in METHODS:
        raise ConfigError(f"There is no method {method!r}. {nearest(method, METHODS)}")
    return METHODS[method](model, **arguments)
