"""Your own labelled images in arrays, clean or corrupted on the fly: an .npz, or a CIFAR test set as published.

images    uint8 (N, H, W, 3)
labels    (N,), whole numbers from 0
classes   names of the classes (optional)
"""

from __future__ import annotations

from ctta.base.errors import InputError
from ctta.data.clean import CIFAR_FILES, read_clean_images
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data, DataSet
from ctta.data.stream import Stream


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    path = data.folder
    if path.is_dir() and not any((path / name).is_file() for name in CIFAR_FILES):
        raise InputError(
            f"{path} is a folder without a CIFAR test set (test_batch, or test). Give {ABOUT} A folder of pictures is "
            "the data set 'image_folder'."
        )
    clean = read_clean_images(path)
    if clean.labels is None:
        raise InputError(f"{path} has no labels: save it with np.savez(path, images=..., labels=...).")
    low, high = int(clean.labels.min()), int(clean.labels.max())
    if low < 0 or (clean.classes and high >= len(clean.classes)):
        expected = f"0 to {len(clean.classes) - 1}, one of its classes" if clean.classes else "0 or more"
        raise InputError(f"The labels in {path} must be {expected}. They go from {low} to {high}.")
    return corrupted_stream(clean.images, clean.labels, domains, data, clean.classes, clean.identity)


ABOUT = "an .npz with 'images', uint8 (N, H, W, 3), and 'labels', or the folder of CIFAR-10 or CIFAR-100 for Python."
ARRAYS = DataSet("own arrays", ABOUT, _open)
