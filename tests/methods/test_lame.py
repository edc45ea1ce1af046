"""LAME's equations with numbers worked by hand, and the whole against a plain reference in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ctta import LAME
from ctta.methods.lame import distances, energy, knn_affinity, laplacian_answer, rbf_affinity
from ctta.testing.networks import make_network, make_stream

# Four points on a line, at 0, 1, 3 and 7.
LINE = torch.tensor([0.0, 1.0, 3.0, 7.0], dtype=torch.float64)
DISTANCE = (LINE[:, None] - LINE[None, :]).abs()


def test_distances_are_between_directions():
    found = distances(torch.tensor([[2.0, 0.0], [0.0, 0.5], [3.0, 3.0]]))
    side = math.sqrt(2 - math.sqrt(2))
    expected = torch.tensor([[0, math.sqrt(2), side], [math.sqrt(2), 0, side], [side, side, 0]])
    torch.testing.assert_close(found, expected)


def test_knn_affinity_is_one_towards_the_nearest_others():
    one = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert knn_affinity(DISTANCE, 1).tolist() == one
    assert knn_affinity(DISTANCE, 9).tolist() == (1 - torch.eye(4)).tolist()  # there are only three others
    assert knn_affinity(DISTANCE[:1, :1], 5).tolist() == [[0]]


def test_rbf_affinity_has_the_mean_distance_to_the_kth_nearest_as_width():
    # The second nearest, itself counted, lie at 1, 1, 2 and 4: sigma 2, so K = exp(-d^2 / 8).
    found = rbf_affinity(DISTANCE, 2)
    assert found[0].tolist() == pytest.approx([1, math.exp(-1 / 8), math.exp(-9 / 8), math.exp(-49 / 8)])
    assert rbf_affinity(torch.zeros(3, 3), 2).tolist() == torch.ones(3, 3).tolist()  # all samples the same
    assert rbf_affinity(torch.zeros(1, 1), 5).tolist() == [[1]]


def test_energy():
    # One sample: p = (1/4, 3/4), y = (1/2, 1/2), K y = (1, 0).
    y, p, pairwise = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]]), torch.tensor([[1.0, 0.0]])
    expected = 0.5 * math.log(4) + 0.5 * math.log(4 / 3) - 0.5 + math.log(0.5)
    assert energy(y, p.log(), pairwise).item() == pytest.approx(expected)


def test_an_unsure_sample_follows_its_neighbours():
    p = torch.tensor([[0.99, 0.01], [0.98, 0.02], [0.45, 0.55]], dtype=torch.float64)
    assert laplacian_answer(p, torch.zeros(3, 3, dtype=torch.float64)).exp() == pytest.approx(p, abs=1e-9)
    found = laplacian_answer(p, knn_affinity(DISTANCE[:3, :3], 2)).exp()
    assert found.argmax(1).tolist() == [0, 0, 0]
    assert found.sum(1).tolist() == pytest.approx([1, 1, 1])


def reference(features, logits, affinity, k):
    """The released procedure in double precision, with a loop that stops early."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    n = len(features)
    distance = np.array([[np.linalg.norm(a - b) for b in features] for a in features])
    kernel = np.zeros((n, n))
    if affinity == "knn":
        for i in range(n):
            others = sorted((j for j in range(n) if j != i), key=lambda j: distance[i, j])
            kernel[i, others[:k]] = 1
    else:
        sigma = np.mean([sorted(row)[min(k, n) - 1] for row in distance])
        kernel = np.exp(-(distance**2) / (2 * sigma**2))

    def softmax(z):
        z = np.exp(z - z.max(1, keepdims=True))
        return z / z.sum(1, keepdims=True)

    unary = -np.log(softmax(logits) + 1e-10)
    y, old = softmax(-unary), np.inf
    for i in range(100):
        pairwise = kernel @ y
        y = softmax(pairwise - unary)
        now = (unary * y - pairwise * y + y * np.log(np.clip(y, 1e-20, None))).sum()
        if i > 1 and abs(now - old) <= 1e-8 * abs(old):
            return y, i
        old = now
    return y, 100


@pytest.mark.parametrize("affinity", ["knn", "rbf"])
@pytest.mark.parametrize("kind", ["image_bn", "vit_ln"])
def test_against_a_plain_reference(kind, affinity):
    network = make_network(kind).double().eval()
    seen = {}
    network.head.register_forward_pre_hook(lambda _, args: seen.update(features=args[0]))
    adapter = LAME(network, affinity=affinity, neighbours=3)
    stopped = []
    for x in make_stream(kind):
        x = x.double()
        with torch.no_grad():
            logits = network(x)
        expected, iterations = reference(seen["features"].numpy(), logits.numpy(), affinity, 3)
        stopped.append(iterations)
        torch.testing.assert_close(adapter(x).exp(), torch.from_numpy(expected), atol=1e-10, rtol=0)
    assert min(stopped) < 100  # otherwise it never stopped early


def test_the_prediction_is_log_probabilities():
    logits = LAME(make_network("image_gn"))(make_stream("image_gn")[0])
    torch.testing.assert_close(logits.exp().sum(1), torch.ones(8))
