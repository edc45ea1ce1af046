"""Pictures in requests."""

from __future__ import annotations

import io

import pytest
from PIL import Image


@pytest.mark.parametrize(("channels", "wanted"), [(3, [255, 0, 0]), (1, [76])])
def test_a_picture_has_the_channels_of_the_model(channels, wanted):
    """A grey one is the luminance: 0.299 of red."""
    from ctta.serving.thumbnails import read_pictures

    content = io.BytesIO()
    Image.new("RGB", (6, 4), (255, 0, 0)).save(content, "PNG")
    (found,) = read_pictures([content.getvalue()], (channels, 4, 4), 100)
    assert (found * 255).round()[:, 0, 0].tolist() == wanted
