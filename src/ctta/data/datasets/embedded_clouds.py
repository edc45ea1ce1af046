"""The embedded point clouds: solids of twelve kinds, generated from a seed. Nothing is stored.

Every solid stands upright (y up), has random proportions and is turned about the up axis at random. Its points are
drawn from its surface, uniformly by area; then it is centred and scaled so that its longest side is 2. There are two
ways to make a surface:

    revolve   a profile in (radius, height), rotated about the up axis: balls, cones, tubes, rings
    facets    flat triangles between corners: boxes, prisms, pyramids

Point cloud i of a seed is always the same. Its class is i % 12, so any twelve in a row contain every class once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ctta.data.corrupted_clouds import CloudDataSet, cloud_stream
from ctta.data.corruptions.clouds import POINTS, rotation_matrix
from ctta.data.corruptions.warps import Points
from ctta.data.dataset import Data
from ctta.data.stream import Clouds, Labels, Stream

Profile: TypeAlias = NDArray[np.float64]  # (S, 2): radius and height

COUNT = 1200  # solids in the test set
TEST_SEED = 1  # the network in `assets/` was trained on other seeds
ARC = 48  # segments of a half circle


def revolve(profile: Profile, generator: Generator) -> Points:
    """Draw points on the surface of a polygon in (radius, height), rotated about the up axis."""
    start, end = profile[:-1], profile[1:]
    area = np.linalg.norm(end - start, axis=1) * (start[:, 0] + end[:, 0])
    which = generator.choice(len(area), POINTS, p=area / area.sum())
    inner, outer = start[which, 0], end[which, 0]
    # Along a segment the density grows with the radius: solve for the position below which a fraction of its area lies.
    share = generator.random(POINTS)
    radius = np.sqrt(inner**2 + share * (outer**2 - inner**2))
    flat = np.isclose(inner, outer)
    place = np.where(flat, share, (radius - inner) / np.where(flat, 1, outer - inner))
    radius, height = (start[which] + place[:, None] * (end - start)[which]).T
    angle = generator.uniform(0, 2 * np.pi, POINTS)
    return np.stack([radius * np.cos(angle), height, radius * np.sin(angle)], 1)


def facets(corners: Points, triangles: NDArray[np.int64], generator: Generator) -> Points:
    """Draw points on flat triangles."""
    a, b, c = (corners[triangles[:, k]] for k in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    which = generator.choice(len(area), POINTS, p=area / area.sum())
    s, t = generator.random((2, POINTS, 1))
    s, t = np.where(s + t > 1, 1 - s, s), np.where(s + t > 1, 1 - t, t)  # the other half of the parallelogram
    drawn: Points = a[which] + s * (b - a)[which] + t * (c - a)[which]
    return drawn


def arc(radius: float, height: float, centre: tuple[float, float], low: float, high: float) -> Profile:
    """Return a part of an ellipse in (radius, height), between two angles from the equator, in quarter turns."""
    angle = np.linspace(low, high, ARC) * (np.pi / 2)
    return np.stack([centre[0] + radius * np.cos(angle), centre[1] + height * np.sin(angle)], 1)


def ball(generator: Generator) -> Points:
    """An ellipsoid, flat or tall."""
    return revolve(arc(1, generator.uniform(0.7, 1.4), (0, 0), -1, 1), generator)


def cylinder(generator: Generator) -> Points:
    """A cylinder, closed at both ends."""
    height = generator.uniform(0.8, 3)
    return revolve(np.array([(0, 0), (1, 0), (1, height), (0, height)]), generator)


def cone(generator: Generator) -> Points:
    """A cone with its base."""
    return revolve(np.array([(0, 0), (1, 0), (0, generator.uniform(1, 3))]), generator)


def frustum(generator: Generator) -> Points:
    """A cone without its tip."""
    top, height = generator.uniform(0.4, 0.7), generator.uniform(0.8, 2.5)
    return revolve(np.array([(0, 0), (1, 0), (top, height), (0, height)]), generator)


def torus(generator: Generator) -> Points:
    """A ring that lies flat."""
    thick = generator.uniform(0.15, 0.4)
    return revolve(arc(thick, thick, (1, 0), -2, 2), generator)


def capsule(generator: Generator) -> Points:
    """A cylinder with half a ball at each end."""
    height = generator.uniform(0.8, 3)
    return revolve(np.concatenate([arc(1, 1, (0, 0), -1, 0), arc(1, 1, (0, height), 0, 1)]), generator)


def bowl(generator: Generator) -> Points:
    """The lower half of a ball, open at the top."""
    return revolve(arc(1, generator.uniform(0.5, 1.2), (0, 0), -1, 0), generator)


def tube(generator: Generator) -> Points:
    """A tube with two walls, open at both ends, with its rims."""
    inner, height = generator.uniform(0.5, 0.8), generator.uniform(0.8, 3)
    return revolve(np.array([(inner, 0), (1, 0), (1, height), (inner, height), (inner, 0)]), generator)


def box(generator: Generator) -> Points:
    """A box with sides of three lengths."""
    return facets(*standing(np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) * sides(generator), generator), generator)


def prism(generator: Generator) -> Points:
    """A prism over a triangle."""
    return facets(*standing(np.array([(0, 0), (1, 0), (0.5, 0.87)]) * sides(generator), generator), generator)


def hexagon(generator: Generator) -> Points:
    """A prism over a regular hexagon."""
    angle = np.arange(6) * (np.pi / 3)
    return facets(*standing(np.stack([np.cos(angle), np.sin(angle)], 1), generator), generator)


def pyramid(generator: Generator) -> Points:
    """A pyramid over a rectangle."""
    base = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) * sides(generator)
    corners = np.vstack([lift(base, 0), [base[2, 0] / 2, generator.uniform(0.6, 2), base[2, 1] / 2]])
    return facets(corners, np.array([(0, 1, 2), (0, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]), generator)


def sides(generator: Generator) -> NDArray[np.float64]:
    """Draw two lengths of a base."""
    return generator.uniform(0.6, 1.4, 2)


def lift(base: NDArray[np.float64], height: float) -> Points:
    """Return the corners (S, 2) of a base at a height."""
    return np.insert(base, 1, height, axis=1)


def standing(base: NDArray[np.float64], generator: Generator) -> tuple[Points, NDArray[np.int64]]:
    """Return corners and triangles of a prism over a convex base (S, 2), of random height."""
    size = len(base)
    floor = [(0, k, k + 1) for k in range(1, size - 1)]
    walls = [(k, (k + 1) % size, size + k) for k in range(size)]
    walls += [((k + 1) % size, size + (k + 1) % size, size + k) for k in range(size)]
    corners = np.vstack([lift(base, 0), lift(base, generator.uniform(0.6, 2.5))])
    return corners, np.array([*floor, *((a + size, b + size, c + size) for a, b, c in floor), *walls])


KINDS = (ball, box, cylinder, cone, frustum, torus, pyramid, prism, hexagon, capsule, bowl, tube)
SOLIDS: Mapping[str, Callable[[Generator], Points]] = MappingProxyType({kind.__name__: kind for kind in KINDS})


@lru_cache(maxsize=4)
def solids(count: int = COUNT, seed: int = TEST_SEED) -> tuple[Clouds, Labels]:
    """Return `count` point clouds float32 (count, 1024, 3) and their labels."""
    makers = tuple(SOLIDS.values())
    clouds = np.empty((count, POINTS, 3), np.float32)
    for number in range(count):
        generator = np.random.default_rng((seed, number))
        clouds[number] = placed(makers[number % len(makers)](generator), generator)
    return clouds, np.arange(count, dtype=np.int64) % len(makers)


def placed(points: Points, generator: Generator) -> Points:
    """Turn points about the up axis at random, centre them and scale the longest side to 2."""
    points = points @ rotation_matrix(np.array([[0, -generator.uniform(0, 2 * np.pi), 0]]))[0]
    low, high = points.min(0), points.max(0)
    scaled: Points = (2 * points - low - high) / (high - low).max()
    return scaled


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    clouds, labels = solids()
    return cloud_stream(clouds, labels, domains, data, tuple(SOLIDS))


EMBEDDED_CLOUDS = CloudDataSet("Solids (embedded)", "Generated solids of twelve kinds.", _open, needs_path=False)
