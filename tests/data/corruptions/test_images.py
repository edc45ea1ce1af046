"""Image corruptions: shapes, seeds, errors, oracles, and agreement with the public generator."""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.ndimage import zoom as spline_zoom
from skimage.color import hsv2rgb, rgb2hsv
from skimage.filters import gaussian
from skimage.util import random_noise

from ctta.base.errors import CttaError
from ctta.data.corruptions import EXTRA, NAMES, PAPER, PRESETS, SEVERITIES, corrupt, images
from ctta.data.corruptions.edges import blur_box, canny, chamfer_distance, correlate_uint8, equalise, fold
from ctta.data.corruptions.frost import drawn_textures
from needs import DATA

ROOT = Path(__file__).resolve().parents[3]
needs_data = pytest.mark.skipif(
    not (DATA / "corruption_reference.json").exists(),
    reason="needs the shared data: set CTTA_DATA to the folder with corruption_reference.json",
)


def pictures(count=3, height=32, width=32, seed=0):
    """Smooth colour pictures that use the whole range, with some black and some white."""
    noise = np.random.default_rng(seed).standard_normal((count, height, width, 3))
    x = gaussian_filter(noise, (0, 2, 2, 0)) * 500 + 128
    return np.clip(x, 0, 255).astype(np.uint8)


def constants(name, severity, preset):
    return images.CONSTANTS[name][preset][severity - 1]


def every(*names):
    """All severities of both presets."""
    cases = [(name, preset, severity) for name in names for preset in PRESETS for severity in SEVERITIES]
    return pytest.mark.parametrize(("name", "preset", "severity"), cases)


def assert_one_grey_level(ours, oracle):
    """`oracle` holds reals in [0, 1] or uint8."""
    if oracle.dtype != np.uint8:
        oracle = (np.clip(oracle, 0, 1) * 255).astype(np.uint8)
    assert np.abs(ours.astype(int) - oracle).max() <= 1


# What every corruption must honour.


def test_the_names_are_the_fifteen_and_the_four():
    assert len(PAPER) == 15
    assert len(EXTRA) == 4
    assert NAMES == PAPER + EXTRA
    assert tuple(images.CORRUPTIONS) == NAMES == tuple(images.CONSTANTS)
    assert all(images.CORRUPTIONS[name].__name__ == name for name in NAMES)


def test_every_table_has_five_severities_a_preset():
    for name in NAMES:
        assert tuple(images.CONSTANTS[name]) == PRESETS
        assert all(len(images.CONSTANTS[name][preset]) == len(SEVERITIES) for preset in PRESETS)


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (33, 47), (64, 64), (224, 224)])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_shape_and_type_are_kept_at_any_size(name, preset, size):
    x = pictures(2 if size[0] < 224 else 1, *size)
    before = x.copy()
    for severity in SEVERITIES if size[0] < 64 else (1, 5):
        y = corrupt(x, name, severity, preset)
        assert y.dtype == np.uint8
        assert y.shape == x.shape
        assert not np.array_equal(x, y)
        assert not np.shares_memory(x, y)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_an_image_does_not_depend_on_its_batch(name, preset, monkeypatch):
    x = pictures(11, 33, 29)
    whole = corrupt(x, name, 5, preset, seed=3, first=40)
    pieces = [corrupt(x[a:b], name, 5, preset, seed=3, first=40 + a) for a, b in ((0, 1), (1, 4), (4, 11))]
    assert np.array_equal(whole, np.concatenate(pieces))
    for chunk, threads in ((1, 3), (4000, 2), (2**20, 1)):
        monkeypatch.setattr(images, "CHUNK", chunk)
        monkeypatch.setattr(images, "THREADS", threads)
        assert np.array_equal(whole, corrupt(x, name, 5, preset, seed=3, first=40))


FIXED = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
FIXED += ("gaussian_blur", "saturate")


@pytest.mark.parametrize("name", NAMES)
def test_seed_and_index_decide_the_draws(name):
    x = np.repeat(pictures(1), 2, axis=0)
    y = corrupt(x, name)
    assert np.array_equal(y, corrupt(x, name, seed=0))
    changes = not np.array_equal(y, corrupt(x, name, seed=1)) and not np.array_equal(y[0], y[1])
    assert changes == (name not in FIXED)


def test_the_global_generator_is_left_alone():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    for name in NAMES:
        corrupt(pictures(1), name)
    assert np.random.random() == expected  # noqa: NPY002


def test_no_images_give_no_images():
    assert corrupt(np.zeros((0, 32, 32, 3), np.uint8), "fog").shape == (0, 32, 32, 3)


def test_a_view_that_is_not_contiguous_works():
    x = pictures(4, 40, 40)
    assert np.array_equal(corrupt(x[::2, ::-1], "snow"), corrupt(x[::2, ::-1].copy(), "snow"))


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("name", NAMES)
def test_black_and_white_images_work(name, level):
    x = np.full((2, 32, 32, 3), level, np.uint8)
    for severity in SEVERITIES:
        assert corrupt(x, name, severity).shape == x.shape


# Severity is an order where one constant alone grows.
MONOTONE = ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "zoom_blur", "brightness")
MONOTONE += ("contrast", "pixelate", "jpeg_compression", "speckle_noise", "gaussian_blur")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", MONOTONE)
def test_more_severity_is_more_change(name, preset):
    x = pictures(24, 64, 64)
    change = [np.abs(corrupt(x, name, s, preset).astype(int) - x).mean() for s in SEVERITIES]
    assert all(low < high for low, high in pairwise(change)), change


# Errors.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "foq"}, "Did you mean 'fog'"),
        ({"name": "gausian_noise"}, "Did you mean 'gaussian_noise'"),
        ({"name": None}, "No corruption is called None"),
        ({"severity": 0}, "must be one of 1, 2, 3, 4, 5. Got 0"),
        ({"severity": 2.5}, "Got 2.5"),
        ({"severity": True}, "Got True"),
        ({"preset": "imagnet"}, "Did you mean 'imagenet'"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
        ({"first": -2}, "`first` must be a whole number of at least 0"),
        ({"images": [[1]]}, "Got list instead"),
        ({"images": np.zeros((1, 32, 32, 3), np.float32)}, "multiply images in [0, 1] by 255"),
        ({"images": np.zeros((32, 32, 3), np.uint8)}, "add the batch axis"),
        ({"images": np.zeros((1, 3, 32, 32), np.uint8)}, "move the three channels last"),
        ({"images": np.zeros((1, 27, 32, 3), np.uint8)}, "at least 28 pixels"),
        ({"name": "frost", "frost": "no/such/folder"}, "No frost photographs in"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(arguments, message):
    call = {"images": pictures(1), "name": "fog", **arguments}
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        corrupt(**call)
    assert isinstance(caught.value, CttaError)


# Oracles, to one grey level.


@every("gaussian_blur")
def test_gaussian_blur_is_that_of_skimage(name, preset, severity):
    x = pictures(2, 64, 48)
    (sigma,) = constants(name, severity, preset)
    oracle = np.stack([gaussian(image / 255, sigma=sigma, channel_axis=-1) for image in x])
    assert_one_grey_level(corrupt(x, name, severity, preset), oracle)


@every("defocus_blur")
def test_defocus_blur_is_that_of_opencv(name, preset, severity):
    x = pictures(2, 64, 48)
    radius, alias = constants(name, severity, preset)
    reach = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    kernel = (reach[:, None] ** 2 + reach**2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(kernel / kernel.sum(), (3, 3) if radius <= 8 else (5, 5), sigmaX=alias)
    oracle = np.stack([cv2.filter2D((image / 255).astype(np.float32), -1, kernel) for image in x])
    assert_one_grey_level(corrupt(x, name, severity, preset), oracle)


@every("brightness", "saturate")
def test_hsv_is_that_of_skimage(name, preset, severity):
    x = pictures(3, 48, 48)
    x[0, :8], x[0, 8:16] = 0, 90  # black and grey have no hue
    hsv = rgb2hsv(x / 255)
    if name == "brightness":
        hsv[..., 2] = np.clip(hsv[..., 2] + constants(name, severity, preset)[0], 0, 1)
    else:
        scale, shift = constants(name, severity, preset)
        hsv[..., 1] = np.clip(hsv[..., 1] * scale + shift, 0, 1)
    assert_one_grey_level(corrupt(x, name, severity, preset), hsv2rgb(hsv))


@every("contrast")
def test_contrast_pulls_towards_the_mean_of_each_channel(name, preset, severity):
    x = pictures(2)
    (scale,) = constants(name, severity, preset)
    mean = (x / 255).mean(axis=(1, 2), keepdims=True)
    assert_one_grey_level(corrupt(x, name, severity, preset), (x / 255 - mean) * scale + mean)


@every("pixelate", "jpeg_compression")
def test_pixelate_and_jpeg_are_those_of_pillow(name, preset, severity):
    x = pictures(2, 40, 56)
    (constant,) = constants(name, severity, preset)
    oracle = []
    for image in map(Image.fromarray, x):
        if name == "pixelate":
            small = image.resize((int(56 * constant), int(40 * constant)), Image.Resampling.BOX)
            oracle.append(np.asarray(small.resize((56, 40), Image.Resampling.BOX)))
        else:
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=constant)
            oracle.append(np.asarray(Image.open(buffer)))
    assert np.array_equal(corrupt(x, name, severity, preset), np.stack(oracle))


def clipped_zoom(image, factor):
    """Crop the centre and enlarge it with SciPy."""
    sides = image.shape[:2]
    kept = [int(np.ceil(side / factor)) for side in sides]
    y, x = [(side - keep) // 2 for side, keep in zip(sides, kept, strict=True)]
    large = spline_zoom(image[y : y + kept[0], x : x + kept[1]], (factor, factor, 1), order=1)
    y, x = [(have - side) // 2 for have, side in zip(large.shape, sides, strict=False)]
    return large[y : y + sides[0], x : x + sides[1]]


@every("zoom_blur")
def test_zoom_blur_is_that_of_scipy(name, preset, severity):
    x = pictures(2, 32, 44)
    zooms, step = constants(name, severity, preset)
    factors = 1 + step * np.arange(zooms)
    oracle = [(i + sum(clipped_zoom(i, f) for f in factors)) / (zooms + 1) for i in x / 255]
    assert_one_grey_level(corrupt(x, name, severity, preset), np.stack(oracle))


@pytest.mark.parametrize("factor", [1, 1.25, 1.75, 2, 2.25, 2.5, 3, 4, 4.5])
def test_the_zoom_of_snow_is_that_of_scipy(factor):
    layer = np.random.default_rng(0).random((33, 47, 3)).astype(np.float32)
    assert np.allclose(images._zoom(layer, factor), clipped_zoom(layer, factor), atol=1e-5)


@every("motion_blur")
def test_motion_is_a_sum_of_shifted_copies(name, preset, severity):
    x = pictures(4, 64, 56).astype(np.float32)
    radius, sigma = constants(name, severity, preset)
    angles = [-40.0, 0.0, 17.5, 45.0]
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    oracle = np.zeros_like(x)
    for i, weight in enumerate(weights / weights.sum()):
        for n, angle in enumerate(np.deg2rad(angles)):
            dy, dx = -np.ceil(i * np.sin(angle) - 0.5), -np.ceil(i * np.cos(angle) - 0.5)
            shift = np.array([[1, 0, dx], [0, 1, dy]])
            oracle[n] += weight * cv2.warpAffine(
                x[n], shift, (56, 64), flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE
            )
    assert np.abs(images._smear(x, radius, sigma, angles) - oracle).max() < 0.01


def test_motion_has_a_sharp_front_and_a_tail():
    x = np.zeros((1, 41, 41, 1), np.float32)
    x[0, 20, 20] = 1
    trace = images._smear(x, 6, 2, [0.0])[0, :, :, 0]
    assert trace[20, 20] == trace.max()
    assert np.count_nonzero(trace) == np.count_nonzero(trace[20, 8:21])  # all on one side, on one row
    assert trace.sum() == pytest.approx(1, abs=1e-6)


@every("glass_blur")
def test_glass_blur_is_the_sequential_loop(name, preset, severity):
    x = pictures(2, 28, 31)
    sigma, delta, rounds = constants(name, severity, preset)
    shape = (rounds, 28 - 2 * delta, 31 - 2 * delta, 2)
    draws = [np.random.default_rng(n).integers(-delta, delta, shape, dtype=np.int8) for n in range(2)]
    oracle = []
    for image, draw in zip(x, draws, strict=True):
        pixels = (gaussian(image / 255, sigma=sigma, channel_axis=-1) * 255 + 1e-6).astype(np.uint8)
        for step in range(rounds):
            for row in range(28 - delta, delta, -1):
                for column in range(31 - delta, delta, -1):
                    dy, dx = draw[step, row - delta - 1, column - delta - 1]
                    pixels[row, column] = pixels[row + dy, column + dx]
        oracle.append(gaussian(pixels / 255, sigma=sigma, channel_axis=-1))
    ours = images.glass_blur(x, [np.random.default_rng(n) for n in range(2)], sigma, delta, rounds)
    assert_one_grey_level(ours, np.stack(oracle))


@every("elastic_transform")
def test_elastic_transform_is_that_of_opencv_and_scipy(name, preset, severity):
    x = pictures(2, 64, 64)
    alpha, sigma, affine, unit = constants(name, severity, preset)
    unit *= 64
    ours = images.elastic_transform(x, [np.random.default_rng(n) for n in range(2)], alpha, sigma, affine, unit / 64)
    for n, image in enumerate(x):
        draws = 2 * np.random.default_rng(n).random(6 + 2 * 64 * 64, dtype=np.float32) - 1
        source = np.float32([[53, 53], [53, 11], [11, 11]])
        target = source + np.float32(affine * unit) * draws[:6].reshape(3, 2)
        matrix = cv2.getAffineTransform(source, target)
        # OpenCV rounds places to 1/32 of a pixel, so it sees a finer image here.
        inverse = cv2.invertAffineTransform(matrix)
        rows, columns = np.mgrid[:64, :64]
        xs = (inverse[0, 0] * columns + inverse[0, 1] * rows + inverse[0, 2]).astype(np.float32)
        ys = (inverse[1, 0] * columns + inverse[1, 1] * rows + inverse[1, 2]).astype(np.float32)
        moved = np.stack([map_coordinates(image[..., c] / 255, [ys, xs], order=1, mode="mirror") for c in range(3)])
        coarse = cv2.warpAffine(image.astype(np.float32) / 255, matrix, (64, 64), borderMode=cv2.BORDER_REFLECT_101)
        assert np.abs(coarse.transpose(2, 0, 1) - moved).mean() < 0.003
        if alpha:
            fields = draws[6:].reshape(2, 64, 64).astype(np.float64)
            dx, dy = [gaussian(f, sigma * unit, mode="reflect", truncate=3) * alpha * unit for f in fields]
            places = [rows + dy, columns + dx]
            moved = np.stack([map_coordinates(c, places, order=1, mode="reflect") for c in moved])
        assert_one_grey_level(ours[n], moved.transpose(1, 2, 0))


def test_impulse_noise_has_the_share_of_skimage():
    x = np.full((60, 32, 32, 3), 100, np.uint8)
    y = corrupt(x, "impulse_noise", 5)
    oracle = random_noise(x / 255, mode="s&p", amount=0.07, rng=0)
    for level in (0, 255):
        assert (y == level).mean() == pytest.approx((oracle * 255 == level).mean(), rel=0.05)
        assert (y == level).mean() == pytest.approx(0.035, rel=0.05)


def test_shot_noise_is_poisson():
    x = np.full((60, 32, 32, 3), 102, np.uint8)
    y = corrupt(x, "shot_noise", 5) / 255 * 50
    assert y.mean() == pytest.approx(20, rel=0.01)
    assert y.var() == pytest.approx(20, rel=0.03)


def test_noise_grows_with_the_value_for_speckle_only():
    dark, bright = np.full((20, 32, 32, 3), 40, np.uint8), np.full((20, 32, 32, 3), 120, np.uint8)
    spread = {n: [corrupt(x, n, 5).std() for x in (dark, bright)] for n in ("gaussian_noise", "speckle_noise")}
    assert spread["gaussian_noise"][1] == pytest.approx(25.5, rel=0.05)
    assert spread["speckle_noise"][1] / spread["speckle_noise"][0] == pytest.approx(3, rel=0.02)


# The steps of spatter.


def water(preset, severity, count=6, height=48, width=40):
    """Layers as spatter has them before it looks for outlines."""
    mean, std, sigma, threshold, _, _ = constants("spatter", severity, preset)
    noise = np.random.default_rng(severity).normal(mean, std, (count, height, width))
    layer = gaussian_filter(noise, (0, sigma, sigma), mode="nearest")
    layer[layer < threshold] = 0
    return ((255 * layer).astype(np.int64) % 256).astype(np.uint8)


WATER = [(preset, severity) for preset in PRESETS for severity in (1, 2, 3)]


@pytest.mark.parametrize(("preset", "severity"), WATER)
def test_outlines_are_those_of_opencv(preset, severity):
    x = water(preset, severity)
    oracle = np.stack([cv2.Canny(layer, 50, 150) for layer in x]) > 0
    assert oracle.any()
    assert np.array_equal(canny(x, 50, 150), oracle)


def test_outlines_of_smooth_pictures_are_those_of_opencv():
    x = pictures(6, 64, 64)[..., 0]
    assert np.array_equal(canny(x, 50, 150), np.stack([cv2.Canny(i, 50, 150) for i in np.ascontiguousarray(x)]) > 0)


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.2])
def test_distances_are_those_of_opencv(share):
    edges = np.random.default_rng(0).random((5, 60, 44)) < share
    edges[:, 30, 20] = True
    free = np.where(edges, 0, 255).astype(np.uint8)
    oracle = np.stack([np.minimum(cv2.distanceTransform(i, cv2.DIST_L2, 5), 20) for i in free])
    assert np.allclose(np.minimum(chamfer_distance(edges, 20), 20), oracle, atol=1e-4)


def test_an_image_without_outlines_is_far_from_them():
    assert chamfer_distance(np.zeros((1, 30, 30), bool), 20).min() >= 20


def test_equalisation_is_that_of_opencv():
    x = np.random.default_rng(0).integers(3, 21, (5, 30, 40)).astype(np.uint8)
    x[4] = 20  # a single level stays
    assert np.array_equal(equalise(x), np.stack([cv2.equalizeHist(i) for i in x]))


def test_small_filters_are_those_of_opencv():
    x = np.random.default_rng(0).integers(0, 256, (3, 30, 40)).astype(np.uint8)
    relief = np.stack([cv2.filter2D(i, cv2.CV_8U, images.RELIEF) for i in x])
    assert np.array_equal(correlate_uint8(x, images.RELIEF), relief)
    box = np.stack([cv2.blur(i.astype(np.float32), (3, 3)) for i in x])
    assert np.allclose(blur_box(x.astype(np.float32)), box, atol=1e-4)


@pytest.mark.parametrize(("preset", "severity"), WATER)
def test_drops_are_those_of_opencv(preset, severity):
    x = water(preset, severity)
    oracle = []
    for layer in x:
        distance = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
        distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
        oracle.append(cv2.blur(cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, images.RELIEF), (3, 3)))
    assert_one_grey_level(images.droplets(x), np.stack(oracle))


@pytest.mark.parametrize("side", [5, 28])
def test_indices_fold_as_numpy_pads(side):
    index = np.arange(-70, 99, dtype=np.int32)
    for border, mode in (("reflect_101", "reflect"), ("reflect", "symmetric")):
        assert np.array_equal(fold(index, side, border), np.pad(np.arange(side), (70, 99 - side), mode=mode))


# Fog and frost.


@pytest.mark.parametrize("side", [32, 64])
def test_plasma_is_the_mean_of_four_neighbours_without_wibble(side):
    draws = np.full((2, side * side), 0.5)
    draws[:, 0] = [1.0, 0.0]  # only the first centre is moved, up and down
    cloud = images.plasma(draws, side, 2.0)
    assert cloud.min() == 0
    assert cloud.max() == 1
    assert np.allclose(cloud[0], 1 - cloud[1])
    half = side // 2
    assert cloud[0, half, half] == 1
    assert cloud[0, 0, half] == cloud[0, half, 0] == pytest.approx(0.5)


def test_the_map_of_fog_covers_large_images():
    y = corrupt(np.zeros((1, 40, 300, 3), np.uint8) + np.uint8(100), "fog", 5)
    assert y[0].std(axis=(0, 1)).min() > 1
    assert not np.array_equal(y[0, :, :32], y[0, :, 256:288])


def test_drawn_frost_is_bluish_white_and_varied():
    textures = drawn_textures()
    assert len(textures) == 5
    for texture in textures:
        red, _, blue = texture.mean(axis=(0, 1))
        assert blue > red
        assert texture.std() > 10
    assert drawn_textures() is textures


def test_frost_reads_a_folder_of_photographs(tmp_path):
    for i in range(6):
        Image.fromarray(np.full((400, 300, 3), 40 * i, np.uint8)).save(tmp_path / f"frost{i}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    x = np.zeros((60, 32, 32, 3), np.uint8)
    levels = np.unique(corrupt(x, "frost", 5, frost=tmp_path))
    # The first five photographs, at weight .45; the sixth is not drawn, as in the public code.
    assert levels.tolist() == [int(0.45 * 40 * i) for i in range(5)]
    assert np.array_equal(corrupt(x, "frost", 5, frost=tmp_path), corrupt(x, "frost", 5, frost=str(tmp_path)))


def test_frost_covers_images_larger_than_its_texture():
    y = corrupt(np.zeros((1, 150, 700, 3), np.uint8), "frost", 5)
    assert y.min(axis=(1, 2, 3)) > 0


# The public generator.


@needs_data
@pytest.mark.parametrize("preset", PRESETS)
def test_statistics_agree_with_the_public_generator(preset):
    """A subset; `python -m benchmarks.corruption_reference` compares all of it."""
    reference = json.loads((DATA / "corruption_reference.json").read_text())[preset]
    if preset == "cifar":
        with np.load(DATA / "cifar10_test_first5000.npz") as archive:
            clean = archive["images"][: reference["images"]]
        names, severities = NAMES, (1, 3, 5)
    else:
        paths = sorted((DATA / "imagenet_samples").glob("*/*.JPEG"))[: reference["images"]]
        clean = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])
        # Without much chance in them: one seed is enough.
        names = ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "zoom_blur")
        names += ("brightness", "contrast", "pixelate", "jpeg_compression", "speckle_noise", "saturate")
        severities = (2, 4)
    apart = []
    for name in names:
        for severity in severities:
            y = corrupt(clean, name, severity, preset).astype(np.float32) / 255
            ours = {
                "change": np.abs(y - clean / np.float32(255)).mean(),
                "grad_x": np.abs(np.diff(y, axis=2)).mean(),
                "grad_y": np.abs(np.diff(y, axis=1)).mean(),
            }
            for statistic, value in ours.items():
                public = reference[name][str(severity)][statistic]
                if abs(value - public) > (0.25 if name == "frost" else 0.1) * public + 0.00005:
                    apart.append((name, severity, statistic, public, float(value)))
    assert not apart
