"""AugMix's views: each operation against Pillow, and the mixture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ctta.base.randomness import Randomness
from ctta.core.views import AugMixViews, CropViews, augmix

IMAGES = torch.randint(20, 230, (6, 3, 32, 32), generator=torch.Generator().manual_seed(0))
IMAGES[3, 1] = 77  # one value only
IMAGES[4] = (IMAGES[4] // 60) * 60
FLOAT = IMAGES / 255


def pillow(change) -> Tensor:
    pictures = [Image.fromarray(image.permute(1, 2, 0).to(torch.uint8).numpy()) for image in IMAGES]
    return torch.stack([torch.from_numpy(np.array(change(picture))).permute(2, 0, 1) for picture in pictures])


def grey_values(x: Tensor) -> Tensor:
    return (x * 255).round().long()


def random(seed=0):
    return Randomness(seed, 0, torch.device("cpu"))


@pytest.mark.parametrize(
    ("ours", "theirs", "off"),
    [
        (augmix.autocontrast, ImageOps.autocontrast, 1),
        (augmix.equalize, ImageOps.equalize, 0),
        (augmix.posterize, lambda picture: ImageOps.posterize(picture, 4), 0),
        (augmix.solarize, lambda picture: ImageOps.solarize(picture, 256 - 23), 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_operations_on_values_are_pillow_s(ours, theirs, off):
    found = grey_values(ours(FLOAT, torch.full((6,), -0.9)))
    assert (found - pillow(theirs)).abs().max() <= off


@pytest.mark.parametrize(
    ("ours", "entries"),
    [
        (augmix.translate_x, (1, 0, 1, 0, 1, 0)),
        (augmix.translate_y, (1, 0, 0, 0, 1, 1)),
        (augmix.shear_x, (1, 0.03, -0.03 * 16, 0, 1, 0)),
        (augmix.shear_y, (1, 0, 0, 0.03, 1, -0.03 * 16)),
    ],
)
def test_maps_move_pixels_as_pillow_does(ours, entries):
    """Shears are about the middle, where Pillow's are about the corner; the inside is compared."""
    found = grey_values(ours(FLOAT, torch.ones(6)))[:, :, 3:-3, 3:-3]
    moved = pillow(lambda picture: picture.transform((32, 32), Image.AFFINE, entries, resample=Image.BILINEAR))
    assert (found - moved[:, :, 3:-3, 3:-3]).abs().max() <= 2


def test_rotation_turns_about_the_middle():
    found = grey_values(augmix.rotate(FLOAT, torch.full((6,), 0.9)))[:, :, 4:-4, 4:-4]
    turned = [pillow(lambda p, way=way: p.rotate(2 * way, resample=Image.BILINEAR)) for way in (1, -1)]
    assert min((found - one[:, :, 4:-4, 4:-4]).abs().max() for one in turned) <= 2
    assert torch.equal(augmix.rotate(FLOAT, torch.full((6,), 0.3)), augmix.mapped(FLOAT, *identity()))


def identity():
    one, nothing = torch.ones(6), torch.zeros(6)
    return one, nothing, nothing, nothing, one, nothing


def test_crops_are_parts_of_the_padded_image():
    x = FLOAT[:1] + 0.01
    found = CropViews()(x.expand(40, -1, -1, -1), random())
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    windows = padded.unfold(2, 32, 1).unfold(3, 32, 1)[0].permute(1, 2, 0, 3, 4).flatten(0, 1)
    windows = torch.cat([windows, windows.flip(-1)])
    assert all((windows == crop).flatten(1).all(1).any() for crop in found)
    assert len({crop.sum().item() for crop in found}) > 20


def test_views_are_mixtures_within_range_and_differ():
    views = AugMixViews()(FLOAT[:1].expand(32, -1, -1, -1), random())
    assert views.shape == (32, 3, 32, 32)
    assert views.min() >= -1e-6
    assert views.max() <= 1 + 1e-6
    assert len({view.sum().item() for view in views}) == 32
    again = AugMixViews()(FLOAT[:1].expand(32, -1, -1, -1), random())
    assert torch.equal(views, again)
    assert not torch.equal(views, AugMixViews()(FLOAT[:1].expand(32, -1, -1, -1), random(1)))
