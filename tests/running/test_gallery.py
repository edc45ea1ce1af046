"""Samples as pictures: images byte for byte, point clouds where their points are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ctta import Source
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data
from ctta.running.gallery import (
    CHANGED,
    FAR,
    NEAR,
    PAPER,
    SHOWN,
    SIZE,
    ChangedGallery,
    Gallery,
    as_pictures,
    draw_cloud,
)
from ctta.running.runner import evaluate
from tiny import network


def inked(picture: np.ndarray) -> np.ndarray:
    """Rows and columns of pixels that are not paper, (K, 2)."""
    return np.argwhere((picture != PAPER).any(2))


def test_images_stay_as_they_are():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    assert np.array_equal(as_pictures(x), pixels)


def test_grey_images_are_shown_in_grey():
    assert np.array_equal(as_pictures(torch.tensor([[[[0.0, 0.4]]]])), [[[[0, 0, 0], [102, 102, 102]]]])


def test_clouds_become_small_pictures():
    pictures = as_pictures(torch.rand(3, 50, 3) * 2 - 1)
    assert (pictures.shape, pictures.dtype) == ((3, SIZE, SIZE, 3), np.uint8)
    assert all(len(inked(picture)) > 50 for picture in pictures)


def test_the_middle_is_in_the_middle_and_up_is_up():
    middle = inked(draw_cloud(np.zeros((1, 3)))).mean(0)
    assert np.abs(middle - (SIZE - 1) / 2).max() <= 0.5
    above = inked(draw_cloud(np.array([(0.0, 1.0, 0.0)]))).mean(0)
    assert above[0] < middle[0] - 20
    assert above[1] == middle[1]
    right = inked(draw_cloud(np.array([(1.0, 0.0, 0.0)]))).mean(0)
    assert right[1] > middle[1] + 20


def test_what_is_near_covers_what_is_behind_it():
    # Both lie on the line towards the eye, which is over the horizon and turned from z towards x.
    around, above = np.radians([35, 25])
    towards = np.array([np.sin(around) * np.cos(above), np.sin(above), np.cos(around) * np.cos(above)])
    for order in ([1, -1], [-1, 1]):
        picture = draw_cloud(np.outer(order, towards))
        colours = np.unique(picture[(picture != PAPER).any(2)], axis=0)
        assert colours.tolist() == [NEAR.tolist()]
    apart = draw_cloud(np.stack([towards, [0.9, -0.9, 0]]))
    assert {tuple(colour) for colour in apart[(apart != PAPER).any(2)]} == {tuple(NEAR), tuple(FAR)}


def test_large_clouds_are_made_to_fit():
    rows = inked(draw_cloud(np.array([(0.0, -50.0, 0.0), (0.0, 50.0, 0.0)])))
    assert rows[:, 0].min() == 0
    assert rows[:, 0].max() == SIZE - 1


def test_a_few_samples_of_the_last_batch_of_a_domain_are_kept():
    images = np.random.default_rng(0).integers(0, 256, (14, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(14) % 10, [("clean", 0), ("fog", 5)], Data(batch=10))
    adapter, gallery = Source(network()), Gallery()
    assert gallery.samples() is None
    found = list(evaluate(adapter, stream))
    for evaluated in found:
        gallery.keep(adapter, evaluated)
    samples = gallery.samples()
    assert samples.position.tolist() == [0] * 4 + [1] * 4, "the second batch of each domain has four samples"
    assert SHOWN > 4
    assert np.array_equal(samples.images[:4], images[10:])
    assert samples.label.tolist() == [0, 1, 2, 3] * 2
    predicted = [*found[1].prediction.tolist(), *found[3].prediction.tolist()]
    assert samples.adapted.tolist() == samples.source.tolist() == predicted, "this method adapts nothing"
    assert samples.confidence.tolist() == [*found[1].confidence.tolist(), *found[3].confidence.tolist()]
    assert samples.selected.tolist() == [-1] * 8
    earlier = Gallery.before(samples, 1).samples()
    assert np.array_equal(earlier.images, samples.images[:4]), "what came before a domain that is begun again"


def test_of_changed_predictions_a_few_are_kept_all_along_the_stream():
    images = np.random.default_rng(0).integers(0, 256, (400, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(400) % 10, [("clean", 0)], Data(batch=4))
    adapter, found = Source(network()), list(evaluate(Source(network()), stream))

    def names(step: int) -> list[str]:
        return [f"{step}-{number}" for number in range(4)]

    gallery = ChangedGallery(names)
    gallery.keep(adapter, found[0])
    gallery.keep(adapter, replace(found[0], source=found[0].prediction))
    assert gallery.samples() is None, "nothing is known of the unadapted model, or nothing has changed"
    source = found[0].prediction + torch.tensor([0, 0, 1, 1])
    gallery.keep(adapter, replace(found[0], source=source))
    first = gallery.samples()
    assert (first.name.tolist(), first.source.tolist()) == (["0-2"], [int(source[2])])
    assert np.array_equal(first.images[0], images[2])

    gallery = ChangedGallery(names)
    for evaluated in found:
        gallery.keep(adapter, replace(evaluated, source=evaluated.prediction + 1))
    kept = gallery.samples().name.tolist()
    assert CHANGED / 2 <= len(kept) <= CHANGED
    steps = [int(name.split("-")[0]) for name in kept]
    assert len(set(np.diff(steps))) == 1, "at equal distances"
    assert steps[-1] > 90
