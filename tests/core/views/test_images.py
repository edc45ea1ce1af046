"""Image views against the independent reference in benchmarks/reference_views.py, and the conduct of the draws."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import reference_views as reference
from benchmarks.reference_views import ViewParameters, reference_view
from ctta.base.errors import InputError
from ctta.base.randomness import Randomness
from ctta.core.views import CloudViews, ImageViews, StrongViews, ViewKind, WeakViews, default_views, images

CPU = torch.device("cpu")
SIZES = [(8, 8), (9, 14), (14, 9), (17, 17), (32, 32)]
DRAWS: list[images.Draw] = ["batch", "sample"]
EXACT = {"rtol": 0.0, "atol": 1e-5}

FACTORS = {
    "brightness": (0.6, 1.0, 1.4),
    "contrast": (0.7, 1.0, 1.3),
    "saturation": (0.5, 1.0, 1.5),
    "hue": (-0.06, 0.0, 0.025, 0.06),
    "gamma": (0.7, 1.0, 1.3),
}
OURS: dict[str, Callable[[Tensor, Tensor], Tensor]] = dict(zip(FACTORS, images.JITTERS, strict=True))
THEIRS = dict(zip(reference.KINDS, reference.JITTERS, strict=True))


def noise_image(height: int, width: int, channels: int = 3, seed: int = 0, count: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, channels, height, width, dtype=torch.float64, generator=generator)


def smooth_image(height: int, width: int, channels: int = 3) -> Tensor:
    """No symmetry at all, so that a wrong sign or order shows."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    planes = [0.5 + 0.5 * torch.sin(1 + channel + 3 * x + 5 * y * y) for channel in range(channels)]
    return torch.stack(planes).double()[None]


def colours() -> Tensor:
    """Black, white, greys, primaries, mixtures, ties of two channels, nearly grey: one pixel each, (1, 3, 1, P)."""
    levels = (0.0, 1e-9, 0.2, 0.5, 0.5 + 1e-9, 1.0)
    return torch.tensor(list(itertools.product(levels, repeat=3)), dtype=torch.float64).T[None, :, None, :].contiguous()


def plain(colour: tuple[float, float, float]) -> Tensor:
    return torch.tensor(colour, dtype=torch.float64).view(1, 3, 1, 1).expand(1, 3, 9, 14).contiguous()


PICTURES = {
    "noise": noise_image(9, 14),
    "smooth": smooth_image(32, 32),
    "colours": colours(),
    "black": plain((0, 0, 0)),
    "white": plain((1, 1, 1)),
    "grey": plain((0.4, 0.4, 0.4)),
    "red": plain((1, 0, 0)),
    "green": plain((0, 1, 0)),
    "blue": plain((0, 0, 1)),
    "one channel": noise_image(9, 14, channels=1),
}


def row(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value, dtype=torch.float64)


def reference_jitter(x: Tensor, order: tuple[int, ...], factors: tuple[float, ...]) -> Tensor:
    return torch.from_numpy(reference.jitter(x[0].numpy(), order, factors))[None]


# --- Colour ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("kind", FACTORS)
def test_each_jitter_matches_the_reference(kind: str, picture: str) -> None:
    x = PICTURES[picture]
    for factor in FACTORS[kind]:
        ours = OURS[kind](x.clone(), row(factor))
        torch.testing.assert_close(ours, torch.from_numpy(THEIRS[kind](x[0].numpy(), factor))[None], **EXACT)


@pytest.mark.parametrize("kind", FACTORS)
def test_a_jitter_leaves_its_input_alone(kind: str) -> None:
    x = noise_image(9, 14)
    before = x.clone()
    OURS[kind](x, row(FACTORS[kind][0]))
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", FACTORS)
def test_a_jitter_takes_one_factor_an_image(kind: str) -> None:
    x = noise_image(9, 14, count=3)
    factors = FACTORS[kind][:3]
    ours = OURS[kind](x, torch.tensor(factors, dtype=torch.float64).view(3, 1, 1, 1))
    alone = torch.cat([OURS[kind](image, row(factor)) for image, factor in zip(x.split(1), factors, strict=True)])
    torch.testing.assert_close(ours, alone, rtol=0, atol=1e-12)


def test_hand_worked_colours() -> None:
    red = plain((1, 0, 0))[..., :1, :1]
    # A sixth of the circle turns red into yellow, a third into green, a sixth backwards into magenta.
    for shift, colour in ((1 / 6, (1, 1, 0)), (1 / 3, (0, 1, 0)), (-1 / 6, (1, 0, 1))):
        expected = torch.tensor(colour, dtype=torch.float64)
        torch.testing.assert_close(images.hue(red, row(shift)).flatten(), expected, **EXACT)
    # The luma of red is .2989, so half the saturation is (.5 + .14945, .14945, .14945).
    torch.testing.assert_close(
        images.saturation(red, row(0.5)).flatten(),
        torch.tensor([0.64945, 0.14945, 0.14945], dtype=torch.float64),
        **EXACT,
    )
    assert images.gamma(row(0.25), row(0.5)).item() == pytest.approx(0.5)
    assert images.brightness(row(0.8), row(1.4)).item() == 1.0


def test_every_order_of_the_jitters_matches_the_reference() -> None:
    x = smooth_image(5, 6)
    factors = (1.4, 1.3, 1.5, 0.06, 0.7)  # far enough that clipping makes the order matter
    results = []
    for order in itertools.permutations(range(5)):
        ours = images.jitter(x, torch.tensor([order]), torch.tensor([factors], dtype=torch.float64))
        torch.testing.assert_close(ours, reference_jitter(x, order, factors), **EXACT)
        results.append(ours)
    spread = (torch.cat(results) - results[0]).abs().amax((1, 2, 3))
    assert (spread > 1e-3).sum() > 60  # the order matters, or this test would prove nothing


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_gives_each_image_its_own_order_and_factors(channels: int) -> None:
    x = noise_image(6, 7, channels, count=40)
    order, factors = images._draw_jitter(Randomness(0, 0, CPU), len(x))
    ours = images.jitter(x, order, factors)
    theirs = [
        reference_jitter(image, tuple(order[i].tolist()), tuple(factors[i].tolist()))
        for i, image in enumerate(x.split(1))
    ]
    torch.testing.assert_close(ours, torch.cat(theirs), **EXACT)


# --- Geometry --------------------------------------------------------------------------------------------------------

WARPS = [
    ViewParameters(),
    ViewParameters(angle=math.radians(15)),
    ViewParameters(shift=(2, 0)),
    ViewParameters(shift=(0, -1)),
    ViewParameters(scale=0.9),
    ViewParameters(scale=1.1),
    ViewParameters(flip=True),
    ViewParameters(shift=(1, 1), flip=True),
    ViewParameters(angle=math.radians(-15), shift=(2, -1), scale=1.1, flip=True),
    ViewParameters(angle=math.radians(15), shift=(-1, 1), scale=0.9),
    ViewParameters(angle=math.radians(-7.3), shift=(1, 1), scale=0.937, flip=True),
]


def our_grid(warp: ViewParameters, height: int, width: int, margin: int) -> Tensor:
    return images.sampling_grid(
        torch.tensor([warp.angle], dtype=torch.float64),
        torch.tensor([warp.shift], dtype=torch.float64),
        torch.tensor([warp.scale], dtype=torch.float64),
        torch.tensor([warp.flip]),
        height,
        width,
        margin,
    )


def sample(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def warp_reference(x: Tensor, warp: ViewParameters) -> Tensor:
    """Pad, map, crop, flip; no blur."""
    image = reference.affine(reference.pad(x[0].numpy()), warp.angle, warp.shift, warp.scale)
    image = reference.crop(image, *x.shape[2:])
    return torch.from_numpy((reference.flip(image) if warp.flip else image).copy())[None]


def covered(height: int, width: int, warp: ViewParameters) -> Tensor:
    """The pixels whose whole neighbourhood comes from inside the padded image: there a white image stays white.

    Outside, the reference reads zeros and ours the border; at 32 pixels and more, square, there is no outside.
    """
    return torch.from_numpy(reference.geometry(np.ones((1, height, width)), warp).copy())[0] > 1 - 1e-9


@pytest.mark.parametrize("warp", WARPS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_grid_is_pad_affine_crop_and_flip(size: tuple[int, int], warp: ViewParameters) -> None:
    for x in (noise_image(*size), smooth_image(*size, channels=1)):
        ours = sample(x, our_grid(warp, *size, margin=0))
        torch.testing.assert_close(ours, warp_reference(x, warp), **EXACT)


@pytest.mark.parametrize("size", [(9, 14), (32, 32)], ids=str)
def test_the_grids_margin_only_adds_pixels_around(size: tuple[int, int]) -> None:
    for warp in WARPS:
        wide, narrow = our_grid(warp, *size, images.MARGIN), our_grid(warp, *size, 0)
        torch.testing.assert_close(wide[:, 2:-2, 2:-2], narrow, rtol=0, atol=1e-12)


def test_hand_worked_moves() -> None:
    x = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    x[0, 0, 1, 3] = 1.0  # above and right of the centre

    def lit(warp: ViewParameters) -> list[list[int]]:
        return (sample(x, our_grid(warp, 5, 5, 0))[0, 0] > 0.99).nonzero().tolist()

    assert lit(ViewParameters()) == [[1, 3]]
    assert lit(ViewParameters(shift=(1, 2))) == [[3, 4]]
    assert lit(ViewParameters(flip=True)) == [[1, 1]]
    assert lit(ViewParameters(shift=(1, 0), flip=True)) == [[1, 0]]  # moved first, then mirrored
    assert lit(ViewParameters(angle=math.pi / 2)) == [[3, 3]]  # a quarter turn, clockwise on the screen
    assert lit(ViewParameters(angle=math.pi / 2, shift=(1, 0))) == [[3, 4]]  # turned first, then moved
    assert lit(ViewParameters(scale=2.0)) == [[0, 4]]


@pytest.mark.parametrize("sigma", [0.001, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("size", [(9, 14), (17, 17)], ids=str)
def test_blur_matches_the_reference(size: tuple[int, int], sigma: float) -> None:
    height, width = size
    for x in (noise_image(*size), smooth_image(*size)):
        ours = images.blur(x, torch.tensor([sigma], dtype=torch.float64))
        theirs = reference.crop(reference.blur(x[0].numpy(), sigma), height - 4, width - 4)
        torch.testing.assert_close(ours, torch.from_numpy(theirs)[None], **EXACT)


def test_blur_takes_one_sigma_an_image() -> None:
    x, sigmas = noise_image(9, 14, count=3), torch.tensor([0.01, 0.3, 0.5], dtype=torch.float64)
    alone = torch.cat([images.blur(x[i : i + 1], sigmas[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(images.blur(x, sigmas), alone, rtol=0, atol=1e-12)


def test_blur_of_one_point_is_the_kernel() -> None:
    x = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    x[0, 0, 4, 4] = 1.0
    side = math.exp(-2), math.exp(-8)  # sigma .5: one and two pixels away
    total = 1 + 2 * sum(side)
    line = torch.tensor([side[1], side[0], 1, side[0], side[1]], dtype=torch.float64) / total
    torch.testing.assert_close(
        images.blur(x, torch.tensor([0.5], dtype=torch.float64))[0, 0], torch.outer(line, line), rtol=0, atol=1e-12
    )


# --- The whole view --------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Spy:
    """What the view hands to its own operations: the drawn numbers, whatever the order they were drawn in."""

    monkeypatch: pytest.MonkeyPatch
    calls: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def watch(self, *names: str) -> None:
        for name in names:
            self.monkeypatch.setattr(images, name, self._recording(name, getattr(images, name)))

    def _recording(self, name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def recorded(*arguments: Any) -> Tensor:
            assert name not in self.calls
            self.calls[name] = arguments
            return function(*arguments)

        return recorded

    def parameters(self) -> list[ViewParameters]:
        """One a row."""
        _, order, factors = self.calls["jitter"]
        angle, shift, scale, flip, *_ = self.calls["sampling_grid"]
        sigma = self.calls["blur"][1]
        return [
            ViewParameters(
                order=tuple(order[i].tolist()),
                factors=tuple(factors[i].tolist()),
                angle=angle[i].item(),
                shift=tuple(shift[i].tolist()),
                scale=scale[i].item(),
                flip=bool(flip[i]),
                sigma=sigma[i].item(),
            )
            for i in range(len(order))
        ]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """The view without its noise, and with its numbers in the open."""
    monkeypatch.setattr(images, "NOISE", 0.0)
    watcher = Spy(monkeypatch)
    watcher.watch("jitter", "sampling_grid", "blur")
    return watcher


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("draw", DRAWS)
def test_the_view_matches_the_reference_end_to_end(
    draw: images.Draw, channels: int, size: tuple[int, int], spy: Spy
) -> None:
    x = torch.cat([noise_image(*size, channels, count=2) * 1.4 - 0.2, smooth_image(*size, channels)])  # some to clip
    ours = ImageViews(draw)(x, Randomness(3, 5, CPU))
    parameters = spy.parameters()
    assert len(parameters) == (1 if draw == "batch" else 3)
    for image, view, numbers in zip(x, ours, parameters * (3 // len(parameters)), strict=True):
        inside = covered(*size, numbers)
        assert inside.float().mean() > 0.6
        if size == (32, 32):
            assert inside.all()
        torch.testing.assert_close(view[:, inside], reference_view(image, numbers)[:, inside], **EXACT)


@pytest.mark.parametrize("draw", DRAWS)
def test_many_draws_match_the_reference_in_single_precision(draw: images.Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "NOISE", 0.0)
    x = noise_image(24, 24, count=2).float()
    for batch in range(4):
        with monkeypatch.context() as patch:
            watcher = Spy(patch)
            watcher.watch("jitter", "sampling_grid", "blur")
            ours = ImageViews(draw)(x, Randomness(7, batch, CPU))
        parameters = watcher.parameters()
        for image, view, numbers in zip(x, ours, parameters * (2 // len(parameters)), strict=True):
            torch.testing.assert_close(view, reference_view(image, numbers), rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [(9, 14), (32, 32)], ids=str)
def test_the_two_forms_of_the_reference_agree(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the benchmark times computes the same view."""
    monkeypatch.setattr(reference, "NOISE", 0.0)
    x = torch.cat([noise_image(*size), smooth_image(*size)])
    for seed in range(3):
        parameters = reference.draw_parameters(*size, reference.random.Random(seed))
        slow = torch.stack([reference_view(image, parameters) for image in x])
        torch.testing.assert_close(reference.batch_view(x, parameters), slow, **EXACT)


@pytest.mark.parametrize("draw", DRAWS)
def test_noise_is_drawn_for_each_pixel_and_clipped(draw: images.Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.full((8, 3, 32, 32), 0.5, dtype=torch.float64)
    noisy = ImageViews(draw)(x, Randomness(0, 0, CPU))
    monkeypatch.setattr(images, "NOISE", 0.0)
    noise = noisy - ImageViews(draw)(x, Randomness(0, 0, CPU))
    assert noise.std().item() == pytest.approx(0.005, rel=0.03)
    assert abs(noise.mean().item()) < 5 * 0.005 / math.sqrt(noise.numel())
    kurtosis = ((noise / noise.std()) ** 4).mean().item()
    assert kurtosis == pytest.approx(3.0, abs=0.2)  # a bell, not a box
    flat = noise.flatten(1)
    off = torch.corrcoef(flat) - torch.eye(8, dtype=torch.float64)
    assert off.abs().max() < 0.1  # images do not share it
    assert len(flat.unique()) > 0.99 * flat.numel()
    monkeypatch.setattr(images, "NOISE", 0.5)
    wild = ImageViews(draw)(x, Randomness(0, 0, CPU))
    assert wild.min() == 0
    assert wild.max() == 1


# --- The draws -------------------------------------------------------------------------------------------------------


def drawn_numbers(height: int, width: int, count: int, spy: Spy) -> list[ViewParameters]:
    ImageViews("sample")(torch.zeros(count, 1, height, width), Randomness(11, 0, CPU))
    return spy.parameters()


def fills(values: list[float], low: float, high: float) -> None:
    """Inside the range, and uniform over it: the empirical distribution is within the 1e-4 Kolmogorov bound."""
    scaled = (np.sort(values) - low) / (high - low)
    assert scaled[0] >= -1e-6
    assert scaled[-1] <= 1 + 1e-6
    steps = np.arange(len(scaled))
    distance = max(np.abs(scaled - steps / len(scaled)).max(), np.abs(scaled - (steps + 1) / len(scaled)).max())
    assert distance < 2.23 / math.sqrt(len(scaled))


def test_the_draws_have_the_ranges_of_the_paper(spy: Spy) -> None:
    drawn = drawn_numbers(8, 8, 3000, spy)
    limits = [(0.6, 1.4), (0.7, 1.3), (0.5, 1.5), (-0.06, 0.06), (0.7, 1.3)]
    for kind, (low, high) in enumerate(limits):
        fills([one.factors[kind] for one in drawn], low, high)
    fills([math.degrees(one.angle) for one in drawn], -15, 15)
    fills([one.scale for one in drawn], 0.9, 1.1)
    fills([one.sigma for one in drawn], 0.001, 0.5)
    assert np.mean([one.flip for one in drawn]) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(3000))


def test_every_order_is_equally_likely(spy: Spy) -> None:
    drawn = drawn_numbers(8, 8, 6000, spy)
    counts = Counter(one.order for one in drawn)
    assert set(counts) == set(itertools.permutations(range(5)))
    expected = 6000 / 120
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 119 + 4 * math.sqrt(2 * 119)


def test_numbers_are_drawn_independently(spy: Spy) -> None:
    drawn = drawn_numbers(32, 32, 3000, spy)
    table = np.array(
        [[*one.factors, one.angle, *one.shift, one.scale, one.sigma, one.flip, one.order[0]] for one in drawn]
    )
    off = np.corrcoef(table.T) - np.eye(table.shape[1])
    assert np.abs(off).max() < 5 / math.sqrt(3000)


@pytest.mark.parametrize(
    ("size", "reach_x", "reach_y"),
    [((32, 32), 4.0, 4.0), ((9, 14), 28 / 16, 17 / 16), ((16, 40), 80 / 16, 32 / 16)],
    ids=str,
)
def test_shifts_are_whole_pixels_up_to_a_sixteenth_of_the_padded_size(
    size: tuple[int, int], reach_x: float, reach_y: float, spy: Spy
) -> None:
    drawn = drawn_numbers(*size, 2000, spy)
    for axis, reach in enumerate((reach_x, reach_y)):
        values = [one.shift[axis] for one in drawn]
        assert all(value == round(value) for value in values)
        assert set(values) == set(range(-round(reach), round(reach) + 1))
        # A uniform number rounded: whole pixels inside have mass 1 / (2 reach), the two ends what is left.
        for value, count in Counter(values).items():
            share = (min(value + 0.5, reach) - max(value - 0.5, -reach)) / (2 * reach)
            assert count / 2000 == pytest.approx(share, abs=4.5 * math.sqrt(share * (1 - share) / 2000))


# --- Conduct ---------------------------------------------------------------------------------------------------------


def test_a_batch_draw_treats_equal_images_equally(spy: Spy) -> None:
    x = smooth_image(32, 32).expand(6, -1, -1, -1)
    view = ImageViews("batch")(x, Randomness(0, 0, CPU))
    assert torch.equal(view, view[:1].expand_as(view))


def test_a_sample_draw_treats_every_image_otherwise(spy: Spy) -> None:
    x = smooth_image(32, 32).expand(6, -1, -1, -1)
    view = ImageViews("sample")(x, Randomness(0, 0, CPU))
    for one, other in itertools.combinations(view, 2):
        assert (one - other).abs().mean() > 0.005
    geometry = {(one.angle, one.shift, one.scale, one.sigma) for one in spy.parameters()}
    assert len(geometry) == 6


@pytest.mark.parametrize("draw", DRAWS)
def test_a_view_is_a_function_of_seed_and_batch(draw: images.Draw) -> None:
    x = noise_image(16, 16, count=4).float()

    def view(seed: int, batch: int) -> Tensor:
        return ImageViews(draw)(x, Randomness(seed, batch, CPU))

    assert torch.equal(view(1, 2), view(1, 2))
    for seed, batch in ((1, 3), (2, 2), (2, 1)):
        assert (view(1, 2) - view(seed, batch)).abs().mean() > 0.01


@pytest.mark.parametrize("draw", DRAWS)
def test_two_views_from_one_source_of_randomness_differ(draw: images.Draw) -> None:
    x, random = noise_image(16, 16, count=4).float(), Randomness(0, 0, CPU)
    assert (ImageViews(draw)(x, random) - ImageViews(draw)(x, random)).abs().mean() > 0.01


@pytest.mark.parametrize("draw", DRAWS)
def test_the_global_generator_is_left_alone(draw: images.Draw) -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    ImageViews(draw)(noise_image(16, 16, count=4).float(), Randomness(0, 0, CPU))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_view_keeps_form_range_and_input(draw: images.Draw, channels: int, dtype: torch.dtype) -> None:
    x = noise_image(9, 14, channels, count=5).to(dtype) * 1.4 - 0.2  # a clip in place would show
    x[0], x[1] = 0.0, 1.0
    before = x.clone()
    for batch in range(5):
        view = ImageViews(draw)(x, Randomness(0, batch, CPU))
        assert view.shape == x.shape
        assert view.dtype == dtype
        assert view.isfinite().all()
        assert view.min() >= 0
        assert view.max() <= 1
        assert view.data_ptr() != x.data_ptr()
    assert torch.equal(x, before)


@pytest.mark.parametrize("draw", DRAWS)
def test_the_layout_of_the_input_does_not_matter(draw: images.Draw, spy: Spy) -> None:
    x = noise_image(16, 16, count=3)
    view = ImageViews(draw)(x, Randomness(0, 0, CPU))
    spy.calls.clear()
    other = ImageViews(draw)(x.contiguous(memory_format=torch.channels_last), Randomness(0, 0, CPU))
    torch.testing.assert_close(view, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_batch_of_one_image_works(draw: images.Draw) -> None:
    x = noise_image(9, 14).float()
    assert torch.equal(
        ImageViews(draw)(x, Randomness(0, 0, CPU)), ImageViews("batch")(x, Randomness(0, 0, CPU))
    )  # one image is its own batch


def test_default_views_go_by_the_form_of_the_batch() -> None:
    assert default_views(torch.zeros(2, 3, 8, 8), "sample") == ImageViews("sample")
    assert default_views(torch.zeros(2, 1, 8, 8), "batch") == ImageViews("batch")
    assert default_views(torch.zeros(2, 16, 3), "sample") == CloudViews("sample")
    for shape in ((3, 8, 8), (2, 4, 8, 8), (2, 3)):
        with pytest.raises(InputError, match=r"views=my_views"):
            default_views(torch.zeros(shape), "batch")


# --- Other kinds of view ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warp", WARPS, ids=str)
@pytest.mark.parametrize("size", [(9, 14), (32, 32)], ids=str)
def test_mirrored_padding_is_reflection_without_the_border_pixel(size: tuple[int, int], warp: ViewParameters) -> None:
    x = noise_image(*size)
    height, width = size
    padded = np.pad(x[0].numpy(), ((0, 0), (height // 2,) * 2, (width // 2,) * 2), mode="reflect")
    image = reference.crop(reference.affine(padded, warp.angle, warp.shift, warp.scale), height, width)
    theirs = torch.from_numpy((reference.flip(image) if warp.flip else image).copy())[None]
    inside = covered(height, width, warp)
    ours = images.mirrored_sample(x, our_grid(warp, height, width, 0))
    torch.testing.assert_close(ours[..., inside], theirs[..., inside], **EXACT)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_clean_view_is_jitter_and_geometry_alone(draw: images.Draw, spy: Spy) -> None:
    x = noise_image(32, 32, count=3)
    ours = ImageViews(draw, clean=True)(x, Randomness(3, 5, CPU))
    _, order, factors = spy.calls["jitter"]
    angle, shift, scale, flip, *_ = spy.calls["sampling_grid"]
    assert "blur" not in spy.calls
    for i, (image, view) in enumerate(zip(x.split(1), ours, strict=True)):
        row = i if draw == "sample" else 0
        warp = ViewParameters(
            angle=angle[row].item(), shift=tuple(shift[row].tolist()), scale=scale[row].item(), flip=bool(flip[row])
        )
        jittered = reference_jitter(image, tuple(order[row].tolist()), tuple(factors[row].tolist()))
        padded = np.pad(jittered[0].numpy(), ((0, 0), (16, 16), (16, 16)), mode="reflect")
        expected = reference.crop(reference.affine(padded, warp.angle, warp.shift, warp.scale), 32, 32)
        expected = (reference.flip(expected) if warp.flip else expected).copy()
        torch.testing.assert_close(view, torch.from_numpy(expected), **EXACT)


def test_weak_views_mirror_each_image_or_not() -> None:
    x = noise_image(6, 7, count=400)
    view = WeakViews()(x, Randomness(0, 0, CPU))
    mirrored = (view == x.flip(3)).flatten(1).all(1)
    assert (mirrored | (view == x).flatten(1).all(1)).all()
    assert abs(mirrored.double().mean() - 0.5) < 0.1


def test_strong_views_leave_parts_out_at_random() -> None:
    """Of 1000 images of one colour and 1000 grey ones: how many turn grey, and how many keep their colour."""
    x = plain((0.6, 0.4, 0.2)).expand(1000, 3, 9, 14)
    view = StrongViews()(x, Randomness(0, 0, CPU))
    assert view.min() >= 0
    assert view.max() <= 1
    assert (view - view[..., :1, :1]).abs().max() < 1e-9  # one colour stays one colour, whatever the blur does
    pixel = view[..., 0, 0]
    grey = (pixel.amax(1) - pixel.amin(1)) < 1e-9
    same = (pixel - x[..., 0, 0]).abs().amax(1) < 1e-9
    assert abs(grey.double().mean() - 0.2) < 0.05
    assert abs(same.double().mean() - 0.2 * 0.8) < 0.05  # neither jittered nor grey


def test_strong_views_blur_half_of_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Spy(monkeypatch)
    watcher.watch("blur")
    x = noise_image(8, 8, count=1000)
    StrongViews()(x, Randomness(0, 0, CPU))
    _, sigma, margin = watcher.calls["blur"]
    blurred = sigma > 0.01
    assert abs(blurred.double().mean() - 0.5) < 0.06
    assert 0.1 <= sigma[blurred].min() < 0.15
    assert 1.9 < sigma[blurred].max() <= 2.0
    assert margin == 6


def test_a_wide_blur_is_the_gaussian() -> None:
    x = torch.zeros(1, 1, 25, 25, dtype=torch.float64)
    x[0, 0, 12, 12] = 1.0
    line = torch.exp(-0.5 * (torch.arange(-6, 7, dtype=torch.float64) / 2) ** 2)
    found = images.blur(x, torch.tensor([2.0], dtype=torch.float64), 6)[0, 0]
    torch.testing.assert_close(found, torch.outer(line, line) / line.sum() ** 2, rtol=0, atol=1e-12)


@pytest.mark.parametrize("draw", DRAWS)
def test_the_kind_decides_for_images_and_not_for_clouds(draw: images.Draw) -> None:
    x, cloud = noise_image(8, 8), torch.rand(2, 16, 3)
    assert default_views(x, draw) == ImageViews(draw)
    assert default_views(x, draw, "clean") == ImageViews(draw, clean=True)
    assert default_views(x, draw, "weak") == WeakViews(draw)
    assert default_views(x, draw, "strong") == StrongViews(draw)
    kinds: tuple[ViewKind, ...] = ("full", "clean", "weak", "strong")
    assert all(default_views(cloud, draw, kind) == CloudViews(draw) for kind in kinds)
