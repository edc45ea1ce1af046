"""The 15 point-cloud corruptions of ModelNet40-C, in NumPy, over whole batches.

Sun et al., "Benchmarking Robustness of 3D Point Cloud Recognition Against Common Corruptions", 2022.

There is one function per corruption; the constants are data, in `CONSTANTS`. A function takes a chunk of point clouds
(N, P, 3), y up and within the unit sphere, one random generator per point cloud, and its constants; it returns point
clouds (N, P', 3). A point cloud is bit for bit the same in every batch, on every worker and in every run, see `domain`.

Numbers of points are those of the public sets: if there are more than 1024 points, 1024 are drawn at random first,
unless a corruption needs all of them (density_inc, occlusion, lidar). Smaller point clouds keep their number. From 1024
points at severity 5:

    background 1075    upsampling 2048    density 649    cutout 724    lidar 768    all others 1024

Occlusion and lidar are camera views; their five severities are five directions. The object is first centred and scaled
to a longest side of 2, as the public generator does with its meshes. Hidden-point removal finds the visible points, ray
casting the visible parts of a mesh, see `visibility`. If fewer points are visible than needed, some are repeated.

Departures from the public generator:
- The 1024 points are drawn for each point cloud, instead of once for a whole domain.
- From 1024 points, density_inc cannot show what it shows from 2048: the neighbourhoods keep their density, and the rest
  becomes thinner only by drawing with replacement.
- On points, occlusion and lidar see as many points of a slanted surface as of one that faces them; pixels see fewer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corruptions.domain import Generators, check_domain, domain_key, in_chunks, sample_indices
from ctta.data.corruptions.visibility import Camera, Mesh, cast_rays, checked_mesh, scan, visible
from ctta.data.corruptions.warps import (
    CONTROL,
    Basis,
    Points,
    bernstein,
    inverse_multiquadric,
    multiquadric,
    radial_features,
    radial_weights,
)

Clouds: TypeAlias = NDArray[np.float64]  # (N, P, 3)

CLOUD_NAMES = (
    *("uniform", "gaussian", "background", "impulse", "upsampling", "distortion_rbf", "distortion_rbf_inv", "density"),
    *("density_inc", "shear", "rotation", "cutout", "distortion", "occlusion", "lidar"),
)
"""The fifteen corruptions in the order of the paper's columns, which is the continual order."""

# name -> one tuple of constants per severity, in the order of the function's arguments.
CONSTANTS: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "uniform": ((0.01,), (0.02,), (0.03,), (0.04,), (0.05,)),  # largest move
    "gaussian": ((0.01,), (0.015,), (0.02,), (0.025,), (0.03,)),  # std
    "background": ((45,), (40,), (35,), (30,), (20,)),  # points per added point
    "impulse": ((30,), (25,), (20,), (15,), (10,)),  # points per moved point
    "upsampling": ((5,), (4,), (3,), (2,), (1,)),  # points per added point
    "distortion_rbf": ((0.025,), (0.05,), (0.075,), (0.1,), (0.125,)),  # move of a control point
    "distortion_rbf_inv": ((0.025,), (0.05,), (0.075,), (0.1,), (0.125,)),  # move of a control point
    "density": ((1, 100), (2, 100), (3, 100), (4, 100), (5, 100)),  # neighbourhoods, their size
    "density_inc": ((1, 100), (2, 100), (3, 100), (4, 100), (5, 100)),  # neighbourhoods, their size
    "shear": ((0.05,), (0.1,), (0.15,), (0.2,), (0.25,)),  # mean of the entries
    "rotation": ((2.5,), (5,), (7.5,), (10,), (15,)),  # mean of the angles, in degrees
    "cutout": ((2, 30), (3, 30), (5, 30), (7, 30), (10, 30)),  # neighbourhoods, their size
    "distortion": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),  # largest move of a control point, in sides of the box
    "occlusion": ((1,), (2,), (3,), (4,), (5,)),  # view
    "lidar": ((1,), (2,), (3,), (4,), (5,)),  # view
}

POINTS = 1024  # of a point cloud of the public sets, before it is corrupted
WHOLE = ("density_inc", "occlusion", "lidar")  # these start from all points
LARGEST = 10.0  # larger coordinates are in another unit
CHUNK = 2**15  # points per chunk: few enough for the cache, enough to outweigh the overhead of a NumPy call


def corrupt_clouds(
    points: NDArray[np.float32],
    name: str,
    severity: int = 5,
    seed: int = 0,
    first: int | NDArray[np.int64] = 0,
    meshes: Sequence[Mesh | str | os.PathLike[str]] | None = None,
) -> NDArray[np.float32]:
    """Corrupt float32 point clouds (N, P, 3), y up and within the unit sphere; returns new ones (N, P', 3).

    `first` is the index of `points[0]` in its domain, or one index per point cloud: a domain that is passed in pieces,
    or in any order, gives the same point clouds.
    `meshes`, one per point cloud, replace the points for occlusion and lidar: (vertices, triangles), y up, or paths of
    .off files, z up as in ModelNet.
    """
    check_domain(name, CLOUD_NAMES, severity, seed)
    constants = CONSTANTS[name][severity - 1]
    _check(points, name, constants, meshes)
    n, size, _ = points.shape
    indices, key = sample_indices(first, n), domain_key(name, severity, seed)

    def make(chunk: slice, generators: Generators) -> NDArray[np.float32]:
        x = points[chunk].astype(np.float64)
        if size > POINTS and name not in WHOLE:
            x = x[_rows(x), _draw_rows(generators, size, POINTS)]
        options: dict[str, Any] = {}
        if name in ("occlusion", "lidar") and meshes is not None:
            options["meshes"] = [checked_mesh(mesh) for mesh in meshes[chunk]]
        return CORRUPTIONS[name](x, generators, *constants, **options).astype(np.float32)

    parts = in_chunks(make, key, indices, max(1, CHUNK // size))
    return np.concatenate(parts) if parts else np.empty_like(points)


def _check(points: NDArray[np.float32], name: str, constants: tuple[float, ...], meshes: Any) -> None:
    """Raise an error with a remedy for what cannot be corrupted."""
    if not isinstance(points, np.ndarray):
        kind = type(points).__name__
        raise InputError(f"Point clouds must be a NumPy array of float32 (N, P, 3). Got {kind}: convert it first.")
    if points.dtype != np.float32:
        raise InputError(f"Point clouds must be float32. Got {points.dtype}: convert with .astype(np.float32).")
    if points.ndim != 3 or points.shape[2] != 3:
        remedy = "add the batch axis" if points.ndim == 2 else "move the three coordinates last"
        raise InputError(f"Point clouds must have the shape (N, P, 3). Got {points.shape} instead: {remedy}.")
    needed = _fewest(name, constants)
    if points.shape[1] < needed:
        raise InputError(f"{name} needs point clouds of at least {needed} points. Got {points.shape[1]}: sample more.")
    largest = np.abs(points).max(axis=(1, 2), initial=0)
    if len(bad := np.flatnonzero(~np.isfinite(largest))):
        raise InputError(f"Point cloud {bad[0]} holds NaN or infinity, as do {len(bad) - 1} others: take them out.")
    if len(bad := np.flatnonzero(largest > LARGEST)):
        raise InputError(
            f"Point clouds must lie within the unit sphere or near it. Number {bad[0]} reaches {largest[bad[0]]:.4g} "
            f"({len(bad)} reach beyond {LARGEST:g}): centre each and divide by its largest norm."
        )
    if meshes is not None and len(meshes) != len(points):
        raise InputError(f"There must be one mesh per point cloud. Got {len(meshes)} for {len(points)}.")


def _fewest(name: str, constants: tuple[float, ...]) -> int:
    """Return how many points are needed so that every neighbourhood is full, and something is left."""
    if name not in ("density", "density_inc", "cutout"):
        return 1
    rounds, size = map(int, constants)
    return (rounds - 1) * _thinned(size) + size if name == "density" else rounds * size + 1


# Noise.


def uniform(x: Clouds, generators: Generators, reach: float) -> Clouds:
    """Move every point by U(-reach, reach) along each axis."""
    return normalise(x + _uniform(generators, reach, x.shape[1:]))


def gaussian(x: Clouds, generators: Generators, std: float) -> Clouds:
    """Move every point by N(0, std) along each axis, clipped to the cube."""
    noise = np.stack([generator.standard_normal(x.shape[1:]) for generator in generators])
    return np.clip(x + std * noise, -1, 1)


def background(x: Clouds, generators: Generators, share: int) -> Clouds:
    """Add points anywhere in the cube, one for every `share` points."""
    return normalise(np.concatenate([x, _uniform(generators, 1, (x.shape[1] // share, 3))], axis=1))


def impulse(x: Clouds, generators: Generators, share: int) -> Clouds:
    """Move one point in `share` by 0.1 or -0.1 along each axis."""
    count = x.shape[1] // share
    moved = _draw_rows(generators, x.shape[1], count)
    out = x.copy()
    out[_rows(x), moved] += 0.1 * _signs(generators, (count, 3))
    return normalise(out)


def upsampling(x: Clouds, generators: Generators, share: int) -> Clouds:
    """Add copies of one point in `share`, each moved by U(-0.05, 0.05) along each axis."""
    count = x.shape[1] // share
    copies = x[_rows(x), _draw_rows(generators, x.shape[1], count)]
    return normalise(np.concatenate([x, copies + _uniform(generators, 0.05, (count, 3))], axis=1))


# Warps.


def distortion_rbf(x: Clouds, generators: Generators, length: float) -> Clouds:
    """Move every control point by `length` in a random direction; multiquadrics interpolate the moves."""
    return normalise(x + _radial(x, generators, length, multiquadric))


def distortion_rbf_inv(x: Clouds, generators: Generators, length: float) -> Clouds:
    """Move every control point by `length` in a random direction; inverse multiquadrics interpolate the moves."""
    return normalise(x + _radial(x, generators, length, inverse_multiquadric))


def distortion(x: Clouds, generators: Generators, reach: float) -> Clouds:
    """Move every control point by U(-reach, reach) sides of the box along each axis, then free-form deformation."""
    moves = 2 * _uniform(generators, reach, (len(CONTROL), 3))
    return normalise(x + np.stack([bernstein(cloud) @ move for cloud, move in zip(x, moves, strict=True)]))


def _radial(x: Clouds, generators: Generators, length: float, basis: Basis) -> Clouds:
    """Return the move of each point if the control points move by `length` in random directions."""
    alpha, gamma = np.moveaxis(_uniform(generators, np.pi, (2, len(CONTROL))), 1, 0)
    moves = length * np.stack([np.cos(alpha) * np.sin(gamma), np.sin(alpha) * np.sin(gamma), np.cos(gamma)], axis=-1)
    weights = radial_weights(basis) @ moves  # (N, 129, 3)
    return np.stack([radial_features(cloud, basis) @ weight for cloud, weight in zip(x, weights, strict=True)])


# Density.


def density(x: Clouds, generators: Generators, rounds: int, size: int) -> Clouds:
    """Delete three quarters of the neighbourhood of a random point, `rounds` times."""
    for _ in range(rounds):
        near = _neighbourhood(x, generators, size)
        x = _without(x, near[_rows(x), _draw_rows(generators, size, _thinned(size))])
    return x


def density_inc(x: Clouds, generators: Generators, rounds: int, size: int) -> Clouds:
    """Keep the neighbourhoods of random points, and few of the other points."""
    count = min(x.shape[1], POINTS)
    kept = []
    for _ in range(rounds):
        near = _neighbourhood(x, generators, size)
        kept.append(x[_rows(x), near])
        x = _without(x, near)
    others = np.stack([generator.integers(x.shape[1], size=count - rounds * size) for generator in generators])
    return np.concatenate([*kept, x[_rows(x), others]], axis=1)


def cutout(x: Clouds, generators: Generators, rounds: int, size: int) -> Clouds:
    """Delete the neighbourhood of a random point, `rounds` times."""
    for _ in range(rounds):
        x = _without(x, _neighbourhood(x, generators, size))
    return x


def _thinned(size: int) -> int:
    """Return how many points of a neighbourhood `density` deletes."""
    return 3 * size // 4


def _neighbourhood(x: Clouds, generators: Generators, size: int) -> NDArray[np.intp]:
    """Return the `size` nearest points of a random point of each point cloud, including itself: (N, size)."""
    centre = np.array([[generator.integers(x.shape[1])] for generator in generators])
    distance = np.square(x - x[_rows(x), centre]).sum(axis=2)
    return np.argpartition(distance, size - 1, axis=1)[:, :size]


def _without(x: Clouds, rows: NDArray[np.intp]) -> Clouds:
    """Delete these points (N, K)."""
    kept = np.ones(x.shape[:2], bool)
    kept[_rows(x), rows] = False
    return x[kept].reshape(len(x), -1, 3)


# Linear maps.


def shear(x: Clouds, generators: Generators, middle: float) -> Clouds:
    """Add multiples of y and of each other to x and z."""
    return normalise(x @ shear_matrix(_signed(generators, middle, 0.05, 4)))


def shear_matrix(entries: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return matrices (N, 3, 3) that act on row vectors, from (N, 4) entries."""
    matrix = np.tile(np.eye(3), (len(entries), 1, 1))
    matrix[:, [0, 1, 1, 2], [2, 0, 2, 0]] = entries
    return matrix


def rotation(x: Clouds, generators: Generators, middle: float) -> Clouds:
    """Rotate about all three axes."""
    return normalise(x @ rotation_matrix(np.radians(_signed(generators, middle, 2.5, 3))))


def rotation_matrix(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return matrices (N, 3, 3) that rotate row vectors by minus the angles (N, 3) about x, y and z, as public code."""
    cosine, sine = np.cos(angles), np.sin(angles)
    turns = np.tile(np.eye(3), (3, len(angles), 1, 1))
    for axis, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        turns[axis][:, [i, j], [i, j]] = cosine[:, [axis, axis]]
        turns[axis][:, i, j], turns[axis][:, j, i] = -sine[:, axis], sine[:, axis]
    matrix: NDArray[np.float64] = turns[0] @ turns[1] @ turns[2]
    return matrix


# Views.


def occlusion(x: Clouds, generators: Generators, view: int, meshes: Sequence[Mesh] | None = None) -> Clouds:
    """Keep what a camera sees from a distance of 3, slightly from above."""
    count = min(x.shape[1], POINTS)
    x = normalise(x)
    out = np.empty((len(x), count, 3))
    for i, generator in enumerate(generators):
        camera = Camera(_angle(generator, view), generator.uniform(2 / 3 * np.pi, 5 / 6 * np.pi), 3)
        out[i] = _seen(x[i], meshes[i] if meshes else None, camera, generator, count)
    return normalise(out)


def lidar(x: Clouds, generators: Generators, view: int, meshes: Sequence[Mesh] | None = None) -> Clouds:
    """Keep what a scanner sees from a distance of 5: points on the middle lines of bands of one degree."""
    count = min(x.shape[1], POINTS)
    x = normalise(x)
    out = np.empty((len(x), max(1, 3 * count // 4), 3))
    for i, generator in enumerate(generators):
        camera = Camera(_angle(generator, view), 5 / 8 * np.pi, 5)
        seen = _seen(x[i], meshes[i] if meshes else None, camera, generator, count)
        lines = camera.position + scan(seen - camera.position)
        out[i] = lines[generator.integers(len(lines), size=out.shape[1])]
    return out


def _angle(generator: Generator, view: int) -> float:
    """Draw an angle about the up axis, within a fifth of a turn around one of five directions."""
    return generator.uniform((2 * view - 1) * np.pi / 5, (2 * view + 1) * np.pi / 5)


def _seen(points: Points, mesh: Mesh | None, camera: Camera, generator: Generator, count: int) -> Points:
    """Return `count` points that a camera sees."""
    if mesh is None:
        seen = points[visible(points, camera.position)]
    else:
        vertices, faces = mesh
        seen = cast_rays((normalise(vertices[None])[0], faces), camera)
        if not len(seen):
            raise InputError("A mesh has no surface that a camera could see: repair it or remove it.")
    if len(seen) >= count:
        return seen[generator.choice(len(seen), count, replace=False)]
    return np.concatenate([seen, seen[generator.integers(len(seen), size=count - len(seen))]])


# What several corruptions share.


def normalise(x: Clouds) -> Clouds:
    """Centre each point cloud on its bounding box and scale its longest side to 2."""
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    longest = (high - low).max(axis=2, keepdims=True)
    return np.asarray((x - (low + high) / 2) * (2 / np.where(longest > 0, longest, 2)))


def _rows(x: Clouds) -> NDArray[np.intp]:
    """Return the numbers of the point clouds as a column: x[_rows(x), indices] reads (N, K) points by their indices."""
    return np.arange(len(x))[:, None]


def _uniform(generators: Generators, reach: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw U(-reach, reach) values (N, *shape), each point cloud from its own generator."""
    return np.stack([generator.uniform(-reach, reach, shape) for generator in generators])


def _signs(generators: Generators, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Draw -1 or 1 (N, *shape), each point cloud from its own generator."""
    return 2 * np.stack([generator.integers(2, size=shape) for generator in generators]) - 1


def _signed(generators: Generators, middle: float, reach: float, count: int) -> NDArray[np.float64]:
    """Draw U(middle - reach, middle + reach) values (N, count) with random signs."""
    return (middle + _uniform(generators, reach, (count,))) * _signs(generators, (count,))


def _draw_rows(generators: Generators, size: int, count: int) -> NDArray[np.intp]:
    """Draw `count` different indices below `size`: (N, count)."""
    return np.stack([generator.choice(size, count, replace=False) for generator in generators])


CORRUPTIONS: Mapping[str, Callable[..., Clouds]] = {
    function.__name__: function
    for function in (
        *(uniform, gaussian, background, impulse, upsampling, distortion_rbf, distortion_rbf_inv, density, density_inc),
        *(shear, rotation, cutout, distortion, occlusion, lidar),
    )
}
