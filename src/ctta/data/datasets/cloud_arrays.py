"""Your own labelled point clouds in one .npz file, clean or corrupted on the fly.

points    floating point (N, P, 3), y up, within [-1, 1] or nearly so
labels    (N,), whole numbers from 0
classes   names of the classes (optional)
"""

from __future__ import annotations

from ctta.data.clean import class_names
from ctta.data.corrupted_clouds import CloudDataSet, cloud_stream
from ctta.data.dataset import Data
from ctta.data.stored import read_npz
from ctta.data.stream import Stream


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    arrays = read_npz(data.folder, ("points", "labels"), ("classes",))
    return cloud_stream(arrays["points"], arrays["labels"], domains, data, class_names(data.folder, arrays))


CLOUD_ARRAYS = CloudDataSet(
    "own point clouds", "an .npz with 'points', floating point (N, P, 3), y up, and 'labels'.", _open
)
