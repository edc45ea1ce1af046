"""The 15 point-cloud corruptions of ModelNet40-C, in NumPy, over whole batches.

Sun et al., "Benchmarking Robustness of 3D Point Cloud Recognition Against Common Corruptions", 2022.

One function a corruption, constants as data in `CONSTANTS`. Each function takes a chunk of clouds (N, P, 3), y up and
within the unit sphere, one random generator a cloud, and its constants; it returns clouds (N, P', 3). A cloud is bit
for bit the same in every batch, on every worker and on every run, see `domain.py`.

Counts are those of the public sets: clouds of more than 1024 points are first reduced to 1024 drawn at random, except
where a corruption needs them all (density_inc, occlusion, lidar). Clouds of fewer points keep their own number. From
1024 points at severity 5:

    background 1075    upsampling 2048    density 649    cutout 724    lidar 768    all others 1024

Occlusion and lidar are views, and their five severities five directions. The object is first centred and scaled to a
longest side of 2, as the public generator does with its meshes. Of points, those are seen that hidden-point removal
leaves, of meshes those that rays meet, see `visibility.py`. Where fewer are seen than are needed, all stay and more
are drawn among them: points are doubled, none is invented.

Departures from the public generator:
- The 1024 points are drawn anew for each cloud, not once for a whole domain.
- From 1024 points, density_inc cannot show what 2048 would: the neighbourhoods stay as dense as they are, and the rest
  thins out by drawing with replacement alone.
- On points, occlusion and lidar see as many points of a slanted surface as of one that faces them; pixels see fewer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corruptions.domain import THREADS, check_domain, domain_key, in_chunks, sample_generators, sample_indices
from ctta.data.corruptions.visibility import Camera, Mesh, cast_rays, read_off, visible

Clouds: TypeAlias = NDArray[np.float64]  # (N, P, 3)
Points: TypeAlias = NDArray[np.float64]  # (P, 3)
Corruption: TypeAlias = Callable[..., Clouds]
Basis: TypeAlias = Callable[[Points], NDArray[np.float64]]

CLOUD_NAMES = (
    "uniform",
    "gaussian",
    "background",
    "impulse",
    "upsampling",
    "distortion_rbf",
    "distortion_rbf_inv",
    "density",
    "density_inc",
    "shear",
    "rotation",
    "cutout",
    "distortion",
    "occlusion",
    "lidar",
)
"""The fifteen corruptions in the order of the paper's columns: the continual order."""

# name -> one tuple of constants a severity, in the order of the function's arguments.
CONSTANTS: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "uniform": ((0.01,), (0.02,), (0.03,), (0.04,), (0.05,)),  # largest move
    "gaussian": ((0.01,), (0.015,), (0.02,), (0.025,), (0.03,)),  # std
    "background": ((45,), (40,), (35,), (30,), (20,)),  # one point for so many
    "impulse": ((30,), (25,), (20,), (15,), (10,)),  # one point in so many
    "upsampling": ((5,), (4,), (3,), (2,), (1,)),  # one point for so many
    "distortion_rbf": ((0.025,), (0.05,), (0.075,), (0.1,), (0.125,)),  # move of a control point
    "distortion_rbf_inv": ((0.025,), (0.05,), (0.075,), (0.1,), (0.125,)),  # move of a control point
    "density": ((1, 100), (2, 100), (3, 100), (4, 100), (5, 100)),  # neighbourhoods, their size
    "density_inc": ((1, 100), (2, 100), (3, 100), (4, 100), (5, 100)),  # neighbourhoods, their size
    "shear": ((0.05,), (0.1,), (0.15,), (0.2,), (0.25,)),  # middle of the entries
    "rotation": ((2.5,), (5,), (7.5,), (10,), (15,)),  # middle of the angles, in degrees
    "cutout": ((2, 30), (3, 30), (5, 30), (7, 30), (10, 30)),  # neighbourhoods, their size
    "distortion": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),  # largest move of a control point, in sides of the box
    "occlusion": ((1,), (2,), (3,), (4,), (5,)),  # view
    "lidar": ((1,), (2,), (3,), (4,), (5,)),  # view
}

POINTS = 1024  # in a cloud of the public sets, before it is corrupted
WHOLE = ("density_inc", "occlusion", "lidar")  # these start from all points there are
LARGEST = 10.0  # coordinates beyond this are in some other unit
LATTICE = np.linspace(-1, 1, 5)
CONTROL = np.stack(np.meshgrid(LATTICE, LATTICE, LATTICE, indexing="ij"), axis=-1).reshape(-1, 3)
"""The 5 x 5 x 5 control points of the warps."""
BAND = math.radians(1)  # of a lidar
# Points in a chunk: small enough for the cache, large enough that one call of NumPy is worth its while.
CHUNK = 2**15


def corrupt_clouds(
    points: NDArray[np.float32],
    name: str,
    severity: int = 5,
    seed: int = 0,
    first: int | NDArray[np.int64] = 0,
    meshes: Sequence[Mesh | str | os.PathLike[str]] | None = None,
) -> NDArray[np.float32]:
    """Corrupt float32 clouds (N, P, 3), y up and within the unit sphere; returns new float32 clouds (N, P', 3).

    `first` is the index of `points[0]` in its domain, or one index a cloud: hand over a domain in pieces, or in any
    order, and get the same clouds.
    `meshes` are what occlusion and lidar look at instead of the points, one a cloud: (vertices, triangles), y up, or
    paths of .off files, z up as ModelNet has them.
    """
    check_domain(name, CLOUD_NAMES, severity, seed)
    constants = CONSTANTS[name][severity - 1]
    _check(points, name, constants, meshes)
    n, size, _ = points.shape
    indices, key = sample_indices(first, n), domain_key(name, severity, seed)

    def make(chunk: slice) -> NDArray[np.float32]:
        generators = sample_generators(key, indices[chunk])
        x = points[chunk].astype(np.float64)
        if size > POINTS and name not in WHOLE:
            x = x[_rows(x), _draw_rows(generators, size, POINTS)]
        options: dict[str, Any] = {}
        if name in ("occlusion", "lidar") and meshes is not None:
            options["meshes"] = [_mesh(mesh) for mesh in meshes[chunk]]
        return CORRUPTIONS[name](x, generators, *constants, **options).astype(np.float32)

    parts = in_chunks(make, n, max(1, CHUNK // size), THREADS)
    return np.concatenate(parts) if parts else np.empty_like(points)


def _check(points: NDArray[np.float32], name: str, constants: tuple[float, ...], meshes: Any) -> None:
    """Refuse what cannot be corrupted, with the remedy."""
    if not isinstance(points, np.ndarray):
        kind = type(points).__name__
        raise InputError(f"Clouds must be a NumPy array of float32 (N, P, 3). Got {kind} instead: convert it first.")
    if points.dtype != np.float32:
        raise InputError(f"Clouds must be float32. Got {points.dtype} instead: convert with .astype(np.float32).")
    if points.ndim != 3 or points.shape[2] != 3:
        remedy = "add the batch axis" if points.ndim == 2 else "move the three coordinates last"
        raise InputError(f"Clouds must have the shape (N, P, 3). Got {points.shape} instead: {remedy}.")
    needed = _fewest(name, constants)
    if points.shape[1] < needed:
        raise InputError(
            f"{name} needs clouds of at least {needed} points. Got {points.shape[1]}: sample more of them."
        )
    largest = np.abs(points).max(axis=(1, 2), initial=0)
    if len(bad := np.flatnonzero(~np.isfinite(largest))):
        raise InputError(f"Cloud {bad[0]} holds values that are not finite ({len(bad)} clouds do): take them out.")
    if len(bad := np.flatnonzero(largest > LARGEST)):
        raise InputError(
            f"Clouds must lie within the unit sphere or near it. Cloud {bad[0]} reaches {largest[bad[0]]:.4g} "
            f"({len(bad)} clouds reach beyond {LARGEST:g}): centre each and divide by its largest norm."
        )
    if meshes is not None and len(meshes) != len(points):
        raise InputError(f"There must be one mesh a cloud. Got {len(meshes)} meshes for {len(points)} clouds.")


def _fewest(name: str, constants: tuple[float, ...]) -> int:
    """How many points a cloud must have so that every neighbourhood is full, and something is left."""
    if name not in ("density", "density_inc", "cutout"):
        return 1
    rounds, size = map(int, constants)
    return (rounds - 1) * _thinned(size) + size if name == "density" else rounds * size + 1


def _mesh(mesh: Mesh | str | os.PathLike[str]) -> Mesh:
    """Vertices and triangles that fit each other; those of a file turned from z up to y up."""
    if isinstance(mesh, str | os.PathLike):
        vertices, faces = read_off(mesh)
        label, vertices = f"The mesh {os.fspath(mesh)}", vertices[:, [0, 2, 1]] * np.array([-1, 1, 1])
    else:
        label, (vertices, faces) = "A mesh", (np.asarray(mesh[0], np.float64), np.asarray(mesh[1]))
    fits = vertices.ndim == faces.ndim == 2 and vertices.shape[1] == faces.shape[1] == 3 and faces.size > 0
    if not fits or faces.dtype.kind not in "iu" or faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"{label} needs vertices (V, 3) and at least one triangle of three places among them.")
    if not np.isfinite(vertices).all():
        raise InputError(f"{label} has vertices that are not finite: repair it or leave it out.")
    return vertices, faces.astype(np.int64)


# Noise.


def uniform(x: Clouds, generators: Sequence[Generator], reach: float) -> Clouds:
    """Move every point by U(-reach, reach) along each axis."""
    return normalise(x + _uniform(generators, reach, x.shape[1:]))


def gaussian(x: Clouds, generators: Sequence[Generator], std: float) -> Clouds:
    """Move every point by N(0, std) along each axis; nothing leaves the cube."""
    noise = np.stack([generator.standard_normal(x.shape[1:]) for generator in generators])
    return np.clip(x + std * noise, -1, 1)


def background(x: Clouds, generators: Sequence[Generator], share: int) -> Clouds:
    """Add points anywhere in the cube, one for every `share` points."""
    return normalise(np.concatenate([x, _uniform(generators, 1, (x.shape[1] // share, 3))], axis=1))


def impulse(x: Clouds, generators: Sequence[Generator], share: int) -> Clouds:
    """Move one point in `share` by 0.1 along each axis, one way or the other."""
    count = x.shape[1] // share
    moved = _draw_rows(generators, x.shape[1], count)
    out = x.copy()
    out[_rows(x), moved] += 0.1 * _signs(generators, (count, 3))
    return normalise(out)


def upsampling(x: Clouds, generators: Sequence[Generator], share: int) -> Clouds:
    """Add copies of one point in `share`, each moved by U(-0.05, 0.05) along each axis."""
    count = x.shape[1] // share
    copies = x[_rows(x), _draw_rows(generators, x.shape[1], count)]
    return normalise(np.concatenate([x, copies + _uniform(generators, 0.05, (count, 3))], axis=1))


# Warps: linear in the moves of the control points.


def distortion_rbf(x: Clouds, generators: Sequence[Generator], length: float) -> Clouds:
    """Move every control point by `length` in a random direction; multiquadrics carry the points along."""
    return normalise(x + _radial(x, generators, length, multiquadric))


def distortion_rbf_inv(x: Clouds, generators: Sequence[Generator], length: float) -> Clouds:
    """Move every control point by `length` in a random direction; inverse multiquadrics carry the points along."""
    return normalise(x + _radial(x, generators, length, inverse_multiquadric))


def distortion(x: Clouds, generators: Sequence[Generator], reach: float) -> Clouds:
    """Move every control point by U(-reach, reach) sides of the box along each axis, then free-form deformation."""
    moves = 2 * _uniform(generators, reach, (len(CONTROL), 3))
    return normalise(x + np.stack([bernstein(cloud) @ move for cloud, move in zip(x, moves, strict=True)]))


def _radial(x: Clouds, generators: Sequence[Generator], length: float, basis: Basis) -> Clouds:
    """How far each point goes when the control points go `length` in random directions."""
    alpha, gamma = np.moveaxis(_uniform(generators, np.pi, (2, len(CONTROL))), 1, 0)
    moves = length * np.stack([np.cos(alpha) * np.sin(gamma), np.sin(alpha) * np.sin(gamma), np.cos(gamma)], axis=-1)
    weights = radial_weights(basis) @ moves  # (N, 129, 3)
    return np.stack([radial_features(cloud, basis) @ weight for cloud, weight in zip(x, weights, strict=True)])


def multiquadric(x: Points) -> NDArray[np.float64]:
    """sqrt(d^2 + 1/4), for the distance d of each point to each control point: (P, 125)."""
    axes = np.square(x[:, :, None] - LATTICE)  # (P, 3, 5)
    squares = axes[:, 0, :, None, None] + axes[:, 1, None, :, None] + (axes[:, 2] + 0.25)[:, None, None]
    return np.sqrt(squares, out=squares).reshape(len(x), -1)


def inverse_multiquadric(x: Points) -> NDArray[np.float64]:
    """1 / sqrt(d^2 + 1/4), for the distance d of each point to each control point: (P, 125)."""
    return np.reciprocal(multiquadric(x))


def radial_features(x: Points, basis: Basis) -> NDArray[np.float64]:
    """The basis and the affine terms: (P, 129)."""
    return np.concatenate([basis(x), np.ones((len(x), 1)), x], axis=1)


@lru_cache(maxsize=2)
def radial_weights(basis: Basis) -> NDArray[np.float64]:
    """The matrix (129, 125) from the moves of the control points to the weights of the features.

    The warp takes each control point where it is moved to, and the weights of the basis annul every affine function.
    """
    count = len(CONTROL)
    features = radial_features(CONTROL, basis)
    affine = features[:, count:]
    system = np.block([[features], [affine.T, np.zeros((4, 4))]])
    return np.linalg.inv(system)[:, :count]


def bernstein(x: Points) -> NDArray[np.float64]:
    """The share of each control point's move that each point takes: (P, 125). None outside the cube."""
    t = ((x + 1) / 2)[:, :, None]
    degree = np.arange(5)
    axes = np.array([1, 4, 6, 4, 1]) * t**degree * (1 - t) ** (4 - degree)  # (P, 3, 5)
    axes[(np.abs(x) > 1).any(axis=1)] = 0
    return (axes[:, 0, :, None, None] * axes[:, 1, None, :, None] * axes[:, 2, None, None]).reshape(len(x), -1)


# Density.


def density(x: Clouds, generators: Sequence[Generator], rounds: int, size: int) -> Clouds:
    """Delete three quarters of the neighbourhood of a random point, again and again."""
    for _ in range(rounds):
        near = _neighbourhood(x, generators, size)
        x = _without(x, near[_rows(x), _draw_rows(generators, size, _thinned(size))])
    return x


def density_inc(x: Clouds, generators: Sequence[Generator], rounds: int, size: int) -> Clouds:
    """Keep the neighbourhoods of random points, and few of all other points."""
    count = min(x.shape[1], POINTS)
    kept = []
    for _ in range(rounds):
        near = _neighbourhood(x, generators, size)
        kept.append(x[_rows(x), near])
        x = _without(x, near)
    others = np.stack([generator.integers(x.shape[1], size=count - rounds * size) for generator in generators])
    return np.concatenate([*kept, x[_rows(x), others]], axis=1)


def cutout(x: Clouds, generators: Sequence[Generator], rounds: int, size: int) -> Clouds:
    """Delete the neighbourhood of a random point, again and again."""
    for _ in range(rounds):
        x = _without(x, _neighbourhood(x, generators, size))
    return x


def _thinned(size: int) -> int:
    """How many points of a neighbourhood `density` deletes."""
    return 3 * size // 4


def _neighbourhood(x: Clouds, generators: Sequence[Generator], size: int) -> NDArray[np.intp]:
    """The `size` points next to a random point of each cloud, itself among them: (N, size)."""
    centre = np.array([[generator.integers(x.shape[1])] for generator in generators])
    distance = np.square(x - x[_rows(x), centre]).sum(axis=2)
    return np.argpartition(distance, size - 1, axis=1)[:, :size]


def _without(x: Clouds, rows: NDArray[np.intp]) -> Clouds:
    """The clouds without these points (N, K)."""
    kept = np.ones(x.shape[:2], bool)
    kept[_rows(x), rows] = False
    return x[kept].reshape(len(x), -1, 3)


# Linear maps.


def shear(x: Clouds, generators: Sequence[Generator], middle: float) -> Clouds:
    """Let x and z take from each other and from y."""
    return normalise(x @ shear_matrix(_signed(generators, middle, 0.05, 4)))


def shear_matrix(entries: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, 4) entries to (N, 3, 3) matrices that act on row vectors."""
    matrix = np.tile(np.eye(3), (len(entries), 1, 1))
    matrix[:, [0, 1, 1, 2], [2, 0, 2, 0]] = entries
    return matrix


def rotation(x: Clouds, generators: Sequence[Generator], middle: float) -> Clouds:
    """Turn about all three axes."""
    return normalise(x @ rotation_matrix(np.radians(_signed(generators, middle, 2.5, 3))))


def rotation_matrix(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, 3) angles about x, y and z, in that order, to (N, 3, 3) matrices that act on row vectors."""
    cosine, sine = np.cos(angles), np.sin(angles)
    turns = np.tile(np.eye(3), (3, len(angles), 1, 1))
    for axis, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        turns[axis][:, [i, j], [i, j]] = cosine[:, [axis, axis]]
        turns[axis][:, i, j], turns[axis][:, j, i] = -sine[:, axis], sine[:, axis]
    matrix: NDArray[np.float64] = turns[0] @ turns[1] @ turns[2]
    return matrix


# Views.


def occlusion(x: Clouds, generators: Sequence[Generator], view: int, meshes: Sequence[Mesh] | None = None) -> Clouds:
    """What a camera sees from a distance of 3, somewhat from above."""
    count = min(x.shape[1], POINTS)
    x = normalise(x)
    out = np.empty((len(x), count, 3))
    for i, generator in enumerate(generators):
        camera = Camera(_angle(generator, view), generator.uniform(2 / 3 * np.pi, 5 / 6 * np.pi), 3)
        out[i] = _seen(x[i], meshes[i] if meshes else None, camera, generator, count)
    return normalise(out)


def lidar(x: Clouds, generators: Sequence[Generator], view: int, meshes: Sequence[Mesh] | None = None) -> Clouds:
    """What a scanner sees from a distance of 5: points on the middle lines of bands of one degree."""
    count = min(x.shape[1], POINTS)
    x = normalise(x)
    out = np.empty((len(x), max(1, 3 * count // 4), 3))
    for i, generator in enumerate(generators):
        camera = Camera(_angle(generator, view), 5 / 8 * np.pi, 5)
        seen = _seen(x[i], meshes[i] if meshes else None, camera, generator, count)
        lines = camera.position + scan(seen - camera.position)
        out[i] = lines[generator.integers(len(lines), size=out.shape[1])]
    return out


def scan(x: Points) -> Points:
    """The points, seen from the origin, in the middle half of each polar band, snapped to its middle.

    Bands begin at the smallest angle to the up axis. Where none lies in a middle half, all stay.
    """
    level = np.hypot(x[:, 0], x[:, 2])
    polar, distance = np.arctan2(level, x[:, 1]), np.linalg.norm(x, axis=1)
    band, place = np.divmod((polar - polar.min()) / BAND, 1)
    middle = (place >= 0.25) & (place < 0.75)
    kept = middle if middle.any() else np.ones_like(middle)
    snapped = polar.min() + (band[kept] + 0.5) * BAND
    outward = x[kept][:, [0, 2]] / np.maximum(level[kept, None], 1e-12)
    across, up = distance[kept] * np.sin(snapped), distance[kept] * np.cos(snapped)
    return np.stack([across * outward[:, 0], up, across * outward[:, 1]], axis=1)


def _angle(generator: Generator, view: int) -> float:
    """One of five directions round the up axis, give or take half the way to the next."""
    return generator.uniform((2 * view - 1) * np.pi / 5, (2 * view + 1) * np.pi / 5)


def _seen(points: Points, mesh: Mesh | None, camera: Camera, generator: Generator, count: int) -> Points:
    """`count` points that a camera sees."""
    if mesh is None:
        seen = points[visible(points, camera.position)]
    else:
        vertices, faces = mesh
        seen = cast_rays((normalise(vertices[None])[0], faces), camera)
        if not len(seen):
            raise InputError("A mesh has no surface that a camera could see: repair it or leave it out.")
    if len(seen) >= count:
        return seen[generator.choice(len(seen), count, replace=False)]
    return np.concatenate([seen, seen[generator.integers(len(seen), size=count - len(seen))]])


# What several corruptions share.


def normalise(x: Clouds) -> Clouds:
    """Centre each cloud on its bounding box and scale its longest side to 2."""
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    longest = (high - low).max(axis=2, keepdims=True)
    return np.asarray((x - (low + high) / 2) * (2 / np.where(longest > 0, longest, 2)))


def _rows(x: Clouds) -> NDArray[np.intp]:
    """The places of the clouds, as a column: x[_rows(x), places] reads (N, K) places of the clouds' own points."""
    return np.arange(len(x))[:, None]


def _uniform(generators: Sequence[Generator], reach: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """U(-reach, reach) draws (N, *shape), each cloud from its own generator."""
    return np.stack([generator.uniform(-reach, reach, shape) for generator in generators])


def _signs(generators: Sequence[Generator], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """-1 or 1 (N, *shape), each cloud from its own generator."""
    return 2 * np.stack([generator.integers(2, size=shape) for generator in generators]) - 1


def _signed(generators: Sequence[Generator], middle: float, reach: float, count: int) -> NDArray[np.float64]:
    """U(middle - reach, middle + reach) draws (N, count) of either sign."""
    return (middle + _uniform(generators, reach, (count,))) * _signs(generators, (count,))


def _draw_rows(generators: Sequence[Generator], size: int, count: int) -> NDArray[np.intp]:
    """`count` different places among `size`: (N, count)."""
    return np.stack([generator.choice(size, count, replace=False) for generator in generators])


CORRUPTIONS: Mapping[str, Corruption] = {
    "uniform": uniform,
    "gaussian": gaussian,
    "background": background,
    "impulse": impulse,
    "upsampling": upsampling,
    "distortion_rbf": distortion_rbf,
    "distortion_rbf_inv": distortion_rbf_inv,
    "density": density,
    "density_inc": density_inc,
    "shear": shear,
    "rotation": rotation,
    "cutout": cutout,
    "distortion": distortion,
    "occlusion": occlusion,
    "lidar": lidar,
}
