"""Load models by name, with their weights and their normalisation. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import ctta.models  # for the table, which is read when a function is called
from ctta.base import own_code
from ctta.base.errors import ConfigError, ModelError, nearest
from ctta.base.text import quoted
from ctta.core import rotation
from ctta.core.networks import Normalized
from ctta.models.entry import ModelEntry, PublicWeights
from ctta.models.huggingface_models import Logits
from ctta.models.preprocessing import of_processor, of_timm
from ctta.models.small_pointnet import SmallPointNet
from ctta.models.small_resnet import SmallResNet
from ctta.models.weights import read_state, rename, sha256, short, take_normalization, trained_classes

PROVIDERS = {
    "timm": "ctta.models.timm_models",
    "torchvision": "ctta.models.torchvision_models",
    "hf": "ctta.models.huggingface_models",
}
SHOWN = 3  # keys of each kind in a message
RELATED = 0.3  # fraction of matching keys below which a model is not suggested


def load(
    name: str,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Load a trained model, in eval mode, for images in [0, 1].

    `name` is one of `ctta.models.MODELS`, or `timm:...`, `torchvision:...`, `hf:...`. `weights` is a file; for the last
    three it may be "pretrained", which takes the weights of the package from its local cache. Mean and standard
    deviation are those given here, else those saved with the weights, else those of the model's entry.
    """
    entry = find(name)
    if (mean is None) != (std is None):
        raise ConfigError("mean and std belong together: give both, or neither.")
    if entry.clouds and mean is not None:
        raise ConfigError(f"{quoted(name)} takes point clouds, which have no mean and std of channels. Remove them.")
    if entry.pretrained and weights == "pretrained":
        with torch.random.fork_rng(devices=[]):
            state = dict(entry.pretrained())
    elif weights is None or weights == "pretrained":
        own = " or weights='pretrained'" if entry.pretrained else ""
        raise ConfigError(
            f"{quoted(name)} needs its weights, and nothing is downloaded. Give weights='path/to/file'{own}. "
            f"{entry.source}"
        )
    else:
        state = read_state(weights)
        if name in ctta.models.MODELS:
            _check_identity(name, weights)
        num_classes = num_classes or _trained_classes(weights, state)
    with torch.random.fork_rng(devices=[]):  # the random initialisation is overwritten: it must use up no draws
        model = entry.build(num_classes)
    saved = _fill(model, state, name, weights)
    return _normalized(model, mean, std, saved or (entry.mean, entry.std))


def find(name: str) -> ModelEntry:
    """Return the entry of a model: classes, mean, standard deviation, input size."""
    provider, colon, rest = name.partition(":")
    if colon and provider in PROVIDERS:
        entry: ModelEntry = importlib.import_module(PROVIDERS[provider]).entry(rest)
        return entry
    if name not in ctta.models.MODELS:
        raise ConfigError(
            f"There is no model {quoted(name)}. {nearest(name, ctta.models.MODELS)} Or {':..., '.join(PROVIDERS)}:..."
        )
    return ctta.models.MODELS[name]


def embedded_model() -> nn.Module:
    """Return the small ResNet of this package, trained on Fashion-MNIST; it includes the normalisation."""
    return _embedded(SmallResNet(), "fashion_resnet.safetensors")


def embedded_cloud_model() -> nn.Module:
    """Return the small PointNet of this package, trained on the generated solids of `embedded_clouds`."""
    return _embedded(SmallPointNet(), "solids_pointnet.safetensors")


def _embedded(model: nn.Module, file: str) -> nn.Module:
    with as_file(files("ctta.assets").joinpath(file)) as path:
        model.load_state_dict(load_file(path))
    return model.eval()


def from_factory(
    spec: str,
    weights: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Build any model, in eval mode, by `package.module:function` or `file.py:function`, a function that returns it.

    The function is run: it can do whatever a script can. A model of timm, and a pair of a model and a Hugging Face
    image processor, say themselves how images are normalised; another, without `weights` and `mean`, must be ready to
    use, for images in [0, 1].
    """
    with own_code.usable("factory", spec, "a function that takes no arguments and returns the model"):
        made = own_code.load(spec)()
        pair = isinstance(made, tuple) and len(made) == 2
        model, known = (Logits(made[0]), of_processor(made[1])) if pair else (made, None)
        if not isinstance(model, nn.Module):
            raise TypeError(f"it returned {type(model).__name__} instead of a torch.nn.Module")
        known = known or of_timm(model)
        model.eval()
    bare = model.model if isinstance(model, Logits) else model
    saved = _fill(bare, read_state(weights), spec, weights) if weights is not None else None
    if known is None:
        return _normalized(model, mean, std, saved or ((0.0,), (1.0,)))
    mean, std = (mean, std) if mean and std else saved or (known.mean, known.std)
    return Normalized(model, mean, std, known.size).eval()


def _trained_classes(path: str | Path, state: Mapping[str, Tensor]) -> int | None:
    """Return the number of classes that `ctta train` wrote; a model of so many is built before it is filled."""
    number = trained_classes(path)
    if number is not None and not any(number in value.shape for value in state.values()):
        raise ModelError(f"{path} claims {number} classes, but has no tensor of that size. Train it again.")
    return number


def _fill(
    model: nn.Module, state: dict[str, Tensor], name: str, path: str | Path
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Load the weights into the model; return the mean and standard deviation saved with them, if there are any."""
    rotation.attach_saved(model, state)
    wanted = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    state = rename(state, wanted)
    saved = take_normalization(state, wanted)
    if report := _mismatch(wanted, state):
        raise ModelError(f"The weights {path} do not fit {quoted(name)}. {report} {_suggestion(state)}")
    model.load_state_dict(state, strict=False)
    return saved


def _normalized(
    model: nn.Module,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    default: tuple[Sequence[float], Sequence[float]],
) -> nn.Module:
    """Return the model in eval mode, including the normalisation unless that would change nothing."""
    mean, std = default if mean is None or std is None else (mean, std)
    raw = not any(mean) and all(value == 1 for value in std)
    return (model if raw else Normalized(model, mean, std)).eval()


def _check_identity(name: str, path: str | Path) -> None:
    """Refuse a public file under another name: the keys may fit, but the normalisation would be wrong."""
    digest = sha256(path)
    for owner, entry in ctta.models.MODELS.items():
        for checkpoint in entry.checkpoints:
            if digest.startswith(checkpoint.sha256) and owner != name:
                raise ModelError(
                    f"{path} is {checkpoint.name}, with {checkpoint.error} % clean error. It belongs to {owner!r}, not "
                    f"to {quoted(name)}: write load({owner!r}, weights=...)."
                )


def _mismatch(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Describe what is missing, unexpected, or of another shape or type; empty if everything fits."""
    missing = [key for key in wanted if key not in state and _counts(key)]
    unexpected = [key for key in state if key not in wanted and _counts(key)]
    shapes = [
        f"{key} {tuple(state[key].shape)} in the file, {tuple(value.shape)} in the model"
        for key, value in wanted.items()
        if key in state and state[key].shape != value.shape
    ]
    types = [
        f"{key} {state[key].dtype} in the file, {value.dtype} in the model"
        for key, value in wanted.items()
        if key in state and not shapes and not _convertible(state[key], value)
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes, "of another type": types}
    return " ".join(
        f"{len(keys)} {kind}: {'; '.join(keys[:SHOWN])}{' ...' if len(keys) > SHOWN else ''}."
        for kind, keys in kinds.items()
        if keys
    )


def _convertible(value: Tensor, wanted: Tensor) -> bool:
    """Whether the model's type holds the numbers: whole ones for whole ones, and none that becomes infinite."""
    kinds = [(tensor.is_floating_point(), tensor.is_complex()) for tensor in (value, wanted)]
    return kinds[0] == kinds[1] and bool(value.to(wanted.dtype).isfinite().all())


def _suggestion(state: Mapping[str, Tensor]) -> str:
    """Name the known model that the tensors fit best."""
    found = {short(key): value.shape for key, value in state.items() if _counts(key)}
    heads = [shape[0] for shape in found.values() if len(shape) == 2]
    known = [(name, entry.num_classes) for name, entry in ctta.models.MODELS.items()]
    best, share, fitting = known[0], 0.0, 0
    for candidate in known + [(name, heads[-1]) for name, _ in known if heads]:
        shapes = _shapes(*candidate)
        fit = sum(found.get(key) == shape for key, shape in shapes.items())
        if 2 * fit / (len(shapes) + len(found)) > share:
            best, share, fitting = candidate, 2 * fit / (len(shapes) + len(found)), fit
    if share < RELATED:
        return "They fit no known model. Build yours and pass it to the adapter, or name a factory."
    fits = f"{fitting} of the file's {len(found)} tensors fit it"
    return f"The nearest known model is {best[0]!r} with num_classes={best[1]}: {fits}."


@cache
def _shapes(name: str, num_classes: int) -> dict[str, torch.Size]:
    with torch.device("meta"):
        model = ctta.models.MODELS[name].build(num_classes)
    return {key: value.shape for key, value in model.state_dict().items() if _counts(key)}


def _counts(key: str) -> bool:
    """Whether a key matters: old files lack the batch counters of BatchNorm, which are not used."""
    return not key.endswith("num_batches_tracked")


def identify(name: str, weights: str | Path) -> PublicWeights | None:
    """Return which public file these weights are, if it is known."""
    if name not in ctta.models.MODELS:
        return None
    entry, digest = ctta.models.MODELS[name], sha256(weights)
    return next((known for known in entry.checkpoints if digest.startswith(known.sha256)), entry.assumed)


def weights_hash(model: nn.Module) -> str:
    """Return a hash of all weights and statistics, which identifies a model independent of its file."""
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        if isinstance(value, Tensor):
            digest.update(f"{key} {tuple(value.shape)} {value.dtype}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
