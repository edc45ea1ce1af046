"""A saved adapter or guard, made again around a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ctta.base.errors import CttaError, ModelError, StateError
from ctta.base.limits import CLASSES
from ctta.base.text import failure
from ctta.core.adapter import Adapter
from ctta.core.execution import Execution
from ctta.core.guard import Adapting, Guard
from ctta.core.guard_state import Event
from ctta.core.saving import SavedAdapter
from ctta.core.views import Views


def rebuild(
    saved: SavedAdapter,
    kind: type[Adapter],
    model: nn.Module,
    views: Views | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Adapting:
    """An adapter, or a guard if it was one, that goes on where the saved one was."""
    try:
        made = _made(saved, kind, model, views)
        adapter = Guard(made, every=saved.made["every"], on_event=on_event) if saved.guarded else made
    except (ModelError, StateError):
        raise
    except Exception as error:
        said = str(error) if isinstance(error, CttaError) else failure(error)
        raise StateError(f"{saved.path} is damaged, or from another version of {kind.__name__}: {said}") from error
    adapter.load_state_dict(saved.state)
    return adapter


def _made(saved: SavedAdapter, kind: type[Adapter], model: nn.Module, views: Views | None) -> Adapter:
    made, about = saved.made, saved.about
    if made["views"] != (views is not None):
        given = "with views of its own. Give them: views=..." if views is None else "without views=... Leave them out."
        raise StateError(f"The adapter in {saved.path} was made {given}")
    if type(made["classes"]) is not int or not 0 < made["classes"] <= CLASSES:
        raise ValueError(f"a model cannot have {made['classes']!r} classes")
    arguments: dict[str, Any] = {name: made[name] for name in ("classes", "inputs", "boundaries")}
    arguments |= {"views": views, "execution": Execution.make(made["execution"]), "seed": about["seed"]}
    if made["by_shape"] is not None:
        asked, fields = made["by_shape"]
        return kind(model, preset=asked, **arguments, **fields)
    adapter = kind(model, kind.config_type.make(about["config"]), **arguments)
    adapter.preset = about["preset"]
    return adapter
