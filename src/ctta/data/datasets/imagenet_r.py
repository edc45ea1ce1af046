"""ImageNet-R, renditions of 200 of the 1,000 classes of ILSVRC, in its public layout: <path>/<wnid>/<name>.jpg.

A model returns 1,000 logits. Only those of the classes in the folder are scored; labels are indices among the 1,000.
The adapter sees all logits. There is one domain, `imagenet_r`, without severity. A subset of the 200 classes is allowed
and reported. `ctta.data.folders` describes the choice and the order of pictures.
"""

from __future__ import annotations

from ctta.base.errors import InputError
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import chosen, class_indices, found_in, labels_of, listed, listing, unusable, wnids
from ctta.data.pictures import Pictures
from ctta.data.stream import AHEAD, Domain, Stream

CLASSES = 200
DOMAIN = "imagenet_r"
PUBLIC = "The public set is at github.com/hendrycks/imagenet-r: unpack it and give the folder with the class folders."


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root = data.folder
    try:
        available, note = listing(root)
        names = chosen(data, available)
        folders = sorted({name.partition("/")[0] for name in available})
        strange = [folder for folder in folders if folder not in set(wnids())]
        kinds = unusable(root, names) | {"No classes of ILSVRC": strange}
        if len(folders) > CLASSES:
            kinds["Too many classes"] = [f"{len(folders)} instead of {CLASSES}"]
        if problems := listed(kinds):
            raise InputError(problems)
    except InputError as error:
        raise InputError(f"{root} cannot be used as ImageNet-R. {error} {found_in(root)} {PUBLIC}") from error
    indices, classes = class_indices(data, folders, root)
    pictures = Pictures(root, names, IMAGENET_R.fit(data))
    domain = Domain(DOMAIN, 0, labels_of(names, indices, root), pictures.__getitem__)
    part = f"Only {len(folders)} of the {CLASSES} classes of ImageNet-R are in the folder; only those are scored."
    return Stream(
        (domain,) * len(domains),
        data.batch,
        classes,
        scored=tuple(indices[folder] for folder in folders),
        notes=tuple(filter(None, (note, part if len(folders) < CLASSES else ""))),
        fingerprint=pictures.fingerprint(),
        ahead=AHEAD,
    )


IMAGENET_R = DataSet(
    "ImageNet-R",
    "the folder with the class folders, <wnid>/*.jpg.",
    _open,
    domains={"paper": (DOMAIN,)},
    holds="natural",
    preprocessing="resize256",
    uses=("preprocessing", "size", "list"),
)
