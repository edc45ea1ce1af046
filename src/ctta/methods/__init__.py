"""One file per method. To add a method: write the file and add its line here, in the order of `ctta list methods`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import quoted
from ctta.core.adapter import Adapter

# isort: off
from ctta.methods.source import Source as Source
from ctta.methods.bn_adapt import BNAdapt as BNAdapt
from ctta.methods.test_aug import TestAug as TestAug
from ctta.methods.tent import TENT as TENT
from ctta.methods.conjugate_pl import ConjugatePL as ConjugatePL
from ctta.methods.eta import ETA as ETA
from ctta.methods.eata import EATA as EATA
from ctta.methods.sar import SAR as SAR
from ctta.methods.rdumb import RDumb as RDumb
from ctta.methods.cotta import CoTTA as CoTTA
from ctta.methods.dss import DSS as DSS
from ctta.methods.lame import LAME as LAME
from ctta.methods.roid import ROID as ROID
from ctta.methods.shot import SHOT as SHOT
from ctta.methods.rmt import RMT as RMT
from ctta.methods.adacontrast import AdaContrast as AdaContrast
# isort: on

_CLASSES = [kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, Adapter)]
METHODS: Mapping[str, type[Adapter]] = MappingProxyType({kind.name: kind for kind in _CLASSES if kind is not Adapter})


def create(method: str, model: nn.Module, **arguments: Any) -> Adapter:
    """Make an adapter by name. `arguments` are those of `Adapter`, or single fields of the method's configuration."""
    if method not in METHODS:
        raise ConfigError(f"There is no method {quoted(method)}. {nearest(method, METHODS)}")
    return METHODS[method](model, **arguments)
