"""Train the small PointNet that `src/ctta/assets` ships, on generated solids. No data are needed.

    python scripts/train_embedded_clouds.py

The recipe is plain on purpose. Small rotations, scalings and shifts are the only augmentation, and half of the point
clouds are not augmented: the source model must not have seen a corruption, but test-time augmentation rotates and moves
point clouds. Each step uses half of the points, to save time. The saved weights are an exponential moving average, with
BatchNorm statistics computed again over whole training point clouds. The augmentation threshold ("gate") is calibrated
on solids of another seed, which are neither trained on nor reported.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from ctta import calibrate_gate
from ctta.base.randomness import Randomness
from ctta.core.views import CloudViews
from ctta.data.datasets.embedded_clouds import COUNT, SOLIDS, TEST_SEED, solids
from ctta.models.small_pointnet import SmallPointNet

WEIGHTS = Path(__file__).resolve().parents[1] / "src" / "ctta" / "assets" / "solids_pointnet.safetensors"
TRAIN_SEED, GATE_SEED = 0, 2
BATCH, PEAK_LR, WEIGHT_DECAY, EMA_DECAY = 48, 3e-3, 1e-4, 0.995
VIEWS = CloudViews("sample", scale=0.1)


def clouds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    points, labels = solids(count, seed)
    return torch.from_numpy(points), torch.from_numpy(labels)


def augment(x: Tensor, random: Randomness) -> Tensor:
    """Take half of the points; rotate, scale and shift half of the point clouds a little."""
    x = x[:, torch.randperm(x.shape[1])[: x.shape[1] // 2]]
    still = random.uniform(0, 1, len(x)) < 0.5
    return torch.where(still[:, None, None], x, VIEWS(x, random))


def train(x: Tensor, y: Tensor, epochs: int, seed: int) -> nn.Module:
    """Train by AdamW with one cycle of the learning rate."""
    torch.manual_seed(seed)
    model = SmallPointNet(len(SOLIDS))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    steps = epochs * (len(x) // BATCH)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LR, total_steps=steps, cycle_momentum=False)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(EMA_DECAY))
    began, step = time.perf_counter(), 0
    for epoch in range(epochs):
        wrong = 0
        for index in torch.randperm(len(x)).split(BATCH):
            logits = model(augment(x[index], Randomness(seed, step, x.device)))
            loss = F.cross_entropy(logits, y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            average.update_parameters(model)
            wrong += int((logits.argmax(1) != y[index]).sum())
            step += 1
        seconds = time.perf_counter() - began
        print(f"epoch {epoch + 1}/{epochs}  error {100 * wrong / len(x):.2f} %  {seconds:.0f} s", flush=True)
    update_bn(x.split(BATCH), average)
    trained: nn.Module = average.module.eval()
    return trained


@torch.no_grad()
def error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the error in percent."""
    predictions = torch.cat([model(part).argmax(1) for part in x.split(BATCH)])
    return 100 * (predictions != y).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clouds", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    model = train(*clouds(args.clouds, TRAIN_SEED), args.epochs, args.seed)
    held, _ = clouds(COUNT, GATE_SEED)
    metadata = {
        "data": f"{args.clouds} generated solids, seed {TRAIN_SEED}",
        "test_error": f"{error(model, *clouds(COUNT, TEST_SEED)):.2f}",
        "gate": f"{calibrate_gate(model, held.split(BATCH)):.2f}",
        "epochs": str(args.epochs),
        "seed": str(args.seed),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, WEIGHTS, metadata)
    print(json.dumps(metadata, indent=2))


if __name__ == "__main__":
    main()
