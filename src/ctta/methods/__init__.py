"""One file per method. To add a method: write the file and add its line here, in the order of `ctta list methods`.

Methods of one's own need no line: they are named by their place, or registered by an installed package (see `find`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import isabstract
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from ctta.base import own_code
from ctta.base.errors import ConfigError, StateError
from ctta.base.text import quoted
from ctta.core.adapter import Adapter
from ctta.core.guard import Adapting
from ctta.core.guard_state import Event
from ctta.core.loading import rebuild
from ctta.core.saving import SavedAdapter
from ctta.core.views import Views

# isort: off
from ctta.methods.source import Source as Source
from ctta.methods.bn_adapt import BNAdapt as BNAdapt
from ctta.methods.test_aug import TestAug as TestAug
from ctta.methods.memo import MEMO as MEMO
from ctta.methods.tent import TENT as TENT
from ctta.methods.conjugate_pl import ConjugatePL as ConjugatePL
from ctta.methods.eta import ETA as ETA
from ctta.methods.eata import EATA as EATA
from ctta.methods.sar import SAR as SAR
from ctta.methods.rdumb import RDumb as RDumb
from ctta.methods.deyo import DeYO as DeYO
from ctta.methods.cotta import CoTTA as CoTTA
from ctta.methods.dss import DSS as DSS
from ctta.methods.sift import Sift as Sift
from ctta.methods.vdp import VDP as VDP
from ctta.methods.lame import LAME as LAME
from ctta.methods.roid import ROID as ROID
from ctta.methods.cmf import CMF as CMF
from ctta.methods.shot import SHOT as SHOT
from ctta.methods.rmt import RMT as RMT
from ctta.methods.rotta import RoTTA as RoTTA
from ctta.methods.adacontrast import AdaContrast as AdaContrast
from ctta.methods.ttt import TTT as TTT
from ctta.methods.ttt_mae import TTTMAE as TTTMAE
# isort: on

_CLASSES = [kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, Adapter)]
METHODS: Mapping[str, type[Adapter]] = MappingProxyType({kind.name: kind for kind in _CLASSES if kind is not Adapter})

GROUP = "ctta.methods"  # of the entry points by which installed packages add methods


def find(method: str) -> type[Adapter]:
    """The class of a method: one of METHODS, one that an installed package adds, or code of one's own, which is run."""
    if method in METHODS:
        return METHODS[method]
    place = own_code.place(method, "method", GROUP, METHODS)
    with own_code.usable("method", method, "a class derived from ctta.Adapter that defines adapt(x)"):
        kind = own_code.load(place)
        if not (isinstance(kind, type) and issubclass(kind, Adapter)) or isabstract(kind):
            raise TypeError(f"it is {quoted(kind)}")
    return kind


def known(method: str) -> type[Adapter] | None:
    """The class of a method; None if it cannot be found, for whoever leaves it to others to report that."""
    with suppress(ConfigError):
        return find(method)
    return None


def create(method: str, model: nn.Module, **arguments: Any) -> Adapter:
    """Make an adapter by name. `arguments` are those of `Adapter`, or single fields of the method's configuration."""
    return find(method)(model, **arguments)


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
