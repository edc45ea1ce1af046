"""Source training: any of our models on any of our data sets, by a plain, good recipe.

    SGD with Nesterov momentum; a short warm-up, then a cosine to zero; no weight decay on norm layers and biases;
    standard augmentation (see `augment`). Nothing that looks like a corruption: a source model must not have seen
    one.

    data: {dataset: arrays, path: train.npz}
    test: {dataset: arrays, path: test.npz}
    model: {name: cifar_resnet20}
    train: {epochs: 100}

The loss is the cross-entropy. A network may add to it: where it has a method `regularized(x)`, which gives logits and
a penalty, that is what training calls. PointNet does.

Randomness is a function of (seed, epoch, batch), so a killed training goes on where it was, bit for bit on CPU. What is
written is the model's state with its normalisation, in safetensors, as `ctta.models.load` reads it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta.base.config import Config, section, setting
from ctta.base.errors import ConfigError, InputError, ModelError, StateError, nearest
from ctta.base.fileio import make_folder, write_atomically
from ctta.base.prefetch import ahead
from ctta.base.randomness import Randomness, mix
from ctta.core.networks import Normalized, class_count
from ctta.core.teacher import calibrate_gate
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.datasets import problems as data_problems
from ctta.data.stream import Domain, Rows, Stream, to_tensor
from ctta.experiments.experiment import Model, read_yaml
from ctta.models import EMBEDDED_NETWORKS, find, from_factory
from ctta.training.augment import augment, draw_points

MEASURED = 5000  # samples that mean and standard deviation are read off
CALIBRATED = 1000  # samples that the gate is read off; they go through the network
CHUNK = 200  # samples that are loaded at a time, where nothing is learned from them
LOADED_AHEAD = 2  # batches


@dataclass(frozen=True)
class Network(Config):
    """What is trained."""

    name: str | None = setting(None, "A name from ctta.models.MODELS, 'embedded', or 'timm:...' and its like.")
    factory: str | None = setting(None, "Any network: package.module:function or file.py:function, instead of a name.")
    weights: str | None = setting(None, "A file to start from, with its normalisation; fresh weights without it.")
    classes: int | None = setting(None, "Number of classes; the data's without it, else the network's own.", low=1)
    mean: tuple[float, ...] | None = setting(None, "Mean of the images, a channel each; measured without it.")
    std: tuple[float, ...] | None = setting(None, "Standard deviation of the same.")

    def build(self, classes: int | None) -> nn.Module:
        """The network, with fresh weights or those of the file."""
        if self.weights:
            return self.source().load()
        if self.factory:
            return from_factory(self.factory)
        return find(EMBEDDED_NETWORKS.get(str(self.name), str(self.name))).build(classes)

    def problems(self) -> list[str]:
        """What the types alone do not tell."""
        return self.source().problems()

    def source(self) -> Model:
        """The same as a model that an experiment has."""
        return Model(self.name, self.weights, self.factory, self.mean, self.std)


@dataclass(frozen=True)
class Recipe(Config):
    """How it is trained."""

    epochs: int = setting(100, "How often every sample is seen.", low=1)
    batch: int = setting(128, "Batch size.", low=2)
    lr: float = setting(0.1, "Highest learning rate.", low=0.0, open_low=True)
    momentum: float = setting(0.9, "Nesterov momentum.", low=0.0, high=1.0, open_low=True)
    weight_decay: float = setting(5e-4, "Weight decay; not on norm layers and biases.", low=0.0)
    warmup: float = setting(0.05, "Share of the training in which the learning rate rises.", low=0.0, high=1.0)
    label_smoothing: float = setting(0.0, "Share of the label that is spread over all classes.", low=0.0, high=1.0)
    augment: Literal["standard", "unmirrored", "none"] = setting(
        "standard", "Standard augmentation, the same without mirror images (text, digits), or none."
    )
    points: int | None = setting(
        None, "Points of a cloud that are learned from, drawn anew each time; all without it.", low=1
    )
    precision: Literal["full", "autocast"] = setting("full", "The weights' own precision, or bfloat16 autocast.")
    holdout: float = setting(0.0, "Share of the data that is kept for testing, where there is no test set.", low=0.0)
    test_every: int = setting(5, "Epochs between tests; the last one is always tested.", low=1)
    seed: int = setting(0, "Seed of weights, order and augmentation.", low=0)
    device: str = setting("cpu", "Where to train: cpu, cuda, cuda:1, mps ...")

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step: up in a line, then down along a cosine."""
        rising = round(self.warmup * steps)
        if step < rising:
            return self.lr * (step + 1) / rising
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(steps - rising, 1)))


@dataclass(frozen=True)
class Training:
    """Data, network and recipe."""

    data: Data
    test: Data | None
    model: Network
    train: Recipe

    def identity(self) -> str:
        """A hash of all that decides the weights."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Epoch:
    """One line of the log."""

    epoch: int  # 1, 2, 3 ...
    lr: float  # at its end
    loss: float
    error: float  # percent, on augmented training samples as they went by
    test_error: float | None  # percent; none where it was not tested
    seconds: float


@dataclass(frozen=True)
class Progress:
    """How far a training is."""

    done: int  # batches
    total: int
    loss: float  # of this batch
    ended: Epoch | None = None  # the epoch that this batch closes


def load(path: Path, overrides: Sequence[str] = ()) -> Training:
    """Read a YAML file; overrides are `train.epochs=10`."""
    return make(read_yaml(path, overrides))


def make(values: Mapping[str, Any]) -> Training:
    """From plain data; all mistakes are reported together. Data are clean unless they say otherwise."""
    known = ("data", "test", "model", "train")
    problems = [f"There is no section {key!r}. {nearest(str(key), known)}" for key in values if key not in known]
    network = section(Network, "model", values.get("model", {}), problems)
    recipe = section(Recipe, "train", values.get("train", {}), problems)
    data = _data("data", values.get("data", {}), problems)
    test = _data("test", values["test"], problems) if values.get("test") is not None else None
    problems += [f"model: {problem}" for problem in network.problems()] if network else []
    if recipe:
        problems += _recipe_problems(recipe, tested=values.get("test") is not None)
    if problems or network is None or recipe is None or data is None:
        raise ConfigError("\n".join(problems))
    return Training(data, test, network, recipe)


def _data(name: str, values: Any, problems: list[str]) -> Data | None:
    made = section(Data, name, {"domains": "clean", **values} if isinstance(values, Mapping) else values, problems)
    problems += [f"{name}: {problem}" for problem in data_problems(made)] if made else []
    return made


def _recipe_problems(recipe: Recipe, *, tested: bool) -> list[str]:
    problems = []
    if recipe.holdout and tested:
        problems.append("train: holdout and a test section exclude each other: give one of them.")
    if recipe.holdout >= 1:
        problems.append(f"train: holdout must be less than 1: something must be left to learn. Got {recipe.holdout}.")
    try:
        torch.empty(0, device=recipe.device)
    except (RuntimeError, AssertionError) as error:
        problems.append(f"train: the device {recipe.device!r} cannot be used ({str(error).splitlines()[0]}).")
    return problems


def train(
    training: Training, out: Path | str, *, force: bool = False, checkpoint_seconds: float = 30.0
) -> Iterator[Progress]:
    """Train and write the weights; yields after every batch. Stopped or killed, the same call goes on where it was.

    Beside `out` lie the log, a line an epoch (.jsonl), and until the end the checkpoint (.checkpoint).
    """
    out = Path(out)
    checkpoint, log = out.with_suffix(".checkpoint"), out.with_suffix(".jsonl")
    if force:
        out.unlink(missing_ok=True)
        checkpoint.unlink(missing_ok=True)
    if out.exists():
        raise StateError(f"{out} is there already. Say --force to train it anew, or give another name.")
    make_folder(out.parent)
    learner = Learner(training)
    if checkpoint.is_file():
        learner.load(torch.load(checkpoint, map_location="cpu", weights_only=True), checkpoint)
    saved = time.monotonic()
    for progress in learner.run():
        if progress.ended:
            write_atomically(log, "".join(json.dumps(line) + "\n" for line in learner.history).encode())
        if time.monotonic() - saved > checkpoint_seconds:
            content = io.BytesIO()
            torch.save(learner.state(), content)
            write_atomically(checkpoint, content.getvalue())
            saved = time.monotonic()
        yield progress
    write_atomically(out, safetensors.torch.save(learner.weights(), learner.metadata()))
    checkpoint.unlink(missing_ok=True)


class Learner:
    """Everything that changes while a model learns."""

    def __init__(self, training: Training) -> None:
        self.training, self.recipe = training, training.train
        self.device = torch.device(self.recipe.device)
        stream = open_stream(training.data)
        self.test = open_stream(training.test) if training.test else None
        self.domain = _only_domain(stream)
        order = torch.randperm(len(self.domain), generator=_generator(self.recipe.seed)).numpy()
        self.held, self.rows = np.split(order, [round(self.recipe.holdout * len(order))])
        self.names = stream.classes
        self.batch = min(self.recipe.batch, len(self.rows))
        self.steps = len(self.rows) // self.batch  # an epoch; the few samples that remain are other ones each time
        self.total = self.recipe.epochs * self.steps
        if self.batch < 2:
            raise InputError(f"There are {len(self.rows)} samples to learn from; at least 2 are needed.")
        with Randomness(self.recipe.seed, 0, torch.device("cpu")).scoped():
            started = training.model.build(training.model.classes or len(self.names) or None)
        self.model = started.model if isinstance(started, Normalized) else started
        self.classes = training.model.classes or class_count(self.model) or 0
        self.normalization = self._normalization(started)
        network = Normalized(self.model, *self.normalization) if self.normalization else self.model
        self.network = network.to(self.device)
        self.optimizer = _optimizer(self.network, self.recipe)
        self.step, self.loss, self.wrong = 0, 0.0, 0  # the last two since the epoch began
        self.history: list[dict[str, Any]] = []

    def run(self) -> Iterator[Progress]:
        """From where it is to the end."""
        while self.step < self.total:
            epoch = self.step // self.steps
            began = time.monotonic()
            for x, y in self._batches(epoch, self.step % self.steps):
                loss = self._learn(x, y)
                ended = None
                if self.step % self.steps == 0:
                    ended = self._end(epoch, time.monotonic() - began)
                yield Progress(self.step, self.total, loss, ended)

    def state(self) -> dict[str, Any]:
        """All that is needed to go on."""
        return {
            "identity": self.training.identity(),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "place": {"step": self.step, "loss": self.loss, "wrong": self.wrong},
            "history": self.history,
        }

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Go on where the state was saved."""
        if state["identity"] != self.training.identity():
            raise StateError(f"{path} is from a training with other settings. Say --force to begin anew.")
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.loss, self.wrong = (state["place"][name] for name in ("step", "loss", "wrong"))
        self.history = list(state["history"])

    def weights(self) -> dict[str, Tensor]:
        """The model's own state, and its normalisation under names that `ctta.models.load` knows."""
        # Clones, because a module with two names has its tensors twice, and safetensors refuses shared ones.
        found = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        if self.normalization:
            found |= {
                f"normalize.{n}": torch.tensor(v) for n, v in zip(("mean", "std"), self.normalization, strict=True)
            }
        return found

    def metadata(self) -> dict[str, str]:
        """What a reader of the file wants to know."""
        training, last = self.training, self.history[-1]
        about = {
            "model": training.model.factory or training.model.name,
            "num_classes": self.classes,
            "classes": json.dumps(self.names if len(self.names) == self.classes else []),
            "data": DATASETS[training.data.dataset].title,
            "samples": len(self.rows),
            "recipe": json.dumps(self.recipe.asdict()),
            "train_error": f"{last['error']:.2f}",
            "gate": f"{calibrate_gate(self.network, self._plain(self.rows[:CALIBRATED])):.2f}",
            "ctta": ctta.__version__,
            "torch": torch.__version__,
            "date": datetime.now(UTC).date().isoformat(),
        }
        if last["test_error"] is not None:
            about["test_error"] = f"{last['test_error']:.2f}"
        return {key: str(value) for key, value in about.items()}

    def _learn(self, x: Tensor, y: Tensor) -> float:
        """One batch. All that is random follows (seed, epoch, batch)."""
        epoch, number = divmod(self.step, self.steps)
        if int(y.min()) < 0 or int(y.max()) >= self.classes:
            raise InputError(
                f"Labels must be 0 to {self.classes - 1}, as the model has {self.classes} classes. Found "
                f"{int(y.min())} to {int(y.max())}. Set model.classes, or mend the labels."
            )
        random = Randomness(mix(self.recipe.seed, epoch + 1), number, self.device)
        x, y = x.to(self.device), y.to(self.device)
        if self.recipe.points is not None:
            x = draw_points(x, self.recipe.points, random)
        if self.recipe.augment != "none":
            x = augment(x, random, flip=self.recipe.augment == "standard")
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(self.step, self.total)
        self.network.train()
        narrow = torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "autocast")
        with random.scoped(), narrow:
            logits, penalty = self._regularized(x)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits, y, label_smoothing=self.recipe.label_smoothing) + penalty
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ModelError(
                f"The loss is {value} in batch {number} of epoch {epoch + 1}. Lower train.lr, or raise train.warmup."
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step, self.loss = self.step + 1, self.loss + value
        self.wrong += int((logits.detach().argmax(1) != y).sum())
        return value

    def _regularized(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and what the network adds to their loss."""
        regularized: Any = getattr(self.model, "regularized", None)
        if regularized is None:
            return self.network(x), x.new_zeros(())
        found: tuple[Tensor, Tensor] = regularized(
            self.network.normalize(x) if isinstance(self.network, Normalized) else x
        )
        return found

    def _end(self, epoch: int, seconds: float) -> Epoch:
        """Close an epoch: its line of the log."""
        tested = (epoch + 1) % self.recipe.test_every == 0 or self.step == self.total
        line = Epoch(
            epoch=epoch + 1,
            lr=self.recipe.rate(self.step - 1, self.total),
            loss=self.loss / self.steps,
            error=100 * self.wrong / (self.steps * self.batch),
            test_error=self.test_error() if tested else None,
            seconds=round(seconds, 1),
        )
        self.loss, self.wrong = 0.0, 0
        self.history.append(asdict(line))
        return line

    @torch.no_grad()
    def test_error(self) -> float | None:
        """In percent; none where there is nothing to test on."""
        batches = ((batch.x, batch.y) for batch in self.test) if self.test else self._load(_cut(self.held, CHUNK))
        self.network.eval()
        wrong = seen = 0
        for x, y in batches:
            wrong += int((self.network(x.to(self.device)).argmax(1).cpu() != y).sum())
            seen += len(y)
        return 100 * wrong / seen if seen else None

    def _batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, in an order of its own."""
        order = torch.randperm(len(self.rows), generator=_generator(self.recipe.seed, epoch + 1)).numpy()
        return self._load(_cut(self.rows[order], self.batch)[start : self.steps])

    def _load(self, parts: Sequence[Rows]) -> Iterator[tuple[Tensor, Tensor]]:
        for _, (samples, labels) in ahead(self.domain.load, parts, LOADED_AHEAD):
            yield to_tensor(samples), torch.from_numpy(labels.astype(np.int64))

    def _plain(self, rows: Rows) -> Iterator[Tensor]:
        """Samples as they are."""
        return (x.to(self.device) for x, _ in self._load(_cut(rows, CHUNK)))

    def _normalization(self, started: nn.Module) -> tuple[list[float], list[float]] | None:
        """Mean and standard deviation of each channel, the network's own, given or measured; none for clouds."""
        if isinstance(started, Normalized):
            return started.mean.flatten().tolist(), started.std.flatten().tolist()
        given = self.training.model
        if given.mean is not None and given.std is not None:
            return list(given.mean), list(given.std)
        pixels, total, squares = 0, torch.zeros(1), torch.zeros(1)
        for x in self._plain(np.sort(self.rows[:MEASURED])):
            if x.dim() != 4:
                return None
            pixels += len(x) * x.shape[2] * x.shape[3]
            total = total + x.double().sum((0, 2, 3)).cpu()
            squares = squares + x.double().square().sum((0, 2, 3)).cpu()
        mean = total / pixels
        std = (squares / pixels - mean**2).clamp(min=1e-6).sqrt()
        return [round(value, 4) for value in mean.tolist()], [round(value, 4) for value in std.tolist()]


def _only_domain(stream: Stream) -> Domain:
    if len(stream.domains) > 1:
        names = ", ".join(domain.name for domain in stream.domains)
        raise ConfigError(f"Training takes one domain, and data has {len(stream.domains)} ({names}). Name one.")
    return stream.domains[0]


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Norm layers and biases hold vectors: no weight decay."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=True)


def _generator(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(*numbers))


def _cut(rows: Rows, size: int) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
