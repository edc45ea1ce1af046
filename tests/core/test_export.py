"""Exported networks: plain modules that answer as `predict` does."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from ctta import TENT, Guard, InputError, Normalized, StateError
from ctta.core.statistics import StreamStatistics
from ctta.methods import METHODS
from ctta.testing.networks import CLASSES, NETWORKS, make_batch, make_network, make_stream

STREAM = make_stream("image_bn", 4)
X = STREAM[3]
WITHOUT = ["test_aug", "lame"]  # predict with more than a network


def adapted(name, network="image_bn", **arguments):
    stream = make_stream(network, 4)
    adapter = METHODS[name](make_network(network), **arguments)
    adapter.prepare((x, torch.arange(len(x)) % CLASSES) for x in stream[:2])
    for x in stream[:3]:
        adapter(x)
    return adapter


def close(one, other):
    return torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def is_plain(module):
    """Nothing of an adapter is left in it."""
    hooks = [hook for part in module.modules() for hook in part._forward_pre_hooks.values()]
    ours = [value for part in module.modules() for value in vars(part).values() if isinstance(value, StreamStatistics)]
    still = not any(parameter.requires_grad for parameter in module.parameters())
    return not hooks and not ours and still and not any(part.training for part in module.modules())


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("network", ["image_bn", "vit_ln"])
def test_every_method_answers_as_it_predicts_or_says_that_it_cannot(name, network):
    adapter, x = adapted(name, network, preset="paper"), make_stream(network, 4)[3]
    if name in WITHOUT:
        with pytest.raises(StateError, match="predicts with more than a network"):
            adapter.export(x)
        return
    before = adapter.predict(x)
    module = adapter.export(x)
    first = module(x)
    assert close(first, before)
    assert is_plain(module)
    if network == "image_bn" and name not in ("source", "adacontrast", "rotta"):
        assert not close(first, adapter.source(x)), "it has not adapted"
    single = torch.cat([module(one[None]) for one in x])
    assert close(single, before), "the answer for a sample does not depend on the others"
    adapter(x)
    assert torch.equal(module(x), first), "it is a copy"


@pytest.mark.parametrize("name", list(METHODS))
def test_the_network_is_the_one_that_answers(name):
    """Its plain answer, under the statistics of the method, is the prediction; some methods add to it."""
    adapter = adapted(name, preset="paper")
    with torch.no_grad():
        answer = adapter.network(X)
    if name in (*WITHOUT, "roid", "cmf"):
        assert answer.shape == (len(X), CLASSES)
    else:
        assert close(answer, adapter.predict(X, corrected=False))


@pytest.mark.parametrize("kind", ["batch", "mixed", "running", "robust", "auto"])
def test_which_statistics_are_frozen(kind):
    adapter, dark = adapted("tent", statistics=kind, batch_weight=0.3, lr=0.01), make_batch("image_bn", 64, 1) / 10
    assert close(adapter.export(dark)(dark), adapter.predict(dark))
    assert not close(adapter.export(dark)(dark), adapter.export(X)(dark)), "the batch decides nothing"
    if kind not in ("running", "robust"):
        with pytest.raises(InputError, match=r"Give a batch.*adapter\.export\(x\)"):
            adapter.export()
        return
    module, layer = adapter.export(), adapter.model.bn1
    assert is_plain(module)
    assert torch.equal(module.bn1.running_mean, layer.stream_mean)
    assert torch.equal(module.bn1.running_var, layer.stream_var)
    assert torch.equal(module.bn1.weight, layer.weight)
    assert not torch.equal(module.bn1.running_mean, layer.running_mean)


def test_statistics_of_instances_cannot_be_frozen():
    with pytest.raises(StateError, match="each sample is normalised with statistics of its own"):
        adapted("tent", statistics="instance").export(X)
    adapted("tent", "vit_ln", statistics="instance").export()  # it has no BatchNorm layer


def test_without_a_batch_the_statistics_are_the_source_s():
    adapter = adapted("source")
    assert torch.equal(adapter.export()(X), adapter.predict(X))


def test_layers_without_statistics_of_their_own_get_those_of_the_batch():
    network = make_network("image_bn")
    network.bn2 = nn.BatchNorm2d(8, track_running_stats=False)
    adapter = TENT(network, statistics="running")
    adapter(STREAM[0])
    with pytest.raises(InputError, match="Give a batch"):
        adapter.export()
    module = adapter.export(X)
    assert close(module(X), adapter.predict(X))
    assert close(torch.cat([module(one[None]) for one in X]), adapter.predict(X))


def test_the_frozen_prior_of_roid_moves_with_its_network():
    module = adapted("roid").export(X)
    assert {buffer.device.type for buffer in module.to("meta").buffers()} == {"meta"}
    assert any(name.endswith("prior") for name, _ in module.named_buffers())


def test_a_guard_exports_what_it_answers_with(monkeypatch):
    guard = Guard(adapted("tent", lr=0.05, statistics="auto"))
    adapter = guard.adapter
    assert close(guard.export(X)(X), adapter.reference(X)), "it is on trial"
    guard.state = replace(guard.state, trial=0)
    assert close(guard.export(X)(X), adapter.predict(X))
    monkeypatch.setattr("ctta.core.health.WATCH", -1.0)
    assert guard.verdict == "watched"
    assert close(guard.export(X)(X), guard.predict(X))
    assert not close(guard.export(X)(X), adapter.export(X)(X))


@pytest.mark.parametrize("heard", [0.5, 1.0])
@pytest.mark.parametrize("trial", [0, 1])
def test_a_guard_exports_the_say_of_the_unadapted_model(trial, heard):
    guard = Guard(adapted("tent", lr=0.05, statistics="mixed"))
    guard.state = replace(guard.state, trial=trial, heard=heard)
    one = (guard.adapter.reference if trial else guard.adapter.predict)(X)
    answer = one.softmax(1).lerp(guard.adapter.source(X).softmax(1), heard)
    assert close(guard.export(X)(X).softmax(1), answer)
    assert close(guard.predict(X).softmax(1), answer)
    assert not close(one.softmax(1), answer)


def test_the_adapter_stays_as_it_was():
    adapter = adapted("dss", views=2)
    twin = copy.deepcopy(adapter)
    adapter.export(X)
    assert torch.equal(adapter(X), twin(X))


@pytest.mark.parametrize("correction", ["logits", "probabilities", "none"])
def test_the_prior_of_the_batch_is_frozen_too(correction):
    adapter = adapted("roid", correction=correction, statistics="running")
    module = adapter.export(X)
    assert close(module(X), adapter.predict(X))
    assert close(torch.cat([module(one[None]) for one in X]), adapter.predict(X))
    if correction != "none":
        with pytest.raises(InputError, match="prior of the batch"):
            adapter.export()


@pytest.mark.parametrize("network", list(NETWORKS))
def test_torch_exports_it(network):
    adapter, x = adapted("cotta", network), make_stream(network, 4)[3]
    any_size = network != "vit_ln"  # its own code fixes the size of a batch, by len(x)
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if any_size else None
    program = torch.export.export(adapter.export(x), (x,), dynamic_shapes=shapes)
    assert close(program.module()(x), adapter.predict(x))
    if any_size:
        assert close(program.module()(x[:3]), adapter.predict(x)[:3])


@pytest.mark.filterwarnings("ignore")  # of packages
@pytest.mark.parametrize("name", ["dss", "rmt", "roid"])
def test_onnx_runtime_answers_as_predict_does(tmp_path, name):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    network = Normalized(make_network("image_bn"), [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    adapter = METHODS[name](network)
    adapter.prepare((x, torch.arange(len(x)) % CLASSES) for x in STREAM[:2])
    for x in STREAM[:3]:
        adapter(x)
    path = tmp_path / "m.onnx"
    torch.onnx.export(adapter.export(X), (X,), path, dynamo=True, dynamic_shapes=({0: "batch"},), input_names=["x"])
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = adapter.predict(X)
    (found,) = session.run(None, {"x": X.numpy()})
    assert close(torch.from_numpy(found), wanted)
    (found,) = session.run(None, {"x": X[:2].numpy()})
    assert close(torch.from_numpy(found), wanted[:2])
