"""ResNeXt-29: its parameters, counted by hand."""

from __future__ import annotations

from networks_by_name import on_meta, parameters


def resnext29_by_hand() -> int:
    """Convolutions, two numbers per norm channel, and the head: 4 groups of base width 32, 100 classes."""
    total, inputs = 3 * 64 * 9 + 2 * 64, 64
    for planes in (64, 128, 256):
        inner, outputs = 4 * planes // 2, 4 * planes
        for block in range(3):
            total += inputs * inner + inner * (inner // 4) * 9 + inner * outputs + 2 * (2 * inner + outputs)
            total += inputs * outputs + 2 * outputs if block == 0 else 0
            inputs = outputs
    return total + 1024 * 100 + 100


def test_resnext_by_hand() -> None:
    assert parameters(on_meta("resnext29")) == resnext29_by_hand()
