"""ImageNet-C in its public layout: <path>/<corruption>/<severity>/<wnid>/<name>.JPEG; ImageNet-3DCC and ImageNet-C-bar.

The archives unpack into noise/, blur/, weather/, digital/ and extra/; this level may be kept or removed. There are two
conventions of preprocessing. Their results are not comparable, so the title names the convention:

    resize256   the stored 224 pixels are resized to 256 and the middle 224 are cropped (the paper's; the default)
    none        the stored 224 pixels are used as they are

ImageNet-3DCC has the same layout with other corruptions, ImageNet-C-bar too, or folders <corruption>-<strength> with
the strengths of its severities. `ctta.data.folders` describes the choice, the order and the labels of pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ctta.base.errors import InputError
from ctta.base.fileio import hashed, some
from ctta.data.corruptions import NAMES
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import chosen, class_folders, class_indices, found_in, labels_of, listed, listing, unusable
from ctta.data.pictures import Pictures
from ctta.data.stream import AHEAD, Domain, Stream

PUBLIC = (
    "The public set is zenodo.org/records/2235448: unpack the archives and give the folder with noise/, blur/, "
    "weather/, digital/ and extra/, or with the corruptions themselves."
)
NAMES_3DCC = (
    *("near_focus", "far_focus", "fog_3d", "flash", "color_quant", "low_light", "xy_motion_blur", "z_motion_blur"),
    *("iso_noise", "bit_error", "h265_abr", "h265_crf"),
)
PUBLIC_3DCC = (
    "The public set is at datasets.epfl.ch/3dcc/imagenet_3dcc, an archive per corruption: unpack them into one folder "
    "and give it."
)
STRENGTHS_BAR: Mapping[str, tuple[float, ...]] = {
    "blue_noise_sample": (0.8, 1.6, 2.4, 4.0, 5.6),
    "plasma_noise": (4.75, 7.0, 8.5, 9.25, 10.0),
    "checkerboard_cutout": (2.0, 3.0, 4.0, 5.0, 6.0),
    "cocentric_sine_waves": (3.0, 5.0, 8.0, 9.0, 10.0),
    "single_frequency_greyscale": (1.0, 1.5, 2.0, 4.5, 5.0),
    "brownish_noise": (1.0, 2.0, 3.0, 4.0, 5.0),
    "caustic_refraction": (2.35, 3.2, 4.9, 6.6, 9.15),
    "inverse_sparkles": (1.0, 2.0, 4.0, 9.0, 10.0),
    "sparkles": (1.0, 2.0, 3.0, 5.0, 6.0),
    "perlin_noise": (4.6, 5.2, 5.8, 7.6, 8.8),
}
PUBLIC_BAR = "github.com/facebookresearch/augmentation-corruption makes it from ImageNet's validation set."


def _open(title: str, public: str, data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root = data.folder
    places = {pair: _place(root, *pair) for pair in domains}
    absent = [f"{name}/{severity}" for (name, severity), place in places.items() if place is None]
    there = [place for place in places.values() if place is not None]
    available, odd, notes = _available(there) if data.list is None else (set(), [], [])
    names = chosen(data, sorted(available)) if there else ()
    kinds = unusable(root, (str(place.relative_to(root) / name) for place in there for name in names))
    kinds["Missing"] = absent + kinds["Missing"]
    if problems := " ".join(filter(None, [*odd, listed(kinds)])):
        raise InputError(f"{root} is not a complete {title}. {problems} {_found(root)} {public}")
    indices, classes = class_indices(data, (name for place in there for name in class_folders(place)), root)
    labels = labels_of(names, indices, root)
    pictures = {pair: Pictures(place, names, IMAGENET_C.fit(data)) for pair, place in zip(places, there, strict=True)}
    made = tuple(Domain(*pair, labels, pictures[pair].__getitem__) for pair in domains)
    identity = hashed(*(f"{pair} {pictures[pair].fingerprint()}" for pair in sorted(pictures)))
    return Stream(made, data.batch, classes, notes=tuple(notes), fingerprint=identity, ahead=AHEAD)


def _place(root: Path, name: str, severity: int) -> Path | None:
    """Return the folder of a domain, below the root or one level deeper."""
    candidates = [root / name / str(severity), *sorted(root.glob(f"*/{name}/{severity}"))]
    candidates += [root / f"{name}-{strength}" for strength in STRENGTHS_BAR.get(name, ())[severity - 1 : severity]]
    return next((place for place in candidates if place.is_dir()), None)


def _available(places: Sequence[Path]) -> tuple[set[str], list[str], list[str]]:
    """Return the pictures of all domains together, what is wrong with a domain as a whole, and what was left out."""
    available, odd, notes = set(), [], []
    for place in places:
        try:
            names, note = listing(place)
            available.update(names)
            notes += [note] if note else []
        except InputError as error:
            odd.append(str(error))
    return available, odd, notes


def _found(root: Path) -> str:
    """Describe which domains exist, or what the folder holds instead."""
    places = sorted(place for pattern in ("*/[1-5]", "*/*/[1-5]") for place in root.glob(pattern))
    known = (*NAMES, *NAMES_3DCC, *STRENGTHS_BAR)
    domains = [f"{place.parent.name}/{place.name}" for place in places if place.parent.name in known]
    return f"Found: {some(domains, 20)}." if domains else found_in(root)


LAYOUT = "the folder with the corruptions, <corruption>/<severity>/<wnid>/*.JPEG."
StoredPictures = partial(
    DataSet,
    about=LAYOUT,
    holds="corrupted",
    preprocessing="resize256",
    uses=("preprocessing", "size", "list", "labels"),
)
IMAGENET_C = StoredPictures("ImageNet-C", open=partial(_open, "ImageNet-C", PUBLIC))
IMAGENET_3DCC = StoredPictures(
    "ImageNet-3DCC",
    open=partial(_open, "ImageNet-3DCC", PUBLIC_3DCC),
    domains=dict.fromkeys(("paper", "all"), NAMES_3DCC),
)
IMAGENET_C_BAR = StoredPictures(
    "ImageNet-C-bar",
    open=partial(_open, "ImageNet-C-bar", PUBLIC_BAR),
    domains=dict.fromkeys(("paper", "all"), tuple(STRENGTHS_BAR)),
)
