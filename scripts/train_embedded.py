"""Make what `src/ctta/assets` ships: the Fashion-MNIST test set and a small ResNet trained on the training set.

    apt-get install dataset-fashion-mnist
    python scripts/train_embedded.py                  # trains on all 60,000 images and writes the weights
    python scripts/train_embedded.py --holdout 5000   # trains on the first 55,000, prints the error on the rest

Settings are chosen with `--holdout`; the test error is measured only at the end, on the model that is shipped.

The recipe is plain on purpose. Flips and small rotations, scalings and shifts are the only augmentation: the source
model must not have seen a corruption. Half of the images are moved, because all of Fashion-MNIST is upright and
centred: a model that has seen nothing else takes a rotated image for a corrupted one, and test-time augmentation
rotates images. There is no label smoothing: it flattens the confidence on which adaptation methods rely. The saved
weights are an exponential moving average, with BatchNorm statistics computed again over the training images. The
augmentation threshold ("gate") is calibrated on the last 5,000 training images.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from ctta import calibrate_gate
from ctta.models.small_resnet import SmallResNet

ASSETS = Path(__file__).resolve().parents[1] / "src" / "ctta" / "assets"
TEST_SET = ASSETS / "fashion_mnist_test.npz"
WEIGHTS = ASSETS / "fashion_resnet.safetensors"
CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
BATCH, PEAK_LR, WEIGHT_DECAY, EMA_DECAY = 128, 0.1, 5e-4, 0.998
SHIFT, TURN, SCALE = 3, 12.0, 0.1  # pixels, degrees, fraction; in either direction


def read_idx(path: Path) -> np.ndarray:
    """Read an array of bytes from an idx file, gzipped or not."""
    path = path if path.exists() else path.with_name(path.name + ".gz")
    if not path.exists():
        raise SystemExit(f"{path} is missing. Install Debian's dataset-fashion-mnist, or give the folder with --data.")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if raw[:3] != b"\x00\x00\x08":
        raise SystemExit(f"{path} is not an idx file of bytes.")
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def write_test_set(data: Path) -> None:
    """Write the test set, 28x28 as published."""
    images, labels = read_idx(data / "t10k-images-idx3-ubyte"), read_idx(data / "t10k-labels-idx1-ubyte")
    np.savez_compressed(TEST_SET, images=images, labels=labels, classes=np.array(CLASSES))


def as_input(images: Tensor) -> Tensor:
    """Convert bytes (N, 32, 32) to model input (N, 3, 32, 32) in [0, 1]."""
    x = (images.float() / 255)[:, None].expand(-1, 3, -1, -1)
    return x.contiguous(memory_format=torch.channels_last)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip half of the images; rotate, scale and shift half of them a little. Bytes (N, 32, 32) in and out."""
    n = len(images)
    draw = torch.rand(6, n, generator=generator)
    still = draw[0] < 0.5
    angle = torch.where(still, 0.0, (2 * draw[1] - 1) * math.radians(TURN))
    scale = torch.where(still, 1.0, 1 + (2 * draw[2] - 1) * SCALE)
    shift = torch.where(still, 0.0, (2 * draw[3:5] - 1) * (SHIFT / 16))  # in halves of the image
    flip = torch.where(draw[5] < 0.5, -1.0, 1.0)
    cos, sin = angle.cos() / scale, angle.sin() / scale
    matrix = torch.stack([cos * flip, -sin, shift[0], sin * flip, cos, shift[1]], 1).view(n, 2, 3)
    grid = F.affine_grid(matrix, [n, 1, 32, 32], align_corners=False)
    moved = F.grid_sample(images.float()[:, None], grid, align_corners=False)[:, 0]
    return moved.round().to(torch.uint8)


def inputs(images: Tensor, size: int = 500) -> Iterator[Tensor]:
    """Yield all images in order, as model inputs."""
    return (as_input(part) for part in images.split(size))


@torch.no_grad()
def wrong(model: SmallResNet, images: Tensor, labels: Tensor) -> Tensor:
    """Return which images the model gets wrong, (N,) of bools."""
    model.eval()
    return torch.cat([model(x).argmax(1) for x in inputs(images)]) != labels


def train(images: Tensor, labels: Tensor, epochs: int, seed: int) -> SmallResNet:
    """Train by SGD with Nesterov momentum, a short warm-up, then a cosine to zero."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = SmallResNet().to(memory_format=torch.channels_last)
    pixels = images.float() / 255
    model.mean.fill_(pixels.mean())
    model.std.fill_(pixels.std())
    # BatchNorm scales and all biases are vectors: no weight decay.
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1]},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=PEAK_LR, momentum=0.9, nesterov=True, weight_decay=WEIGHT_DECAY)
    steps = epochs * (len(images) // BATCH)
    warmup = steps // 10

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(EMA_DECAY))
    began = time.perf_counter()
    for epoch in range(epochs):
        model.train()
        total, right = 0.0, 0
        batches = torch.randperm(len(images), generator=generator).split(BATCH)[: steps // epochs]
        for index in batches:
            x, y = as_input(augment(images[index], generator)), labels[index]
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            average.update_parameters(model)
            total += loss.item()
            right += int((logits.argmax(1) == y).sum())
        seconds = time.perf_counter() - began
        error = 100 * (1 - right / (len(batches) * BATCH))
        print(
            f"epoch {epoch + 1}/{epochs}  loss {total / len(batches):.4f}  error {error:.2f} %  {seconds:.0f} s",
            flush=True,
        )
    update_bn(inputs(images), average)
    return average.module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"), metavar="DIR")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--holdout", type=int, default=0, metavar="N", help="validate on the last N training images")
    args = parser.parse_args()

    images = F.pad(torch.tensor(read_idx(args.data / "train-images-idx3-ubyte")), [2] * 4)  # (60000, 32, 32)
    labels = torch.tensor(read_idx(args.data / "train-labels-idx1-ubyte")).long()
    if args.holdout:
        model = train(images[: -args.holdout], labels[: -args.holdout], args.epochs, args.seed)
        error = wrong(model, images[-args.holdout :], labels[-args.holdout :]).double().mean()
        print(f"validation error {100 * error:.2f} %")
        return
    model = train(images, labels, args.epochs, args.seed)

    if not TEST_SET.exists():
        write_test_set(args.data)
    with np.load(TEST_SET) as test:
        mistakes = wrong(model, F.pad(torch.tensor(test["images"]), [2] * 4), torch.tensor(test["labels"]).long())
    metadata = {
        "data": "Fashion-MNIST, 60,000 training images",
        "test_error": f"{100 * mistakes.double().mean():.2f}",
        "test_error_first_2000": f"{100 * mistakes[:2000].double().mean():.2f}",
        "gate": f"{calibrate_gate(model, inputs(images[-5000:])):.2f}",
        "epochs": str(args.epochs),
        "seed": str(args.seed),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(state, WEIGHTS, metadata)
    print(json.dumps(metadata, indent=2))


if __name__ == "__main__":
    main()
