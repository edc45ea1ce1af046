"""The rule for small and large images."""

from __future__ import annotations

import pytest

from ctta.base.image_size import is_large


@pytest.mark.parametrize(("height", "width", "large"), [(64, 64, False), (8, 65, True), (65, 8, True)])
def test_an_image_is_large_if_a_side_is_longer_than_64_pixels(height, width, large):
    assert is_large(height, width) is large
