"""TTT-MAE: against plain torch with a small autoencoder, and what it does with other models."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from ctta import TTTMAE, ModelError, Normalized
from ctta.core.masking import patches
from ctta.models import MODELS
from ctta.testing.networks import make_batch, make_network


def autoencoder():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS["vit_mae"].build(5).double().eval()


def test_against_plain_torch(monkeypatch):
    """Every image starts at the source; SGD with momentum on the encoder only."""
    keep = torch.tensor([[0, 9, 33, 60], [5, 6, 7, 8], [63, 1, 40, 20]])
    monkeypatch.setattr("ctta.methods.ttt_mae.random_patches", lambda *_: keep)
    network = autoencoder()
    adapter = TTTMAE(Normalized(network, [0.5] * 3, [0.25] * 3), preset="cifar10", masks=3, steps=3, lr=0.05)
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = []
    for image in (x - 0.5) / 0.25:
        model = copy.deepcopy(network)
        optimizer = torch.optim.SGD(model.encoder.parameters(), 0.05, 0.9)
        target = patches(image[None], 4)
        target = (target - target.mean(2, keepdim=True)) / (target.var(2, keepdim=True) + 1e-6).sqrt()
        for _ in range(3):
            found = model.decoder(model.encoder(image.expand(3, -1, -1, -1), keep), keep)
            hidden = torch.ones(3, 64, dtype=torch.bool).scatter(1, keep, False)
            loss = F.mse_loss(found[hidden], target.expand(3, -1, -1)[hidden])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        expected.append(model.head(model.encoder(image[None])[:, 0])[0].detach())
    torch.testing.assert_close(adapter(x), torch.stack(expected), atol=1e-9, rtol=1e-9)
    assert all(torch.equal(a, b) for a, b in zip(adapter.model.parameters(), network.parameters(), strict=True))
    assert (torch.stack(expected) - adapter.predict(x)).abs().max() > 1e-3


def test_other_models_predict_from_a_part(caplog):
    with caplog.at_level("WARNING", "ctta"):
        adapter = TTTMAE(make_network("image_bn"), masks=4, steps=2, lr=0.05)
        x = make_batch("image_bn", 2, 0)
        answer = adapter(x)
    assert "is no masked autoencoder" in caplog.text
    assert not torch.allclose(answer, adapter.predict(x))
    learned = {id(p) for p in adapter.trained}
    assert not {id(p) for p in adapter.model.head.parameters()} & learned


def test_a_model_that_is_only_a_head():
    with pytest.raises(ModelError, match="only a head"):
        TTTMAE(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4)))
