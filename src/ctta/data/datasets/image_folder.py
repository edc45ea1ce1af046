"""Your own labelled pictures in class folders, clean or corrupted on the fly: <path>/<class>/<name>.jpg.

As in the public ImageNet-C, a picture is first resized and cropped, then corrupted, and, with ImageNet's constants,
saved as JPEG and read again. `ctta.data.folders` describes the choice, the order and the labels of pictures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ctta.base.errors import InputError
from ctta.base.fileio import some
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import chosen, class_indices, labels_of, listed, listing, unusable
from ctta.data.pictures import SIZES, Pictures, picture_size
from ctta.data.stream import Stream


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root = data.folder
    available, note = listing(root)
    names = chosen(data, available)
    if problems := listed(unusable(root, names)):
        raise InputError(f"{root} lacks pictures. {problems} It holds {len(available)} pictures.")
    pictures = Pictures(root, names, IMAGE_FOLDER.fit(data), upright=True)
    if pictures.fit.crop is None:
        _same_size(pictures)
    indices, classes = class_indices(data, (name.partition("/")[0] for name in available), root)
    stream = corrupted_stream(pictures, labels_of(names, indices, root), domains, data, classes)
    return replace(stream, notes=(note,) if note else ())


def _same_size(pictures: Pictures) -> None:
    sizes = {name: picture_size(pictures.root / name, upright=True) for name in pictures.names}
    (usual, _), *_ = Counter(sizes.values()).most_common(1)
    if other := [f"{name} {height} x {width}" for name, (height, width) in sizes.items() if (height, width) != usual]:
        told = f"{usual[0]} x {usual[1]} and {len(other)} of other sizes ({some(other, 3)})"
        raise InputError(f"The pictures in {pictures.root} differ in size: {told}. {SIZES}")


IMAGE_FOLDER = DataSet(
    "own pictures",
    "a folder of class folders with pictures.",
    _open,
    uses=("preprocessing", "size", "list", "labels", "jpeg"),
)
