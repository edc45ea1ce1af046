"""How networks are run: the same answers in any layout and any chunk; narrow passes only where they are asked for."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.exc import InvalidCxxCompiler

import ctta
from ctta import Execution
from ctta.core import networks as layers
from ctta.core.execution import CHUNK_CPU
from ctta.testing.networks import make_batch, make_network


class Viewing(nn.Module):
    """Takes the order of values in memory for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 14 * 14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return self.head(x.view(len(x), -1))


def answers(network: nn.Module, **execution: object) -> Tensor:
    dtype = next(network.parameters()).dtype
    adapter = ctta.DSS(network, preset="cifar10", gate=1.0, views=6, lr=1e-2, ema=0.9, execution=Execution(**execution))
    return torch.stack([adapter(make_batch("image_bn", 8, seed).to(dtype)) for seed in range(4)])


@pytest.mark.parametrize("kind", ["image_bn", "image_gn", "vit_ln"])
def test_layout_and_chunks_change_nothing_but_rounding(kind):
    network = make_network(kind).double()
    expected = answers(network, channels_last=False, chunk=1)
    for execution in ({"channels_last": True, "chunk": 1}, {"channels_last": False, "chunk": 4}, {"chunk": 6}, {}):
        torch.testing.assert_close(answers(network, **execution), expected, atol=1e-9, rtol=1e-9)


def test_views_in_one_pass_keep_their_own_statistics():
    network = make_network("image_bn").double().eval()
    layers.install_statistics(network, "batch", 1.0)
    views = [make_batch("image_bn", 8, seed).double() * (1 + seed) for seed in range(3)]
    alone = torch.cat([network(view) for view in views])
    with layers.grouped_statistics(network, 3):
        together = network(torch.cat(views))
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-12)
    pooled = network(torch.cat(views))
    assert (pooled - alone).abs().max() > 0.1
    assert "forward" not in vars(network.bn1)


def test_layers_that_look_across_the_batch_in_their_own_way_are_not_grouped():
    class Custom(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    assert layers.can_group(make_network("image_bn"))
    assert layers.can_group(make_network("vit_ln"))
    assert not layers.can_group(nn.Sequential(nn.Conv2d(3, 4, 3), Custom(4)))
    mixed = make_network("image_bn").eval()
    layers.install_statistics(mixed, "mixed", 0.5)
    assert not layers.can_group(mixed)


def test_chunks_go_by_size():
    execution = Execution(lanes=2)
    assert execution.views_in_a_pass(torch.empty(200, 3, 32, 32)) == 1
    assert execution.views_in_a_pass(torch.empty(2, 3, 32, 32)) == CHUNK_CPU // 6144 // 2
    assert Execution(chunk=5, lanes=1).views_in_a_pass(torch.empty(200, 3, 32, 32)) == 5
    assert Execution(chunk=6, lanes=3).views_in_a_pass(torch.empty(200, 3, 32, 32)) == 2
    assert Execution(chunk=1).passes_at_once(torch.empty(2, 3, 32, 32)) == 1


def test_a_model_that_views_behind_a_convolution_still_works():
    torch.manual_seed(0)
    network = Viewing().double()
    adapter = ctta.DSS(network, preset="cifar10", gate=1.0, views=2)
    x = make_batch("image_bn", 8, 0).double()
    expected = ctta.DSS(network, preset="cifar10", gate=1.0, views=2, execution=Execution(channels_last=False))
    for _ in range(3):
        torch.testing.assert_close(adapter(x), expected(x), atol=1e-12, rtol=1e-12)
    assert adapter._passes.tried == {(adapter.teacher, True, False): True}, "as given, its views go together"
    moments, others = (one.optimizer.state[one.student.conv.weight] for one in (adapter, expected))
    assert moments["exp_avg"].stride() == adapter.student.conv.weight.stride()
    torch.testing.assert_close(moments, others, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("layout", [False, True])
def test_a_state_given_to_another_adapter_goes_on_there_as_here(layout):
    network = make_network("image_bn").double()
    settings = {"preset": "cifar10", "gate": 1.0, "views": 2, "lr": 1e-2}
    here = ctta.DSS(network, execution=Execution(channels_last=False), **settings)
    there = ctta.DSS(network, execution=Execution(channels_last=layout), **settings)
    batches = [make_batch("image_bn", 8, seed).double() for seed in range(5)]
    for x in batches[:3]:
        here(x)
    there.load_state_dict(here.state_dict())
    for x in batches[3:]:
        torch.testing.assert_close(there(x), here(x), atol=1e-10, rtol=1e-10)


class Watching(nn.Module):
    """Notes what its passes were like."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.seen: list[tuple[bool, torch.dtype]] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        self.seen.append((torch.is_grad_enabled(), x.dtype))
        return self.head(self.norm(x).mean((2, 3)))


@pytest.mark.parametrize(
    ("precision", "with_gradient", "without"),
    [
        ("full", torch.float32, torch.float32),
        ("bfloat16", torch.float32, torch.bfloat16),
        ("autocast", torch.bfloat16, torch.bfloat16),
    ],
)
def test_precision_of_each_pass(precision, with_gradient, without):
    adapter = ctta.DSS(Watching(), preset="cifar10", gate=0.5, views=2, execution=Execution(precision=precision))
    logits = adapter(make_batch("image_bn", 8, 0))
    assert logits.dtype == torch.float32
    assert adapter.student.seen == [(True, with_gradient)]
    assert adapter.source_model.seen == [(False, without)]
    assert adapter.teacher.seen
    assert set(adapter.teacher.seen) == {(False, without)}
    assert all(parameter.dtype == torch.float32 for parameter in adapter.parameters())


def test_narrow_passes_give_nearly_the_same_answers():
    network = make_network("image_bn")
    expected = answers(network)
    for precision in ("bfloat16", "autocast"):
        found = answers(network, precision=precision)
        assert not torch.equal(found, expected)
        torch.testing.assert_close(found, expected, atol=0.1, rtol=0.1)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_compiled_passes_give_the_same_answers():
    network = make_network("image_bn").double()
    x = make_batch("image_bn", 8, 0).double()
    plain, quick = ctta.BNAdapt(network), ctta.BNAdapt(network, execution=Execution(compile=True))
    torch.testing.assert_close(quick(x), plain(x), atol=1e-10, rtol=1e-10)


def test_a_compiler_that_is_not_there_is_said(monkeypatch):
    adapter = ctta.BNAdapt(make_network("image_bn"), execution=Execution(compile=True))

    def fail(*_: object, **__: object) -> None:
        raise InvalidCxxCompiler

    monkeypatch.setattr(adapter._passes, "_pass", fail)
    with pytest.raises(ctta.ConfigError, match="needs a compiler"):
        adapter(make_batch("image_bn", 8, 0))
