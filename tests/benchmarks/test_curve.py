"""The curve of error against time over the number of augmentations."""

from __future__ import annotations

import json
from functools import partial

from benchmarks import curve, methods
from ctta.testing.networks import make_batch, make_network


def test_the_curve_puts_errors_beside_times(tmp_path, monkeypatch):
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    monkeypatch.setattr(curve, "measure", partial(methods.measure, patience=0))
    monkeypatch.setattr(curve, "random_model", lambda name: network)
    monkeypatch.setattr(curve, "random_batch", lambda shape: x)
    table = tmp_path / "errors.csv"
    table.write_text("label,mean,mean sd\nlean 2,21.5,0.20\npaper 3,22.5,0.10\n")
    curves = (
        curve.Curve("a network", "any", table, rounds=1),
        curve.Curve("no table", "any", tmp_path / "none.csv", rounds=1),
    )
    curve.main(out=tmp_path, curves=curves)
    found = json.loads((tmp_path / "lean_curve.json").read_text())["curves"]
    assert list(found) == ["a network"]
    lean, paper = found["a network"]
    assert (lean["kind"], lean["error"], lean["deviation"]) == ("lean", 21.5, 0.2)
    assert (paper["kind"], paper["error"]) == ("paper", 22.5)
    assert lean["forward_ratio"] > 0
    assert paper["reference_ratio"] > 0
    assert (tmp_path / "lean_curve.png").read_bytes().startswith(b"\x89PNG")
