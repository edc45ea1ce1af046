"""Forward passes: the same predictions in any layout, chunk and number of parallel passes; failures in plain words."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._inductor.exc import InvalidCxxCompiler

import ctta
from ctta import Execution
from ctta.testing.networks import make_batch, make_network


class Small(nn.Module):
    """A network with something between its layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def between(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.norm(self.conv(x)).mean((2, 3))))


class Drawing(Small):
    """Draws random numbers."""

    def between(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


class Centring(Small):
    """Looks across the batch in its own way."""

    def between(self, x: Tensor) -> Tensor:
        return x / x.abs().amax(0)


class Failing(Small):
    """Refuses images that somebody has changed."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise ValueError("Something is wrong with this view.")
        return super().forward(x)


class Viewing(nn.Module):
    """Takes the order of values in memory for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 14 * 14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return self.head(x.view(len(x), -1))


def adapter(network: nn.Module, **execution: object) -> ctta.DSS:
    made = Execution(**execution)
    settings = {"preset": "cifar10", "augmentation_threshold": 1.0, "views": 5, "lr": 1e-2, "ema": 0.9}
    return ctta.DSS(network, execution=made, **settings)


def predictions(made: ctta.DSS) -> Tensor:
    dtype = made.placement[1]
    return torch.stack([made(make_batch("image_bn", 8, seed).to(dtype)) for seed in range(3)])


@pytest.mark.parametrize("kind", ["image_bn", "image_gn", "vit_ln"])
@pytest.mark.parametrize(
    "execution",
    [
        {"channels_last": True},
        {"views_per_pass": 4},
        {"views_per_pass": 2, "parallel_passes": 2},
        {"parallel_passes": 3},
        {"parallel_passes": 8, "channels_last": True},
        {"views_per_pass": "auto", "parallel_passes": "auto", "channels_last": True},
    ],
    ids=str,
)
def test_layout_chunks_and_parallel_passes_change_only_rounding(kind, execution):
    network = make_network(kind).double()
    expected = predictions(adapter(network))
    torch.testing.assert_close(predictions(adapter(network, **execution)), expected, atol=1e-9, rtol=1e-9)


def test_predictions_do_not_depend_on_which_pass_is_faster():
    network = make_network("image_bn")
    first = predictions(adapter(network, parallel_passes=3))
    assert all(torch.equal(predictions(adapter(network, parallel_passes=3)), first) for _ in range(3))


def test_parallel_passes_have_modules_of_their_own():
    # Each pass waits for the other before it reads what it kept, so one shared module would mix them up.
    network = make_network("image_bn").double()
    settings = {"preset": "cifar10", "augmentation_threshold": 1.0, "views": 4, "lr": 1e-2, "ema": 0.9}
    keeping = ctta.DSS(nn.Sequential(Keeper(), network), execution=Execution(parallel_passes=2), **settings)
    alone = ctta.DSS(nn.Sequential(nn.Identity(), network), **settings)
    torch.testing.assert_close(predictions(keeping), predictions(alone), atol=1e-12, rtol=1e-12)


class Keeper(nn.Module):
    """Keeps its input in an attribute until another pass has begun too; only passes without gradient wait."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        if not torch.is_grad_enabled():
            MEETING.wait(30)
        return self.kept


MEETING = threading.Barrier(2)


@pytest.mark.parametrize("kind", [Drawing, Centring])
def test_one_view_per_pass_and_one_pass_at_a_time_is_the_default(kind):
    # Networks like these are why views in chunks and in parallel are an option.
    network = kind().double()
    made = ctta.DSS(network, preset="cifar10", augmentation_threshold=1.0, views=5, lr=1e-2, ema=0.9)
    assert made.execution == Execution(views_per_pass=1, parallel_passes=1, channels_last=False)
    expected, found = predictions(adapter(network)), predictions(made)
    assert torch.equal(found, expected)
    made.reset()
    assert torch.equal(predictions(made), expected)


def test_a_network_that_compares_the_samples_of_a_batch_differs_in_chunks():
    network = Centring().double()
    assert not torch.allclose(predictions(adapter(network)), predictions(adapter(network, views_per_pass=5)))


@pytest.mark.parametrize("late", [False, True])
def test_a_network_with_hooks_has_one_pass_at_a_time(late):
    made, heard = adapter(Small(), parallel_passes=3), []
    if late:
        predictions(made)
    made.teacher.head.register_forward_hook(lambda *_: heard.append(threading.current_thread()))
    predictions(made)
    assert len(heard) == 15
    assert set(heard) == {threading.current_thread()}


def test_a_batch_that_is_refused_changes_nothing():
    network = Small().double()
    expected = predictions(adapter(network, parallel_passes=3))
    for early in (True, False):
        made = adapter(network, parallel_passes=3)
        if not early:
            made(make_batch("image_bn", 8, 0).double())
        with pytest.raises(ctta.CttaError, match=r"\(8, 1, 16, 16\)"):
            made(make_batch("image_bn", 8, 0)[:, :1].double())
        made.reset()
        assert torch.equal(predictions(made), expected)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_failure_in_a_view_is_explained(passes):
    with pytest.raises(ctta.ModelError, match=r"failed on a batch of shape .*Something is wrong with this view"):
        predictions(adapter(Failing(), parallel_passes=passes))


def test_colour_for_a_model_of_grey_images_is_explained():
    grey = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    x = torch.rand(4, 3, 8, 8)
    with pytest.raises(
        ctta.ModelError, match=r"takes one channel and got 3\..*x\.mean\(1, keepdim=True\), `ctta adapt -"
    ):
        ctta.TENT(grey)(x)
    assert ctta.TENT(grey)(x.mean(1, keepdim=True)).shape == (4, 5)
    coloured = ctta.Normalized(grey, mean=(0.5, 0.4, 0.3), std=(1, 1, 1))  # of one channel it makes three
    with pytest.raises(ctta.ModelError, match=r"^(?!.*mean\(1).*expected input\[4, 3, 8, 8\]"):
        ctta.TENT(coloured)(x.mean(1, keepdim=True))


def test_no_room_is_the_callers_business():
    class Full(Small):
        def between(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        predictions(adapter(Full(), parallel_passes=2))


def test_forward_passes_are_counted():
    for execution in ({}, {"parallel_passes": 2}, {"views_per_pass": 5}):
        step = adapter(Small(), **execution).step(make_batch("image_bn", 8, 0))
        assert step.info["forwards"] == 6  # five views and the student


def test_a_model_that_views_behind_a_convolution():
    torch.manual_seed(0)
    x = make_batch("image_bn", 8, 0)
    assert adapter(Viewing())(x).shape == (8, 5)
    assert adapter(Viewing(), views_per_pass=5)(x).shape == (8, 5)
    with pytest.raises(ctta.ModelError, match=r"channels-last layout.*reshape\(\).*channels_last: false"):
        adapter(Viewing(), channels_last=True)(x)


@pytest.mark.parametrize("layout", [False, True])
def test_a_state_given_to_another_adapter_goes_on_there_as_here(layout):
    network = make_network("image_bn").double()
    here, there = adapter(network), adapter(network, channels_last=layout)
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
@pytest.mark.parametrize("passes", [1, 2])
def test_precision_of_each_pass(precision, with_gradient, without, passes):
    made = ctta.DSS(
        Watching(),
        preset="cifar10",
        augmentation_threshold=0.5,
        views=2,
        execution=Execution(precision=precision, parallel_passes=passes),
    )
    logits = made(make_batch("image_bn", 8, 0))
    assert logits.dtype == torch.float32
    assert made.student.seen == [(True, with_gradient)]
    assert made.source_model.seen == [(False, without)]
    assert made.teacher.seen
    assert set(made.teacher.seen) == {(False, without)}
    assert all(parameter.dtype == torch.float32 for parameter in made.parameters())


def test_narrow_passes_give_nearly_the_same_predictions():
    network = make_network("image_bn")
    expected = predictions(adapter(network))
    for precision in ("bfloat16", "autocast"):
        found = predictions(adapter(network, precision=precision))
        assert not torch.equal(found, expected)
        torch.testing.assert_close(found, expected, atol=0.1, rtol=0.1)


@pytest.mark.filterwarnings("ignore")
def test_compiled_passes_give_the_same_predictions(monkeypatch):
    """Up to the graph that is given to the compiler; the code that it writes, in half a minute, is torch's."""
    graphs, given, run = [], torch.compile, torch._dynamo.lookup_backend("aot_eager")

    def kept(graph, inputs):
        graphs.append(graph)
        return run(graph, inputs)

    monkeypatch.setattr(torch, "compile", partial(given, backend=kept))
    network = make_network("image_bn").double()
    x = make_batch("image_bn", 8, 0).double()
    plain, compiled = ctta.BNAdapt(network), ctta.BNAdapt(network, execution=Execution(compile=True))
    torch.testing.assert_close(compiled(x), plain(x), atol=1e-10, rtol=1e-10)
    assert graphs


def test_a_compiler_that_is_missing_is_reported():
    class Uncompilable(Small):
        def compile(self, *_: object, **__: object) -> None:
            self._compiled_call_impl = self.fail

        def fail(self, x: Tensor) -> Tensor:
            raise InvalidCxxCompiler

    made = ctta.BNAdapt(Uncompilable(), execution=Execution(compile=True))
    with pytest.raises(ctta.ConfigError, match="needs a compiler"):
        made(make_batch("image_bn", 8, 0))
