"""Models by name, with their weights and their normalisation."""

from __future__ import annotations

import importlib
from importlib.resources import as_file, files

from safetensors.torch import load_file
from torch import nn

from ctta.errors import ConfigError
from ctta.models.small_resnet import small_resnet


def embedded_model() -> nn.Module:
    """The small ResNet that comes with the package, trained on Fashion-MNIST; its normalisation is inside."""
    model = small_resnet()
    with as_file(files("ctta.assets").joinpath("fashion_resnet.safetensors")) as path:
        model.load_state_dict(load_file(path))
    return model.eval()


def from_factory(spec: str) -> nn.Module:
    """Any model: `package.module:function` names a function that returns it, ready to use, with images in [0, 1]."""
    module_name, _, function_name = spec.partition(":")
    try:
        model = getattr(importlib.import_module(module_name), function_name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"The factory {spec!r} cannot be called ({error}). Write package.module:function, where the function takes "
            "nothing and returns the model, and see that Python finds the package."
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"The factory {spec!r} must return a torch.nn.Module. It gave {type(model).__name__}.")
    return model
