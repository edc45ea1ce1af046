"""Sift's equations with numbers worked by hand, and the whole against plain torch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn, tensor

from ctta import Guard, ModelError, Sift
from ctta.core import prior
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.methods import sift
from ctta.methods.sift import imbalance, in_need
from ctta.models.load import embedded_model
from ctta.testing.networks import CLASSES, make_batch
from plain import make_decisive, with_batch_statistics


def close(found, expected):
    torch.testing.assert_close(found, tensor(expected), atol=1e-4, rtol=0)


def test_imbalance_is_how_far_the_mean_prediction_is_from_the_mix():
    student = tensor([[0.9, 0.1], [0.7, 0.3]]).log()  # mean 0.8 and 0.2
    close(imbalance(student, tensor([0.5, 0.5])), 0.8 * math.log(1.6) + 0.2 * math.log(0.4))
    close(imbalance(student, tensor([0.8, 0.2])), 0.0)


def test_augmentation_is_worth_its_time_if_views_had_a_say():
    assert in_need(1, 0.79)
    assert not in_need(1, 0.8)
    assert in_need(4, 0.8)  # to find out


@pytest.mark.parametrize(
    ("views", "contrast", "every", "normed"),
    [(0, 1.0, 2, True), (2, 0.0, 2, True), (2, 0.5, 2, True), (2, 0.5, 1, True), (0, 1.0, 2, False)],
)
def test_against_plain_torch(views, contrast, every, normed, monkeypatch):
    monkeypatch.setattr(sift, "LITTLE_SAY", 0.12)  # these views add little doubt, and have a say in some batches only
    monkeypatch.setattr(prior, "BURSTS", -0.045)  # and the mix of these labels changes a little
    network = make_decisive().double() if normed else without_batch_norm(make_decisive().double())
    student, teacher = with_batch_statistics(network), with_batch_statistics(network)
    adapter = Sift(network, preset="cifar10", ema=0.7, views=views, lambda_=0.8, contrast=contrast, view_every=every)
    adapter.views = softened
    projector = copy.deepcopy(adapter.projector) if views and contrast else None
    learned = [*student.parameters(), *(projector.parameters() if projector else [])]
    optimizer = torch.optim.Adam(learned, 1e-3)
    threshold, selected, needs, corrections, weight, unrest = 1 / CLASSES, [], set(), set(), 0.0, 0.0
    shares = []
    mix = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    for number, x in enumerate((make_batch("image_bn", 16, seed).double() for seed in range(10)), start=1):
        needy, helped = views > 0 and (weight < 0.12 or number % 4 == 1), views > 0 and weight < 0.12
        features, s = with_features(student, x)
        t = teacher(x).detach()
        if needy:
            seen = teacher(softened(x, None)).detach()
            sure, unsure = t.softmax(1).amax(1).mean(), seen.softmax(1).amax(1).mean()
            weight = float((0.15 + 0.7 * (sure - unsure) / (1 - sure)).clamp(0, 1))
            t = weight * t + (1 - weight) * seen
        y = ((s + t) / 2).detach().softmax(1)
        confidence, label = y.max(1)
        threshold = 0.8 * threshold + 0.2 * confidence.mean().item()
        share = torch.stack([confidence[label == c].sum() for c in range(CLASSES)])
        good = confidence >= threshold * (share / share.max())[label]
        p = s.softmax(1)
        new = mix_of(y)
        unrest += 0.05 * (CLASSES * ((new - mix) ** 2).sum() / 2 - (CLASSES - 1) / len(y) - unrest)
        mix, answer = new, ((s + t) / 2).detach()
        if bursts := bool(unrest > -0.045):
            answer = answer / 2 + prior_of(y).log()
        shown = helped and (number - 1) % every == 0
        if helped and not shown:
            values = -(t.softmax(1) * s.log_softmax(1) + s.softmax(1) * t.log_softmax(1)).sum(1) / 2
        elif shown:
            view_features, v = with_features(student, softened(x, None))
            each = [-(t.softmax(1) * q.log_softmax(1) + q.softmax(1) * t.log_softmax(1)).sum(1) / 2 for q in (s, v)]
            values = (each[0] + each[1]) / 2
        else:
            sharp = y ** (1 / 0.6)
            values = -(sharp / sharp.sum(1, keepdim=True) * p.log()).sum(1)
        loss = values[good].sum() / max(int(good.sum()), 1)
        if shown and projector:
            loss = loss + contrast * attraction(projector, network.head.weight.detach(), features, view_features)
        held, mean = mix_of(answer.softmax(1)), p.mean(0)
        loss = loss + (mean * ((mean + 1e-5) / (held + 1e-5)).log()).sum()
        missing = (CLASSES * mix - 1).square().mean() - (CLASSES - 1) / len(y)
        share = tensor(1 / (1 + max(float(missing), 0)) ** 2)  # in float32, as kernels read it
        shares.append(1.0 if normed else share)
        optimizer.param_groups[0]["lr"] = float(16 / 64 * shares[-1] * 1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for own, lead in zip(teacher.parameters(), student.parameters(), strict=True):
                own.copy_(0.7 * own + 0.3 * lead)
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, answer, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-9, rtol=1e-9)
        assert step.samples["selected"].tolist() == good.tolist()
        assert step.info["views"] == (views if needy else 0)
        selected.append(int(good.sum()))
        needs.add((needy, helped))
        corrections.add(bursts)
    assert 0 < sum(selected) < 160
    assert corrections == {False, True}
    assert (min(shares) < max(shares)) == (not normed)
    assert needs == ({(False, False), (True, False), (True, True)} if views else {(False, False)})


def test_a_network_whose_head_is_unknown_can_be_adapted_without_contrast():
    network = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ModelError, match=r"head was not found.*contrast=0"):
        Sift(network, classes=6)
    logits = Sift(network, classes=6, contrast=0.0)(torch.rand(4, 3, 32, 32))
    assert logits.shape == (4, 6)


def with_features(network, x):
    """What goes into the head, and what comes out."""
    seen = []
    hook = network.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits = network(x)
    hook.remove()
    return seen[0], logits


def mix_of(y):
    """The mean label; what a label lacks to certainty goes to all classes alike."""
    sure = (y.amax(1, keepdim=True) - 1 / CLASSES) / (1 - 1 / CLASSES)
    return (sure * y + (1 - sure) / CLASSES).mean(0)


def prior_of(y):
    """Five rounds of expectation maximisation, less what sampling explains."""
    prior = torch.full((CLASSES,), 1 / CLASSES, dtype=y.dtype)
    for _ in range(5):
        mix = mix_of(y * prior / (y * prior).sum(1, keepdim=True))
        uneven = CLASSES * ((mix - 1 / CLASSES) ** 2).sum()
        prior = 1 / CLASSES + max(0, 1 - (CLASSES - 1) / len(y) / uneven) * (mix - 1 / CLASSES)
    return prior


def attraction(projector, rows, features, view_features):
    """The contrastive loss, sample by sample."""
    cosine = torch.nn.functional.cosine_similarity(features.detach()[:, None], rows[None], dim=2)
    groups = [projector(part) for part in (rows[cosine.argmax(1)], features, view_features)]
    every = [(group[i] / group[i].norm(), i) for group in groups for i in range(len(features))]
    losses = []
    for k, (own, i) in enumerate(every):
        others = [(own @ other / 0.1, j) for m, (other, j) in enumerate(every) if m != k]
        total = torch.stack([value for value, _ in others]).logsumexp(0)
        losses += [(total - value) / 2 for value, j in others if j == i]  # two others of the same sample
    return torch.stack(losses).sum() / len(every)


def softened(x, random):
    """A view without chance."""
    return 0.5 * (x + x.roll(1, 3))


@pytest.mark.parametrize("guarded", [False, True])
def test_predictions_follow_classes_that_come_in_order_and_leave_a_shuffled_stream_alone(guarded):
    (x, y), model = blurred_samples(), embedded_model()
    found = {}
    for order, rows in {"shuffled": torch.arange(len(x)), "sorted": y.argsort(stable=True)}.items():
        adapter = Sift(model, views=0)
        stream = Guard(adapter) if guarded else adapter
        wrong = sum(int((stream(x[part]).argmax(1) != y[part]).sum()) for part in rows.split(20))
        found[order] = wrong, bool(adapter.unrest > prior.BURSTS)
        batch = x[rows[-20:]]
        torch.testing.assert_close(stream.export(batch)(batch), stream.predict(batch), atol=1e-4, rtol=1e-4)
    assert found["shuffled"][1] is False
    assert found["sorted"][1] is True
    assert found["sorted"][0] < 0.7 * found["shuffled"][0]


@pytest.mark.parametrize(("size", "images"), [(20, 400), (1, 100)], ids=["one class after another", "single images"])
def test_a_network_without_batch_norm_is_not_lost(size, images):
    (x, y), model = blurred_samples(), without_batch_norm(embedded_model())
    rows = y.argsort(stable=True)[:images] if size > 1 else torch.arange(images)
    with torch.no_grad():
        before = float((model(x).argmax(1) != y).float().mean())
    adapter = Sift(model, views=0)
    for part in rows.split(size):
        adapter(x[part])
    after = float((adapter.predict(x, corrected=False).argmax(1) != y).float().mean())
    assert after < before + 0.02


def without_batch_norm(model):
    """The network with its BatchNorm layers turned into the scale and shift that they are in evaluation."""
    model = model.eval()
    for path, layer in [(path, layer) for path, layer in model.named_modules() if isinstance(layer, nn.BatchNorm2d)]:
        fixed = nn.Conv2d(layer.num_features, layer.num_features, 1, groups=layer.num_features).to(layer.weight)
        scale = layer.weight.detach() / (layer.running_var + layer.eps).sqrt()
        with torch.no_grad():
            fixed.weight.copy_(scale.view(-1, 1, 1, 1))
            fixed.bias.copy_(layer.bias - layer.running_mean * scale)
        model.set_submodule(path, fixed)
    return model


def blurred_samples():
    """Images and labels of the embedded data, blurred, so that some are misclassified."""
    batches = list(open_stream(Data(dataset="embedded", domains=("gaussian_blur",), severity=3, images=400, batch=100)))
    return torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches])
