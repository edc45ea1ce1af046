"""ImageNet-V2 in its public layout: <path>/<0 to 999>/<name>.jpeg.

The class folders are numbers, the indices of ILSVRC's classes. Sorted as text they would come as 0, 1, 10, 100 ..., and
nearly every label would be wrong. `ctta.data.folders` describes the choice and the order of pictures.
"""

from __future__ import annotations

from dataclasses import replace

from ctta.base.errors import InputError
from ctta.data.dataset import Data, DataSet
from ctta.data.datasets.domain_folders import natural_stream
from ctta.data.folders import found_in, wnids
from ctta.data.stream import Stream

DOMAIN = "imagenet_v2"
PUBLIC = (
    "The public sets are at github.com/modestyachts/ImageNetV2: unpack one and give the folder with the folders 0 to "
    "999, such as imagenetv2-matched-frequency-format-val."
)


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    try:
        if not data.folder.is_dir():
            raise InputError("It is no folder.")
        stream = natural_stream(data.replace(labels="numbers"), {DOMAIN: data.folder}, IMAGENET_V2.fit(data))
        if len(stream.classes) > len(wnids()):
            raise InputError(f"Its class folders go up to {len(stream.classes) - 1}, beyond 999.")
    except InputError as error:
        raise InputError(
            f"{data.folder} cannot be used as ImageNet-V2. {error} {found_in(data.folder)} {PUBLIC}"
        ) from error
    return replace(stream, domains=stream.domains * len(domains), classes=wnids())


IMAGENET_V2 = DataSet(
    "ImageNet-V2",
    "the folder with the class folders 0 to 999.",
    _open,
    domains={"paper": (DOMAIN,)},
    holds="natural",
    preprocessing="resize256",
    uses=("preprocessing", "size"),
)
