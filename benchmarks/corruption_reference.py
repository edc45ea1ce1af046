"""Compare our corruptions with statistics of the public generator.

    python -m benchmarks.corruption_reference --data ../shared/data

The reference holds, per preset, corruption and severity, five statistics of real images corrupted by the public
generator. Ours are averaged over ten seeds. The results are `corruptions_vs_public.csv`, and a JSON file of the same
name with the versions it was made with.

A row is `within` if it agrees to 10 % (frost: 25 %, because its textures are ours). On the twelve large images it may
also differ by two standard errors: the reference is a single draw, so its error is the spread of one seed. The public
numbers are rounded to four digits; half of the last digit is always allowed.
"""

from __future__ import annotations

import argparse
import csv
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import scipy
from numpy.typing import NDArray
from PIL import Image

from benchmarks.origin import origin
from ctta.data.corruptions import NAMES, PRESETS, SEVERITIES, corrupt

SEEDS = 10
STATISTICS = ("mean_r", "mean_g", "mean_b", "std", "change", "grad_x", "grad_y")
COLUMNS = ("preset", "corruption", "severity", "statistic", "public", "ours", "spread", "ratio", "within")
ROUNDING = 0.00005
Images = NDArray[np.uint8]


def load(data: Path, preset: str, count: int) -> Images:
    """The first images of the set that the reference was made from."""
    if preset == "cifar":
        with np.load(data / "cifar10_test_first5000.npz") as archive:
            return np.asarray(archive["images"][:count])
    paths = sorted((data / "imagenet_samples").glob("*/*.JPEG"))[:count]
    return np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])


def statistics(images: Images, clean: Images) -> NDArray[np.float64]:
    """Channel means, standard deviation, mean absolute change, mean absolute horizontal and vertical gradient."""
    x = images.astype(np.float64) / 255
    change = np.abs(images.astype(np.int16) - clean.astype(np.int16)).mean() / 255
    gradients = [np.abs(np.diff(x, axis=axis)).mean() for axis in (2, 1)]
    return np.array([*x.mean(axis=(0, 1, 2)), x.std(), change, *gradients])


def published(entry: dict[str, Any]) -> list[float]:
    """The statistics of one entry of the reference, in the order of STATISTICS."""
    return [*entry["mean"], entry["std"], entry["change"], entry["grad_x"], entry["grad_y"]]


def agrees(preset: str, name: str, public: float, ours: float, spread: float) -> bool:
    """Whether our number is close enough to the public one."""
    tolerance = (0.25 if name == "frost" else 0.10) * public + ROUNDING
    if preset == "imagenet":
        tolerance = max(tolerance, 2 * spread + ROUNDING)
    return abs(ours - public) <= tolerance


def compare(data: Path, names: tuple[str, ...] = NAMES, seeds: int = SEEDS) -> list[dict[str, Any]]:
    """Give one row per preset, corruption, severity and statistic."""
    reference = json.loads((data / "corruption_reference.json").read_text())
    rows = []
    for preset in PRESETS:
        clean = load(data, preset, reference[preset]["images"])
        for name in names:
            for severity in SEVERITIES:
                draws = np.array(
                    [statistics(corrupt(clean, name, severity, preset, seed), clean) for seed in range(seeds)]
                )
                ours, spread = draws.mean(axis=0), draws.std(axis=0, ddof=1)
                entry = published(reference[preset][name][str(severity)])
                for statistic, public, value, error in zip(STATISTICS, entry, ours, spread, strict=True):
                    rows.append(
                        {
                            "preset": preset,
                            "corruption": name,
                            "severity": severity,
                            "statistic": statistic,
                            "public": public,
                            "ours": f"{value:.5f}",
                            "spread": f"{error:.5f}",
                            "ratio": f"{value / public:.4f}",
                            "within": "yes" if agrees(preset, name, public, value, error) else "no",
                        }
                    )
    return rows


def main() -> None:
    """Write the table and how it was made; print the rows that do not agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder with corruption_reference.json"
    )
    parser.add_argument("--out", type=Path, default=Path("results/corruptions_vs_public.csv"), help="CSV file to write")
    arguments = parser.parse_args()
    rows = compare(arguments.data)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    reference = (arguments.data / "corruption_reference.json").read_bytes()
    stamp = {
        **origin({"reference": sha256(reference).hexdigest()[:16]}, range(SEEDS)),
        "versions": {"scipy": scipy.__version__, "pillow": PIL.__version__},
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(stamp, indent=2) + "\n")
    apart = [row for row in rows if row["within"] == "no"]
    print(f"{len(rows)} rows, {len(apart)} of them not within the tolerance")
    for row in apart:
        print(*(row[column] for column in COLUMNS))


if __name__ == "__main__":
    main()
