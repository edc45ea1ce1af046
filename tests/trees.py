"""Small folders of pictures in the public layouts."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ctta.base.errors import InputError
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.folders import wnids

WNIDS = (wnids()[1], wnids()[7], wnids()[999])


def picture(seed, height=224, width=224):
    """Make a picture of smooth noise, which JPEG keeps; each seed gives another one."""
    coarse = np.random.default_rng(seed).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def write_classes(root, classes=WNIDS, each=4, size=(224, 224), suffix=".JPEG", offset=0):
    """Write <root>/<class>/<class>_<i>.JPEG."""
    for c, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            picture(1000 * offset + 10 * c + i, *size).save(root / name / f"{name}_{i}{suffix}")
    return root


def truncate(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def opened(path, dataset="image_folder", **changes):
    return open_stream(Data(**{"dataset": dataset, "path": str(path), "domains": ("fog",), "batch": 5} | changes))


def picture_names(stream, position=0):
    """Return the pictures of a domain that is not corrupted on the fly."""
    return stream.domains[position].read.__self__.names


def refusal(path, dataset="image_folder", **changes):
    with pytest.raises(InputError) as caught:
        list(opened(path, dataset, **changes))
    return str(caught.value)
