"""The public names of `ctta`: those listed here, and the class of every method."""

from ctta import models as models
from ctta.base.config import Config, setting
from ctta.base.errors import ConfigError, CttaError, InputError, ModelError, StateError
from ctta.client import Client
from ctta.core import views
from ctta.core.adapter import Adapter, Step
from ctta.core.execution import Execution
from ctta.core.guard import Guard
from ctta.core.guard_state import Event
from ctta.core.networks import Normalized, norm_parameters
from ctta.core.settings import Normalization, OptimizerSettings, Traits
from ctta.core.teacher import calibrate_gate
from ctta.data import corruptions
from ctta.data.stream import Domain, Stream
from ctta.methods import *  # noqa: F403
from ctta.methods import METHODS, create, load

__all__ = [
    "METHODS",
    "Adapter",
    "Client",
    "Config",
    "ConfigError",
    "CttaError",
    "Domain",
    "Event",
    "Execution",
    "Guard",
    "InputError",
    "ModelError",
    "Normalization",
    "Normalized",
    "OptimizerSettings",
    "StateError",
    "Step",
    "Stream",
    "Traits",
    "calibrate_gate",
    "corruptions",
    "create",
    "load",
    "models",
    "norm_parameters",
    "setting",
    "views",
]
__all__ = sorted([*__all__, *(kind.__name__ for kind in METHODS.values())])
