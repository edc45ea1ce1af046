"""ImageNet-V2: folders are numbers, and sorted as numbers."""

from __future__ import annotations

import pytest

from ctta.base.errors import InputError
from ctta.data.folders import wnids
from trees import opened, picture_names, write_classes


def test_a_label_is_the_number_of_its_folder(tmp_path):
    write_classes(tmp_path, ("0", "2", "10", "100", "999"), each=2, suffix=".jpeg")
    stream = opened(tmp_path, "imagenet_v2", domains="paper")
    labels = stream.domains[0].labels.tolist()
    assert labels == [int(name.partition("/")[0]) for name in picture_names(stream)]
    assert sorted(set(labels)) == [0, 2, 10, 100, 999]
    assert (stream.classes, stream.scored) == (wnids(), ())
    assert [domain.name for domain in stream.domains] == ["imagenet_v2"]
    assert next(iter(stream)).x.shape == (5, 3, 224, 224)


@pytest.mark.parametrize(("folders", "words"), [(("1000",), "beyond 999"), (("n01440764",), "that are numbers")])
def test_another_layout(tmp_path, folders, words):
    write_classes(tmp_path, folders, each=1)
    with pytest.raises(InputError, match=f"cannot be used as ImageNet-V2. .*{words}.*modestyachts"):
        opened(tmp_path, "imagenet_v2", domains="paper")


def test_no_folder(tmp_path):
    (tmp_path / "file").write_text("0/a.jpg 3")
    with pytest.raises(InputError, match=r"It is no folder"):
        opened(tmp_path / "file", "imagenet_v2", domains="paper")
