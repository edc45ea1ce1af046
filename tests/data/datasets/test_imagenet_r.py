"""ImageNet-R: only its own classes are scored; broken trees."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from ctta import Source
from ctta.data.folders import wnids
from ctta.running.runner import evaluate
from trees import WNIDS, opened, picture, refusal, write_classes


def test_imagenet_r_is_scored_on_its_own_classes(tmp_path):
    write_classes(tmp_path, each=2, size=(120, 90), suffix=".jpg")
    (tmp_path / "README.txt").write_text("hello")
    stream = opened(tmp_path, "imagenet_r", domains="paper")
    assert [(domain.name, domain.severity) for domain in stream.domains] == [("imagenet_r", 0)]
    assert stream.scored == (1, 7, 999)
    assert stream.notes == ("Only 3 of the 200 classes of ImageNet-R are in the folder; only those are scored.",)
    batch = next(iter(stream))
    logits = torch.zeros(2, 1000)
    logits[0, [1, 7, 500]] = torch.tensor([1.0, 2.0, 9.0])  # 500 does not count
    logits[1, 999] = -1
    logits[1, 7] = -2
    logits[1, 1] = -3
    assert batch.answer(logits).tolist() == [7, 999]


class Confused(nn.Module):
    """Sure of class 500, which is not in the set; of the others, of class 7."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 1000)

    def forward(self, x):
        logits = torch.zeros(len(x), 1000) + 0 * self.head(x[:, 0, 0, :1])
        logits[:, 500], logits[:, 7] = 10, 5
        return logits


def test_the_runner_scores_what_counts_and_confidence_stays_the_adapter_s(tmp_path):
    write_classes(tmp_path, each=2, size=(64, 64))
    (found,) = evaluate(Source(Confused()), opened(tmp_path, "imagenet_r", domains="paper", batch=6))
    assert (found.record.n, found.record.wrong) == (6, 4)  # the two pictures of class 7 are right
    assert found.record.info["confidence"] == pytest.approx(np.e**10 / (np.e**10 + np.e**5 + 998), rel=1e-4)


def test_broken_imagenet_r(tmp_path):
    text = refusal(tmp_path, "imagenet_r", domains="paper")
    assert "github.com/hendrycks/imagenet-r" in text
    write_classes(tmp_path, ("cat", WNIDS[0]), each=1, size=(64, 64))
    assert "No classes of ILSVRC: cat" in refusal(tmp_path, "imagenet_r", domains="paper")
    shutil.rmtree(tmp_path / "cat")
    small = picture(0, 8, 8)
    for wnid in wnids()[:201]:
        (tmp_path / wnid).mkdir(exist_ok=True)
        small.save(tmp_path / wnid / "a.jpg")
    assert "Too many classes: 201 instead of 200" in refusal(tmp_path, "imagenet_r", domains="paper")
    shutil.rmtree(tmp_path / wnids()[0])
    assert opened(tmp_path, "imagenet_r", domains="paper").notes == ()
