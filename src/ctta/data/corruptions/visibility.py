"""What a camera sees of an object: of its points by hidden-point removal, of its mesh by ray casting; and lidar scans.

Katz, Tal and Basri, "Direct Visibility of Point Sets", SIGGRAPH 2007.

Objects are y up, centred on the origin, and in front of the camera.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from ctta.base.errors import InputError
from ctta.base.fileio import read_lines
from ctta.data.corruptions.warps import Points

Faces: TypeAlias = NDArray[np.int64]  # (F, 3), places in the vertices
Mesh: TypeAlias = tuple[Points, Faces]

WIDTH, HEIGHT, FOCAL = 1080, 720, 365  # pixels: the window of the public generator
# The sphere of hidden-point removal has the distance of the farthest point, times (number of points / FLIP), as radius.
# A larger sphere shows more points. With this one, the number of visible points of boxes, tori, chairs and tubs is
# about right, and nine in ten of them are the visible ones.
FLIP = 32
PAIRS = 2**20  # pairs of a triangle and a pixel that are tested at a time
TOLERANCE = 1e-9
BAND = math.radians(1)  # of a lidar


@dataclass(frozen=True)
class Camera:
    """A camera that points at the origin from a distance; both angles are in radians.

    `angle` is about the up axis. `tilt` is between the line of sight and the up axis: at pi/2 the camera is level with
    the object, at pi right above it.
    """

    angle: float
    tilt: float
    distance: float

    @property
    def axes(self) -> Points:
        """The directions to the side, across and forward, as rows."""
        turn, turned = np.sin(self.angle), np.cos(self.angle)
        sine, cosine = np.sin(self.tilt), np.cos(self.tilt)
        side, across = (-turned, 0, turn), (turn * cosine, sine, turned * cosine)
        return np.array([side, across, (-turn * sine, cosine, -turned * sine)])

    @property
    def position(self) -> Points:
        return np.asarray(-self.distance * self.axes[2])


def visible(points: Points, position: Points) -> NDArray[np.intp]:
    """Return which points can be seen from a position.

    Every point is flipped along its line of sight to the outside of a large sphere, the nearest points farthest. Those
    on the convex hull of the flipped points and the position are visible.
    """
    sight = points - position
    distance = np.linalg.norm(sight, axis=1, keepdims=True)
    radius = max(1, len(points) / FLIP) * distance.max()
    flipped = sight * (2 * radius / distance - 1)
    try:
        hull = ConvexHull(np.concatenate([flipped, np.zeros((1, 3))]))
    except QhullError:  # all in one plane with the camera: nothing can hide anything
        return np.arange(len(points))
    return np.sort(hull.vertices[hull.vertices < len(points)]).astype(np.intp)


def scan(x: Points) -> Points:
    """Keep the points in the middle half of each polar band, seen from the origin, and move them to its middle.

    Bands begin at the smallest angle to the up axis. If no point is in a middle half, all are kept.
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


def cast_rays(mesh: Mesh, camera: Camera) -> Points:
    """Return the points (M, 3) where rays through the centres of pixels first hit a triangle, from either side."""
    vertices, faces = mesh
    side, across, depth = camera.axes @ (vertices - camera.position).T
    near = (1 / depth)[faces]  # (F, 3); unlike depth, linear over the projection of a triangle
    u, v = (FOCAL * side / depth)[faces] + WIDTH / 2 - 0.5, (FOCAL * across / depth)[faces] + HEIGHT / 2 - 0.5
    left, right = np.ceil(u.min(axis=1)).clip(0), np.floor(u.max(axis=1)).clip(max=WIDTH - 1)
    top, bottom = np.ceil(v.min(axis=1)).clip(0), np.floor(v.max(axis=1)).clip(max=HEIGHT - 1)
    columns = (right - left + 1).clip(0).astype(np.int64)
    pixels = columns * (bottom - top + 1).clip(0).astype(np.int64)
    buffer = np.zeros(HEIGHT * WIDTH)
    ends = np.cumsum(pixels)
    for group in np.split(np.arange(len(faces)), np.unique(np.searchsorted(ends, np.arange(PAIRS, ends[-1], PAIRS)))):
        face = np.repeat(group, pixels[group])
        place = np.arange(len(face)) - np.repeat(np.cumsum(pixels[group]) - pixels[group], pixels[group])
        x, y = left[face] + place % columns[face], top[face] + place // columns[face]
        du, dv = u[face] - x[:, None], v[face] - y[:, None]
        # Twice the areas of the three triangles of the pixel and a side, each opposite to its corner.
        areas = np.roll(du, -1, axis=1) * np.roll(dv, -2, axis=1) - np.roll(du, -2, axis=1) * np.roll(dv, -1, axis=1)
        whole = areas.sum(axis=1, keepdims=True)
        weights = np.divide(areas, whole, out=np.full_like(areas, -1.0), where=whole != 0)
        hit = (weights >= -TOLERANCE).all(axis=1)
        pixel = (y[hit] * WIDTH + x[hit]).astype(np.int64)
        np.maximum.at(buffer, pixel, (weights[hit] * near[face[hit]]).sum(axis=1))
    pixel = np.flatnonzero(buffer)
    y, x = np.divmod(pixel, WIDTH)
    rays = np.stack([(x - WIDTH / 2 + 0.5) / FOCAL, (y - HEIGHT / 2 + 0.5) / FOCAL, np.ones(len(pixel))], axis=1)
    return np.asarray(camera.position + (rays / buffer[pixel, None]) @ camera.axes)


def read_off(path: str | os.PathLike[str]) -> Mesh:
    """Read vertices (V, 3) and triangles (F, 3) of an .off file. Polygons are cut into fans.

    ModelNet has files without a line break after the first word, "OFF490 518 0": they are read too.
    """
    text = read_lines(Path(path), "an .off file")
    try:
        words = [parts for line in text if (parts := line.split("#")[0].split())]
        if not words or not words[0][0].startswith("OFF"):
            raise ValueError("the first line is not OFF")
        head = " ".join(words[0])[len("OFF") :].split() or words.pop(1)
        count, faces = int(head[0]), int(head[1])
        vertices = np.array([line[:3] for line in words[1 : 1 + count]], np.float64)
        if vertices.shape != (count, 3):
            raise ValueError(f"it has no {count} vertices of three coordinates")
        polygons = [list(map(int, line[1 : 1 + int(line[0])])) for line in words[1 + count : 1 + count + faces]]
        if len(polygons) != faces:
            raise ValueError(f"it ends after {len(polygons)} of {faces} faces")
        fans = [(p[0], p[i], p[i + 1]) for p in polygons for i in range(1, len(p) - 1)]
        return vertices, np.array(fans, np.int64).reshape(-1, 3)
    except (ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{os.fspath(path)} is no .off file that can be read ({error}): export it again.") from error


def checked_mesh(mesh: Mesh | str | os.PathLike[str]) -> Mesh:
    """Return vertices and triangles after checks; those of a file are turned from z up to y up."""
    if isinstance(mesh, str | os.PathLike):
        vertices, faces = read_off(mesh)
        label, vertices = f"The mesh {os.fspath(mesh)}", vertices[:, [0, 2, 1]] * np.array([-1, 1, 1])
    else:
        label, (vertices, faces) = "A mesh", (np.asarray(mesh[0], np.float64), np.asarray(mesh[1]))
    fits = vertices.ndim == faces.ndim == 2 and vertices.shape[1] == faces.shape[1] == 3 and faces.size > 0
    if not fits or faces.dtype.kind not in "iu" or faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"{label} needs vertices (V, 3) and at least one triangle of three places among them.")
    if not np.isfinite(vertices).all():
        raise InputError(f"{label} has vertices that are not finite: repair it or remove it.")
    return vertices, faces.astype(np.int64)
