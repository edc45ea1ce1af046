"""What a camera sees of an object: of its points, by hidden-point removal, and of its mesh, by casting rays.

Katz, Tal and Basri, "Direct Visibility of Point Sets", SIGGRAPH 2007.

Objects are y up, centred on the origin, and lie in front of the camera.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from ctta.base.errors import InputError

Points: TypeAlias = NDArray[np.float64]  # (P, 3)
Faces: TypeAlias = NDArray[np.int64]  # (F, 3), places in the vertices
Mesh: TypeAlias = tuple[Points, Faces]

WIDTH, HEIGHT, FOCAL = 1080, 720, 365  # pixels: the window of the public generator
# The sphere that points are flipped at has the distance of the farthest point as its radius, once for so many points.
# A larger sphere sees more. With this one, of the points of boxes, tori, chairs and tubs about as many are seen as
# lie in sight, and nine in ten are the same.
FLIP = 32
# Pairs of a triangle and a pixel that are tested at a time.
PAIRS = 2**20
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Camera:
    """Looks at the origin from a distance; both angles in radians.

    `angle` goes round the up axis. `tilt` is that between the line of sight and the up axis: at pi/2 the camera stands
    level with the object, at pi right above it.
    """

    angle: float
    tilt: float
    distance: float

    @property
    def axes(self) -> Points:
        """To the side, across and forward, as rows."""
        turn, turned = np.sin(self.angle), np.cos(self.angle)
        sine, cosine = np.sin(self.tilt), np.cos(self.tilt)
        side, across = (-turned, 0, turn), (turn * cosine, sine, turned * cosine)
        return np.array([side, across, (-turn * sine, cosine, -turned * sine)])

    @property
    def position(self) -> Points:
        return np.asarray(-self.distance * self.axes[2])


def visible(points: Points, position: Points) -> NDArray[np.intp]:
    """Which points can be seen from a position.

    Every point is flipped along its line of sight to the outside of a large sphere, the nearest farthest out. Those
    on the convex hull of the flipped points and the position are visible.
    """
    sight = points - position
    distance = np.linalg.norm(sight, axis=1, keepdims=True)
    radius = max(1, len(points) / FLIP) * distance.max()
    flipped = sight * (2 * radius / distance - 1)
    try:
        hull = ConvexHull(np.concatenate([flipped, np.zeros((1, 3))]))
    except QhullError:  # all in one plane with the camera: nothing that could hide anything
        return np.arange(len(points))
    return np.sort(hull.vertices[hull.vertices < len(points)]).astype(np.intp)


def cast_rays(mesh: Mesh, camera: Camera) -> Points:
    """Where the rays through the pixels' centres first meet a triangle, from either side: points (M, 3)."""
    vertices, faces = mesh
    side, across, depth = camera.axes @ (vertices - camera.position).T
    near = (1 / depth)[faces]  # (F, 3); linear over the picture of a triangle, as depth is not
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
        # Twice the areas of the three triangles that the pixel makes with the sides, each opposite to its corner.
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
    """Vertices (V, 3) and triangles (F, 3) of an .off file. Polygons are cut into fans.

    ModelNet has files whose first line runs into the second, "OFF490 518 0": they are read too.
    """
    try:
        lines = [line.split("#")[0].split() for line in Path(path).read_text().splitlines()]
        words = [line for line in lines if line]
        if not words or not words[0][0].startswith("OFF"):
            raise ValueError("the first line is not OFF")
        head = " ".join(words[0])[len("OFF") :].split() or words.pop(1)
        count, faces = int(head[0]), int(head[1])
        vertices = np.array([line[:3] for line in words[1 : 1 + count]], np.float64)
        polygons = [list(map(int, line[1 : 1 + int(line[0])])) for line in words[1 + count : 1 + count + faces]]
        if len(polygons) != faces:
            raise ValueError(f"it ends after {len(polygons)} of {faces} faces")
        fans = [(p[0], p[i], p[i + 1]) for p in polygons for i in range(1, len(p) - 1)]
        return vertices, np.array(fans, np.int64).reshape(-1, 3)
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"{os.fspath(path)} is no .off file that can be read ({error}): export it anew.") from error
