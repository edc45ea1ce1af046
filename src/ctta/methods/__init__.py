"""One file per method. To add a method: write the file and add its line here, in the order of `ctta list methods`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from ctta.base.errors import ConfigError, StateError, nearest
from ctta.base.text import quoted
from ctta.core.adapter import Adapter
from ctta.core.guard import Adapting, Event
from ctta.core.loading import rebuild
from ctta.core.saving import SavedAdapter
from ctta.core.views import Views

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


def load(
    path: Path | str,
    model: nn.Module,
    *,
    method: type[Adapter] | None = None,
    views: Views | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Adapting:
    """Read what `save` or `save_pretrained` wrote; the adapter, or guard, goes on where the saved one was.

    model      the network that was adapted: its layers; weights and statistics come from the file
    method     the class of a method that ctta does not know by name
    views      if the saved adapter was made with views of its own
    on_event   for a guard
    """
    saved = SavedAdapter.read(path)
    name = saved.about["method"]
    if method is None and name not in METHODS:
        raise StateError(f"{path} was saved by the method {quoted(name)}. Give its class: method=...")
    return rebuild(saved, method or METHODS[name], model, views, on_event)
