"""Source training: any of our models on any of our data sets, with a plain, good recipe.

SGD with Nesterov momentum, a short warm-up, then a cosine to zero, and standard augmentation (see `augment`). No
augmentation resembles a corruption: a source model must not have seen one. The loss is the cross-entropy; a network
may add a penalty, if it has a method `regularized(x)` that returns logits and a penalty, as PointNet does. With
`auxiliary: rotation` a second head learns to tell quarter turns from the same features; it is saved with the network.

Randomness is a function of (seed, epoch, batch), so a killed training resumes where it was, bit for bit on CPU.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta.base.errors import ConfigError, CttaError, InputError, ModelError, StateError
from ctta.base.fileio import write_atomically, writing
from ctta.base.lock import locked
from ctta.base.prefetch import prefetch
from ctta.base.randomness import Randomness, mix
from ctta.base.tensor_file import read_tensors, write_tensors
from ctta.base.text import failure
from ctta.core import optim, rotation
from ctta.core.device import deterministic, pinned, resolve, upload
from ctta.core.networks import Normalized, class_count, feature_width, find_head, pooled
from ctta.core.teacher import calibrate_gate
from ctta.data.datasets import find, open_stream
from ctta.data.stream import Rows, to_tensor
from ctta.training.augment import augment, draw_points
from ctta.training.recipe import Recipe, TrainingSettings

messages = logging.getLogger("ctta")

KIND = "training checkpoint"
MEASURED = 5000  # samples from which mean and standard deviation are measured
CALIBRATED = 1000  # samples from which the augmentation threshold is calibrated
CHUNK = 200  # samples loaded together when nothing is learned from them
PREFETCHED = 2  # batches


@dataclass(frozen=True)
class Epoch:
    """One line of the log."""

    epoch: int  # 1, 2, 3 ...
    lr: float  # at its end
    loss: float
    error: float  # percent, on the augmented training samples during the epoch
    test_error: float | None  # percent; None if this epoch was not tested
    seconds: float


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training is, after each batch."""

    done: int  # batches
    total: int
    loss: float  # of this batch
    ended: Epoch | None = None  # the epoch that this batch closes


def train(
    settings: TrainingSettings, out: Path | str, *, force: bool = False, checkpoint_seconds: float = 30.0
) -> Iterator[TrainingProgress]:
    """Train, write the weights and yield after every batch. After a stop or a kill, the same call resumes.

    Next to `out` there are a log with one line per epoch (.jsonl) and, until the end, the checkpoint (.checkpoint).
    """
    with locked(Path(out), file=True):
        yield from _train(settings, Path(out), force, checkpoint_seconds)


def _train(settings: TrainingSettings, out: Path, force: bool, checkpoint_seconds: float) -> Iterator[TrainingProgress]:
    checkpoint, log = out.with_suffix(".checkpoint"), out.with_suffix(".jsonl")
    for old in (out, checkpoint) if force else ():
        with writing(old):
            old.unlink(missing_ok=True)
    if out.exists():
        raise StateError(f"{out} exists already. Use --force to train it again, or give another name.")
    learner, saved = _resumed(settings, checkpoint), time.monotonic()
    for progress in learner.run():
        if progress.ended:
            write_atomically(log, "".join(json.dumps(line) + "\n" for line in learner.history).encode())
        if time.monotonic() - saved > checkpoint_seconds:
            write_tensors(checkpoint, KIND, learner.state())
            saved = time.monotonic()
        yield progress
    write_atomically(out, safetensors.torch.save(learner.weights(), learner.metadata()))
    with suppress(OSError):  # nobody needs it any more
        checkpoint.unlink()


def _resumed(settings: TrainingSettings, checkpoint: Path) -> Learner:
    """The training as its checkpoint has it; from the start if there is none, or a damaged one."""
    learner = Learner(settings)
    if not checkpoint.exists():
        return learner
    try:
        state = read_tensors(checkpoint, KIND)
        try:
            other = state["identity"] != settings.identity()
            if not other:
                learner.load(state)
        except Exception as error:  # its checksum fits, so somebody else made it
            raise StateError(f"{checkpoint} is no checkpoint of this training ({error!r}).") from error
    except StateError as error:
        messages.warning("%s The training begins again from its start.", error)
        return Learner(settings)
    if other:
        raise StateError(f"{checkpoint} is from a training with other settings. Use --force to start again.")
    return learner


class Learner:
    """Everything that changes while a model learns."""

    def __init__(self, settings: TrainingSettings) -> None:
        self.settings, self.recipe = settings, settings.train
        self.device = resolve(self.recipe.device)
        stream = open_stream(settings.data)
        self.test = open_stream(settings.test) if settings.test else None
        if len(stream.domains) > 1:
            names = ", ".join(domain.name for domain in stream.domains)
            raise ConfigError(f"Training needs one domain, and data has {len(stream.domains)} ({names}). Name one.")
        self.domain = stream.domains[0]
        order = _shuffled(len(self.domain), self.recipe.seed)
        self.held, self.rows = np.split(order, [round(self.recipe.holdout * len(order))])
        self.names = stream.classes
        self.batch = min(self.recipe.batch, len(self.rows))
        self.steps = len(self.rows) // self.batch  # per epoch; which few samples are left out differs between epochs
        self.total = self.recipe.epochs * self.steps
        if self.batch < 2:
            raise InputError(f"There are {len(self.rows)} samples to learn from; at least 2 are needed.")
        with Randomness(self.recipe.seed, 0, torch.device("cpu")).scoped():
            started = settings.model.build(settings.model.classes or len(self.names) or None)
        self.model = started.model if isinstance(started, Normalized) else started
        self.classes = settings.model.classes or class_count(self.model) or 0
        self.head = self.model.get_submodule(find_head(self.model, self.classes)) if self._rotates else None
        if self.head is not None:
            rotation.attach(self.head, feature_width(self.head))
        self.normalization = self._normalization(started)
        network = Normalized(self.model, *self.normalization) if self.normalization else self.model
        self.network = network.to(self.device)
        self.optimizer = _optimizer(self.network, self.recipe)
        self.step, self.loss, self.wrong = 0, 0.0, 0  # loss and errors are those since the start of the epoch
        self.history: list[dict[str, Any]] = []

    def run(self) -> Iterator[TrainingProgress]:
        """Train from the current step to the end."""
        with deterministic(self.device):
            while self.step < self.total:
                epoch = self.step // self.steps
                began = time.monotonic()
                for x, y in self._batches(epoch, self.step % self.steps):
                    loss = self._learn(x, y)
                    ended = None if self.step % self.steps else self._end(epoch, time.monotonic() - began)
                    yield TrainingProgress(self.step, self.total, loss, ended)

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume."""
        return {
            "identity": self.settings.identity(),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "place": {"step": self.step, "loss": self.loss, "wrong": self.wrong},
            "history": self.history,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state; one that does not fit is an error, and leaves a learner that is of no use."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, slots in self.optimizer.state.items():
            for name, value in slots.items():
                if problem := optim.problem_of_tensor(value, parameter):
                    raise StateError(f"The optimiser's {name} {problem}.")
        self.step, self.loss, self.wrong = (state["place"][name] for name in ("step", "loss", "wrong"))
        if not 0 <= self.step <= self.total:
            raise StateError(f"It is at step {self.step} of {self.total}.")
        self.history = list(state["history"])

    def weights(self) -> dict[str, Tensor]:
        """Return the model's own state, and its normalisation under the names that `ctta.models.load` knows."""
        # Clones: a module registered under two names has its tensors twice, and safetensors refuses shared tensors.
        found = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        if self.normalization:
            mean, std = map(torch.tensor, self.normalization)
            found |= {"normalize.mean": mean, "normalize.std": std}
        return found

    def metadata(self) -> dict[str, str]:
        """Describe model, data and training, for the header of the file."""
        settings, last = self.settings, self.history[-1]
        about = {
            "model": settings.model.factory or settings.model.name,
            "num_classes": self.classes,
            "classes": json.dumps(self.names if len(self.names) == self.classes else []),
            "data": find(settings.data).title,
            "samples": len(self.rows),
            "recipe": json.dumps(self.recipe.asdict()),
            "train_error": f"{last['error']:.2f}",
            "gate": f"{calibrate_gate(self.network, self._inputs(self.rows[:CALIBRATED])):.2f}",
            "ctta": ctta.__version__,
            "torch": torch.__version__,
            "date": datetime.now(UTC).date().isoformat(),
        }
        if last["test_error"] is not None:
            about["test_error"] = f"{last['test_error']:.2f}"
        return {key: str(value) for key, value in about.items()}

    def _learn(self, x: Tensor, y: Tensor) -> float:
        """Learn from one batch and return its loss; all randomness is a function of (seed, epoch, batch)."""
        epoch, number = divmod(self.step, self.steps)
        if int(y.min()) < 0 or int(y.max()) >= self.classes:
            raise InputError(
                f"Labels must be 0 to {self.classes - 1}, as the model has {self.classes} classes. Found "
                f"{int(y.min())} to {int(y.max())}. Set model.classes, or correct the labels."
            )
        random = Randomness(mix(self.recipe.seed, epoch + 1), number, self.device)
        x, y = upload(x, self.device), upload(y, self.device)
        if self.recipe.points is not None:
            x = draw_points(x, self.recipe.points, random)
        if self.recipe.augment != "none":
            x = augment(x, random, flip=self.recipe.augment == "standard")
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(self.step, self.total)
        self.network.train()
        narrow = self.recipe.precision == "autocast"
        with random.scoped(), torch.autocast(self.device.type, torch.bfloat16) if narrow else nullcontext():
            logits, penalty = self._regularized(x)
            if self._rotates:
                penalty = penalty + self._rotation_loss(x)
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

    @property
    def _rotates(self) -> bool:
        return self.recipe.auxiliary == "rotation"

    def _rotation_loss(self, x: Tensor) -> Tensor:
        """The loss of the second head, which sees the features that go into the first."""
        assert self.head is not None
        seen: list[Tensor] = []
        hook = self.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        try:
            self.network(rotation.quarter_turns(x))
        finally:
            hook.remove()
        second = self.head.get_submodule(rotation.NAME)
        assert isinstance(second, rotation.RotationHead)
        return second.loss(pooled(seen[-1], self.head))

    def _regularized(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, and the penalty that the network adds to the loss."""
        regularized: Any = getattr(self.model, "regularized", None)
        try:
            if regularized is None:
                return self.network(x), x.new_zeros(())
            logits, penalty = regularized(self.network.normalize(x) if isinstance(self.network, Normalized) else x)
        except (CttaError, MemoryError, torch.OutOfMemoryError):
            raise
        except (Exception, SystemExit) as error:  # a model is anybody's code
            raise ModelError(f"The model failed on a batch of shape {tuple(x.shape)}: {failure(error)}") from error
        return logits, penalty

    def _end(self, epoch: int, seconds: float) -> Epoch:
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
        """Return the test error in percent; None if there is nothing to test on."""
        batches = ((batch.x, batch.y) for batch in self.test) if self.test else self._load(_cut(self.held, CHUNK))
        self.network.eval()
        wrong = seen = 0
        for x, y in batches:
            wrong += int((self.network(upload(x, self.device)).argmax(1).cpu() != y).sum())
            seen += len(y)
        return 100 * wrong / seen if seen else None

    def _batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch, in its own random order."""
        order = _shuffled(len(self.rows), self.recipe.seed, epoch + 1)
        return self._load(_cut(self.rows[order], self.batch)[start : self.steps])

    def _load(self, parts: Sequence[Rows]) -> Iterator[tuple[Tensor, Tensor]]:
        def load(rows: Rows) -> tuple[Tensor, Tensor]:
            samples, labels = self.domain.load(rows)
            return pinned(to_tensor(samples), self.device), torch.from_numpy(labels.astype(np.int64))

        return (made for _, made in prefetch(load, parts, PREFETCHED))

    def _inputs(self, rows: Rows) -> Iterator[Tensor]:
        return (upload(x, self.device) for x, _ in self._load(_cut(rows, CHUNK)))

    def _normalization(self, started: nn.Module) -> tuple[list[float], list[float]] | None:
        """Return mean and std per channel: the network's own, given or measured; None for point clouds."""
        if isinstance(started, Normalized):
            return started.mean.flatten().tolist(), started.std.flatten().tolist()
        given = self.settings.model
        if given.mean is not None and given.std is not None:
            return list(given.mean), list(given.std)
        pixels, total, squares = 0, torch.zeros(1), torch.zeros(1)
        for x, _ in self._load(_cut(np.sort(self.rows[:MEASURED]), CHUNK)):
            if x.dim() != 4:
                return None
            pixels += len(x) * x.shape[2] * x.shape[3]
            total = total + x.double().sum((0, 2, 3))
            squares = squares + x.double().square().sum((0, 2, 3))
        mean = total / pixels
        std = (squares / pixels - mean**2).clamp(min=1e-6).sqrt()
        return [round(value, 4) for value in mean.tolist()], [round(value, 4) for value in std.tolist()]


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return SGD without weight decay on norm layers and biases, whose parameters are vectors."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=True)


def _shuffled(count: int, *seeds: int) -> Rows:
    return torch.randperm(count, generator=torch.Generator().manual_seed(mix(*seeds))).numpy()


def _cut(rows: Rows, size: int) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
