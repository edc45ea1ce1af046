"""One augmented view of CoTTA as torchvision makes it and as ours: the same pixels, the same error?

    python -m benchmarks.torchvision_views experiments/cifar10_resnet20.yaml --set data.path=... --set model.weights=...
        --set "data.domains=[gaussian_noise]" --set data.images=5000 --set data.batch=200 --out views.json

Part by part with the same draws: the largest difference of a pixel, and how many predictions change. Then the whole
view with draws of its own for each side, as the released code composes it: the error of a network with batch
statistics, its mean over views, and the standard error of the difference over batches. `--cotta SEED` compares CoTTA
itself instead, adapting along the stream: the reference with torchvision's views, and ours. Needs torchvision.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision import transforms
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from benchmarks.origin import hashes, origin
from benchmarks.reference_cotta import ReferenceCoTTA, with_batch_statistics
from benchmarks.reference_views import KINDS, NOISE, ViewParameters, draw_parameters
from ctta import CoTTA
from ctta.base.randomness import Randomness
from ctta.core.views import ImageViews, images
from ctta.data.datasets import open_stream
from ctta.experiments import experiment

THEIRS, OURS = "torchvision", "ours"
View = Callable[[Tensor, ViewParameters], Tensor]
JITTERS = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue, tv.adjust_gamma)


def their_jitter(x: Tensor, drawn: ViewParameters) -> Tensor:
    for kind in drawn.order:
        x = JITTERS[kind](x, drawn.factors[kind])
    return x


def our_jitter(x: Tensor, drawn: ViewParameters) -> Tensor:
    for kind in drawn.order:
        x = images.JITTERS[kind](x, torch.tensor(drawn.factors[kind], dtype=x.dtype))
    return x


def their_geometry(x: Tensor, drawn: ViewParameters) -> Tensor:
    height, width = x.shape[2:]
    x = tv.pad(x, [width // 2, height // 2], padding_mode="edge")
    degrees, bilinear = math.degrees(drawn.angle), InterpolationMode.BILINEAR
    x = tv.affine(x, degrees, list(drawn.shift), drawn.scale, [0.0, 0.0], bilinear, [0.0] * x.shape[1])
    x = tv.center_crop(tv.gaussian_blur(x, [5, 5], [drawn.sigma] * 2), [height, width])
    return tv.hflip(x) if drawn.flip else x


def our_geometry(x: Tensor, drawn: ViewParameters) -> Tensor:
    numbers = (torch.tensor([value]) for value in (drawn.angle, drawn.shift, drawn.scale, drawn.flip))
    grid = images.sampling_grid(*numbers, *x.shape[2:]).to(x).expand(len(x), -1, -1, -1)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    return images.blur(x, torch.tensor([drawn.sigma], dtype=x.dtype))


def only(drawn: ViewParameters, part: str) -> ViewParameters:
    """What was drawn of one part alone; the others do nothing."""
    if part in KINDS:
        kind = KINDS.index(part)
        return ViewParameters(order=(kind,), factors=drawn.factors)
    kept = ("shift", "scale", "angle", "flip") if part == "affine" else ("sigma",)
    return ViewParameters(order=(), **{name: getattr(drawn, name) for name in kept})


def released() -> transforms.Compose:
    """The pipeline with torchvision's own draws; its parts and ranges are those that the authors published."""

    def jitter(x: Tensor) -> Tensor:
        ranges = (images.BRIGHTNESS, images.CONTRAST, images.SATURATION, images.HUE, images.GAMMA)
        for kind in torch.randperm(5).tolist():
            x = JITTERS[kind](x, float(torch.empty(1).uniform_(*ranges[kind])))
        return x

    return transforms.Compose(
        [
            lambda x: x.clamp(0, 1),
            jitter,
            transforms.Pad(16, padding_mode="edge"),
            transforms.RandomAffine(
                [-15, 15], (1 / 16, 1 / 16), (0.9, 1.1), interpolation=InterpolationMode.BILINEAR, fill=0
            ),
            transforms.GaussianBlur(5, [0.001, 0.5]),
            transforms.CenterCrop(32),
            transforms.RandomHorizontalFlip(0.5),
            lambda x: (x + NOISE * torch.randn_like(x)).clamp(0, 1),
        ]
    )


def same_draws(batches: list[tuple[Tensor, Tensor]], network: nn.Module) -> dict[str, Any]:
    """By part and for all of them: largest and mean difference of pixels, both errors in %, changed predictions."""

    def whole(jitter: View, geometry: View) -> View:
        return lambda x, drawn: geometry(jitter(x, drawn), drawn)

    theirs, ours = whole(their_jitter, their_geometry), whole(our_jitter, our_geometry)
    found: dict[str, Any] = {}
    for part in (*KINDS, "affine", "blur", "all"):
        source = random.Random(0)
        largest = total = changed = missed = our_missed = seen = 0.0
        for x, y in batches:
            drawn = draw_parameters(*x.shape[2:], source)
            drawn = drawn if part == "all" else only(drawn, part)
            one, other = theirs(x, drawn), ours(x, drawn)
            gap = (one - other).abs()
            largest, total = max(largest, float(gap.max())), total + float(gap.mean())
            said, our_said = network(one).argmax(1), network(other).argmax(1)
            changed += int((said != our_said).sum())
            missed += int((said != y).sum())
            our_missed += int((our_said != y).sum())
            seen += len(y)
        found[part] = {
            "largest": largest,
            "mean": total / len(batches),
            f"error, {THEIRS}": round(100 * missed / seen, 2),
            f"error, {OURS}": round(100 * our_missed / seen, 2),
            "predictions changed, %": round(100 * changed / seen, 3),
            "views": int(seen),
        }
        print(part, found[part], flush=True)
    return found


def own_draws(batches: list[tuple[Tensor, Tensor]], network: nn.Module, draws: int) -> dict[str, Any]:
    """The error in % of a single view with draws of each side's own, and what lies between them."""
    torch.manual_seed(0)
    theirs, ours = released(), ImageViews("batch")
    errors: dict[str, list[float]] = {THEIRS: [], OURS: []}
    for number, (x, y) in enumerate(batches):
        views = {
            THEIRS: (theirs(x) for _ in range(draws)),
            OURS: (ours(x, Randomness(draw, number, x.device)) for draw in range(draws)),
        }
        for side, made in views.items():
            errors[side].append(fmean(wrong(network(view), y) for view in made))
    return {**summary(errors), "views": draws * sum(len(y) for _, y in batches), "draws": draws * len(batches)}


def along_the_stream(batches: list[tuple[Tensor, Tensor]], model: nn.Module, seed: int) -> dict[str, Any]:
    """The error in % of CoTTA with torchvision's views and of ours."""
    torch.manual_seed(seed)
    adapters = {THEIRS: ReferenceCoTTA(model, view=released()), OURS: CoTTA(model, preset="cifar10", seed=seed)}
    errors: dict[str, list[float]] = {THEIRS: [], OURS: []}
    for x, y in batches:
        for side, adapter in adapters.items():
            errors[side].append(wrong(adapter(x), y))
    return {**summary(errors), "seed": seed}


def wrong(logits: Tensor, y: Tensor) -> float:
    return 100 * float((logits.argmax(1) != y).float().mean())


def summary(errors: dict[str, list[float]]) -> dict[str, Any]:
    """Means over batches, and their difference with its standard error."""
    gaps = [own - other for own, other in zip(errors[OURS], errors[THEIRS], strict=True)]
    return {
        **{f"error, {side}": round(fmean(values), 2) for side, values in errors.items()},
        "difference": round(fmean(gaps), 2),
        "standard error": round(stdev(gaps) / math.sqrt(len(gaps)), 2),
        "batches": len(gaps),
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torchvision_views", description=__doc__)
    parser.add_argument("experiment", type=Path, help="YAML file with the sections data and model")
    parser.add_argument("--set", action="append", default=[], dest="change", metavar="KEY=VALUE")
    parser.add_argument("--draws", type=int, default=12, help="views per batch with draws of each side's own")
    parser.add_argument("--same", type=int, default=20, help="batches, 1 or more, for the same draws")
    parser.add_argument("--cotta", type=int, metavar="SEED", help="compare CoTTA instead")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    found = experiment.load(given.experiment, given.change)
    batches = [(batch.x, batch.y) for batch in open_stream(found.data, found.protocol)]
    model = found.model.load()
    if given.cotta is not None:
        result = {"CoTTA": along_the_stream(batches, model, given.cotta)}
    else:
        with torch.no_grad():
            network = with_batch_statistics(model)
            result = {"same draws": same_draws(batches[: given.same], network)}
            result["own draws"] = own_draws(batches, network, given.draws)
    print(result)
    given.out.write_text(json.dumps({**origin(hashes(found.data, model)), **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
