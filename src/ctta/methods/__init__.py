"""One file a method. To add one: write the file, add its line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ctta.core.adapter import Adapter
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

METHODS: Mapping[str, type[Adapter]] = MappingProxyType(
    {
        "source": Source,
        "bn_adapt": BNAdapt,
        "test_aug": TestAug,
        "tent": TENT,
        "conjugate_pl": ConjugatePL,
        "eta": ETA,
        "eata": EATA,
        "sar": SAR,
        "rdumb": RDumb,
        "cotta": CoTTA,
        "dss": DSS,
        "lame": LAME,
        "roid": ROID,
        "shot": SHOT,
        "rmt": RMT,
        "adacontrast": AdaContrast,
    }
)
