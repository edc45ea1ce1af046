"""Speedup over a plain loop: the fifteen point-cloud corruptions at severity 5 on 2,468 clouds of 1024 points.

    python -m benchmarks.cloud_corruptions

The plain loop does the same computation with the same draws, one cloud at a time. It runs on a few clouds, interleaved
with ours on all of them, and its time is scaled to the same number. Before the timing, both must agree to one part in
100,000.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from scipy.spatial.distance import cdist
from scipy.special import binom

from benchmarks.timing import medians
from ctta.data.corruptions import CLOUD_NAMES, corrupt_clouds
from ctta.data.corruptions.clouds import CONSTANTS
from ctta.data.corruptions.domain import domain_key

COUNT, PLAIN_COUNT, SEVERITY = 2468, 12, 5
Cloud = NDArray[np.float64]  # (P, 3)


def norm(cloud: Cloud) -> Cloud:
    """Centre the bounding box, longest side 2."""
    low, high = cloud.min(axis=0), cloud.max(axis=0)
    return (cloud - (low + high) / 2) * 2 / max(high - low)


def uniform(cloud: Cloud, generator: Generator, reach: float) -> Cloud:
    """x + U(-reach, reach)."""
    return norm(cloud + generator.uniform(-reach, reach, cloud.shape))


def gaussian(cloud: Cloud, generator: Generator, std: float) -> Cloud:
    """x + N(0, std), clipped."""
    return np.clip(cloud + std * generator.standard_normal(cloud.shape), -1, 1)


def background(cloud: Cloud, generator: Generator, share: int) -> Cloud:
    """Points in the cube."""
    return norm(np.vstack([cloud, generator.uniform(-1, 1, (len(cloud) // share, 3))]))


def impulse(cloud: Cloud, generator: Generator, share: int) -> Cloud:
    """Point after point is moved."""
    out, count = cloud.copy(), len(cloud) // share
    places = generator.choice(len(cloud), count, replace=False)
    for place, signs in zip(places, generator.integers(2, size=(count, 3)), strict=True):
        out[place] += [0.1 if sign else -0.1 for sign in signs]
    return norm(out)


def upsampling(cloud: Cloud, generator: Generator, share: int) -> Cloud:
    """Copies with noise."""
    count = len(cloud) // share
    copies = cloud[generator.choice(len(cloud), count, replace=False)]
    return norm(np.vstack([cloud, copies + generator.uniform(-0.05, 0.05, (count, 3))]))


def radial(cloud: Cloud, generator: Generator, length: float, basis: Callable[[Cloud], Cloud]) -> Cloud:
    """Solve for the weights of one cloud, then apply them."""
    side = np.linspace(-1, 1, 5)
    control = np.array([(x, y, z) for x in side for y in side for z in side])
    alpha, gamma = generator.uniform(-np.pi, np.pi, (2, 125))
    moves = np.column_stack([np.cos(alpha) * np.sin(gamma), np.sin(alpha) * np.sin(gamma), np.cos(gamma)])
    system, target = np.zeros((129, 129)), np.zeros((129, 3))
    system[:125, :125] = basis(cdist(control, control))
    system[:125, 125], system[125, :125] = 1, 1
    system[:125, 126:], system[126:, :125] = control, control.T
    target[:125] = control + length * moves
    weights = np.linalg.solve(system, target)
    return norm(basis(cdist(cloud, control)) @ weights[:125] + weights[125] + cloud @ weights[126:])


def distortion_rbf(cloud: Cloud, generator: Generator, length: float) -> Cloud:
    """Multiquadric."""
    return radial(cloud, generator, length, lambda d: np.sqrt(d**2 + 0.25))


def distortion_rbf_inv(cloud: Cloud, generator: Generator, length: float) -> Cloud:
    """Inverse multiquadric."""
    return radial(cloud, generator, length, lambda d: 1 / np.sqrt(d**2 + 0.25))


def distortion(cloud: Cloud, generator: Generator, reach: float) -> Cloud:
    """A sum over the control points."""
    moves = generator.uniform(-reach, reach, (5, 5, 5, 3))
    t = (cloud + 1) / 2
    shares = [binom(4, i) * t**i * (1 - t) ** (4 - i) for i in range(5)]
    shift = np.zeros_like(cloud)
    for i in range(5):
        for j in range(5):
            for k in range(5):
                shift += (shares[i][:, 0] * shares[j][:, 1] * shares[k][:, 2])[:, None] * moves[i, j, k]
    shift[(t < 0).any(axis=1) | (t > 1).any(axis=1)] = 0
    return norm(cloud + 2 * shift)


def neighbours(cloud: Cloud, generator: Generator, size: int) -> NDArray[np.intp]:
    """The nearest to a random point."""
    distance = ((cloud - cloud[generator.integers(len(cloud))]) ** 2).sum(axis=1)
    return np.argpartition(distance, size - 1)[:size]


def density(cloud: Cloud, generator: Generator, rounds: int, size: int) -> Cloud:
    """Thin out neighbourhoods."""
    for _ in range(rounds):
        near = neighbours(cloud, generator, size)
        cloud = np.delete(cloud, near[generator.choice(size, int(size * 0.75), replace=False)], axis=0)
    return cloud


def density_inc(cloud: Cloud, generator: Generator, rounds: int, size: int) -> Cloud:
    """Keep neighbourhoods, thin out the rest."""
    kept = []
    for _ in range(rounds):
        near = neighbours(cloud, generator, size)
        kept.append(cloud[near])
        cloud = np.delete(cloud, near, axis=0)
    return np.vstack([*kept, cloud[generator.integers(len(cloud), size=1024 - rounds * size)]])


def cutout(cloud: Cloud, generator: Generator, rounds: int, size: int) -> Cloud:
    """Delete neighbourhoods."""
    for _ in range(rounds):
        cloud = np.delete(cloud, neighbours(cloud, generator, size), axis=0)
    return cloud


def signed(generator: Generator, middle: float, reach: float, count: int) -> list[float]:
    """Draws of either sign."""
    sizes = generator.uniform(-reach, reach, count) + middle
    return [float(size if sign else -size) for size, sign in zip(sizes, generator.integers(2, size=count), strict=True)]


def shear(cloud: Cloud, generator: Generator, middle: float) -> Cloud:
    """One matrix."""
    b, d, e, f = signed(generator, middle, 0.05, 4)
    return norm(cloud @ np.array([[1, 0, b], [d, 1, e], [f, 0, 1]]))


def rotation(cloud: Cloud, generator: Generator, middle: float) -> Cloud:
    """Three matrices."""
    a, b, c = map(math.radians, signed(generator, middle, 2.5, 3))
    about_x = np.array([[1, 0, 0], [0, math.cos(a), -math.sin(a)], [0, math.sin(a), math.cos(a)]])
    about_y = np.array([[math.cos(b), 0, math.sin(b)], [0, 1, 0], [-math.sin(b), 0, math.cos(b)]])
    about_z = np.array([[math.cos(c), -math.sin(c), 0], [math.sin(c), math.cos(c), 0], [0, 0, 1]])
    return norm(cloud @ about_x @ about_y @ about_z)


def seen(cloud: Cloud, generator: Generator, position: Cloud) -> Cloud:
    """Hidden-point removal, point by point; 1024 points."""
    farthest = max(math.dist(point, position) for point in cloud)
    flipped = [np.zeros(3)]
    for point in cloud:
        distance = math.dist(point, position)
        flipped.append((point - position) / distance * (2 * 32 * farthest - distance))
    found = cloud[sorted(vertex - 1 for vertex in ConvexHull(np.array(flipped)).vertices if vertex)]
    return np.vstack([found, found[generator.integers(len(found), size=1024 - len(found))]])


def standpoint(angle: float, tilt: float, distance: float) -> Cloud:
    """Where a camera stands."""
    level = distance * math.sin(tilt)
    return np.array([level * math.sin(angle), -distance * math.cos(tilt), level * math.cos(angle)])


def occlusion(cloud: Cloud, generator: Generator, view: int) -> Cloud:
    """What a camera sees."""
    angle = generator.uniform(2 * math.pi * view / 5 - math.pi / 5, 2 * math.pi * view / 5 + math.pi / 5)
    tilt = generator.uniform(2 / 3 * math.pi, 5 / 6 * math.pi)
    return norm(seen(norm(cloud), generator, standpoint(angle, tilt, 3)))


def lidar(cloud: Cloud, generator: Generator, view: int) -> Cloud:
    """Point after point into its band."""
    angle = generator.uniform(2 * math.pi * view / 5 - math.pi / 5, 2 * math.pi * view / 5 + math.pi / 5)
    sensor = standpoint(angle, 5 / 8 * math.pi, 5)
    rays = seen(norm(cloud), generator, sensor) - sensor
    polar = [math.degrees(math.acos(ray[1] / math.hypot(*ray))) for ray in rays]
    kept = []
    for ray, degrees in zip(rays, polar, strict=True):
        band, place = divmod(degrees - min(polar), 1)
        if 0.25 <= place < 0.75:
            middle, azimuth = math.radians(min(polar) + band + 0.5), math.atan2(ray[2], ray[0])
            level = math.hypot(*ray) * math.sin(middle)
            kept.append([level * math.cos(azimuth), math.hypot(*ray) * math.cos(middle), level * math.sin(azimuth)])
    return sensor + np.array(kept)[generator.integers(len(kept), size=768)]


PLAIN: dict[str, Callable[..., Cloud]] = {name: globals()[name] for name in CLOUD_NAMES}


def plain(clouds: NDArray[np.float32], name: str, severity: int = SEVERITY) -> NDArray[np.float64]:
    """The loop over clouds."""
    constants, key = CONSTANTS[name][severity - 1], domain_key(name, severity, 0)
    return np.stack(
        [
            PLAIN[name](cloud.astype(np.float64), Generator(Philox(key=key, counter=[0, 0, 0, i])), *constants)
            for i, cloud in enumerate(clouds)
        ]
    )


def load() -> NDArray[np.float32]:
    """2,468 point clouds: ModelNet10 repeated if it is available, otherwise ellipsoids of all proportions."""
    path = Path(os.environ.get("CTTA_DATA", "../shared/data")) / "modelnet10_test_454.npz"
    if path.exists():
        with np.load(path) as archive:
            return np.resize(archive["points"], (COUNT, 1024, 3)).astype(np.float32)
    generator = np.random.default_rng(0)
    points = generator.standard_normal((COUNT, 1024, 3))
    points *= generator.uniform(0.2, 1, (COUNT, 1, 3)) / np.linalg.norm(points, axis=2, keepdims=True)
    return points.astype(np.float32)


def main() -> None:
    """Print the table."""
    clouds = load()
    few = clouds[:PLAIN_COUNT]
    print(f"Point-cloud corruptions, severity {SEVERITY}, {COUNT} clouds of 1024 points, {os.cpu_count()} cores")
    print(f"{'':20} {'plain loop s':>13} {'ctta s':>8} {'ratio':>7}")
    total = {"plain": 0.0, "ctta": 0.0}
    for name in CLOUD_NAMES:
        apart = np.abs(plain(few, name) - corrupt_clouds(few, name, SEVERITY)).max()
        if apart > 1e-5:
            raise SystemExit(f"{name}: the plain loop and ctta differ by {apart:.2g}.")
        seconds = medians(
            {
                "plain": lambda name=name: plain(few, name),  # type: ignore[misc]
                "ctta": lambda name=name: corrupt_clouds(clouds, name, SEVERITY),  # type: ignore[misc]
            },
            rounds=3,
            warm_up=0,
        )
        seconds["plain"] *= COUNT / PLAIN_COUNT
        for way in total:
            total[way] += seconds[way]
        print(f"{name:20} {seconds['plain']:13.2f} {seconds['ctta']:8.2f} {seconds['plain'] / seconds['ctta']:7.1f}")
    print(f"{'all fifteen':20} {total['plain']:13.2f} {total['ctta']:8.2f} {total['plain'] / total['ctta']:7.1f}")


if __name__ == "__main__":
    main()
