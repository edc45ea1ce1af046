"""What comes in from outside: models that are unwrapped or refused, and batches out of range."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ctta import DSS, TENT, ConfigError, InputError, ModelError, Source
from ctta.testing.networks import CLASSES, ImageBN, make_batch, make_network

X = make_batch("image_bn", 4, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, on the first torch.compile
def test_wrapped_models_are_unwrapped():
    network = make_network("image_bn")
    expected = TENT(network)(X)
    assert torch.equal(TENT(nn.DataParallel(network))(X), expected)
    assert torch.equal(TENT(torch.compile(network))(X), expected)


def test_models_that_cannot_be_used():
    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, CLASSES)
            self.table = self.head.weight * 2

    with pytest.raises(ModelError, match="register it as a buffer"):
        Source(Computed())
    with pytest.raises(ModelError, match="lazy layers"):
        Source(nn.Sequential(nn.LazyLinear(5)))
    with pytest.raises(ModelError, match=r"must be a torch\.nn\.Module"):
        Source(lambda x: x)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_models_are_refused():
    with pytest.raises(ModelError, match="scripted"):
        Source(torch.jit.script(nn.Linear(2, 2)))


def test_models_made_under_inference_mode_work():
    with torch.inference_mode():
        network = ImageBN()
        adapter = TENT(network)
        assert adapter(X).shape == (4, CLASSES)
    assert adapter(X).shape == (4, CLASSES)


def test_slightly_out_of_range_is_rounding_not_an_error():
    adapter = DSS(make_network("image_bn"), views=1)
    adapter(X.clamp(0, 1) * 1.0 + 5e-4)
    with pytest.raises(InputError, match=r"ctta\.Normalized"):
        adapter(X - 0.3)


def test_images_lie_between_0_and_1_for_every_method_unless_the_user_says_otherwise():
    for bad, words in [(X - 0.3, "normalised"), (X * 255, "x / 255"), (X * 3e38, "normalised")]:
        with pytest.raises(InputError, match=words):
            TENT(make_network("image_bn"))(bad)
    TENT(make_network("image_bn"), inputs="any")(X - 0.3)
    with pytest.raises(InputError, match=r"views=\.\.\."):  # its own views are of pixels
        DSS(make_network("image_bn"), inputs="any")(X - 0.3)
    with pytest.raises(ConfigError, match="'auto' or 'any'"):
        TENT(make_network("image_bn"), inputs="pixels")
