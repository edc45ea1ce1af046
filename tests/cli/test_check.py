"""`ctta check`: what would run, and what is wrong."""

from __future__ import annotations

from command_line import ctta


def test_what_would_run(spec):
    path = spec()
    code, out, err = ctta("check", path, "--set", "seeds=[0, 1]")
    assert code == 0, err
    assert "2 domains, 4 batches" in out
    assert "tent-s0" in out
    assert out.endswith(f"No problems found. Next:  ctta run {path} --set 'seeds=[0, 1]'\n")


def test_problems_are_counted(spec):
    path = spec()
    code, out, _ = ctta("check", path, "--set", "data.severity=9")
    assert code == 2
    assert out.endswith(f"1 problem. Fix, then check again:  ctta check {path} --set data.severity=9\n")
