"""ImageNet-R, renditions of 200 of the 1,000 classes of ILSVRC, by its public tree: <path>/<wnid>/<name>.jpg.

A model answers with 1,000 logits; only those of the classes in the folder are scored, and labels stay indices among the
1,000. The adapter sees all logits. There is one domain, `imagenet_r`, and it has no severity. A part of the 200 classes
will do, and is reported. `ctta.data.folders` says which pictures are taken in which order.
"""

from __future__ import annotations

from ctta.base.errors import InputError
from ctta.base.fileio import some
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import AHEAD, Pictures, chosen, class_indices, found_in, labels_of, listing, unusable, wnids
from ctta.data.stored import StoredDomain
from ctta.data.stream import Stream

CLASSES = 200
DOMAIN = "imagenet_r"
PUBLIC = "The public set is at github.com/hendrycks/imagenet-r: unpack it and give the folder with the class folders."


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root = data.folder
    try:
        available = listing(root)
        names = chosen(data, available)
        missing, empty = unusable(root, names)
        folders = sorted({name.partition("/")[0] for name in available})
        strange = [folder for folder in folders if folder not in set(wnids())]
        kinds = {"Missing": missing, "Empty": empty, "No classes of ILSVRC": strange}
        if len(folders) > CLASSES:
            kinds["Too many classes"] = [f"{len(folders)} instead of {CLASSES}"]
        if any(kinds.values()):
            raise InputError(" ".join(f"{kind}: {some(found)}." for kind, found in kinds.items() if found))
    except InputError as error:
        raise InputError(f"{root} cannot be used as ImageNet-R. {error} {found_in(root)} {PUBLIC}") from error
    indices, classes = class_indices(data, folders, root)
    pictures = Pictures(root, names, IMAGENET_R.fit(data))
    domain = StoredDomain(DOMAIN, 0, pictures, labels_of(names, indices, root))
    part = f"Only {len(folders)} of the {CLASSES} classes of ImageNet-R are in the folder; scored on those."
    return Stream(
        (domain,) * len(domains),
        data.batch,
        classes,
        scored=tuple(indices[folder] for folder in folders),
        notes=(part,) if len(folders) < CLASSES else (),
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
