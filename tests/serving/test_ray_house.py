"""Homes on a cluster of two nodes, one of which is killed under load: every stream goes on as if nothing happened."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ctta
import tiny
from ctta import ConfigError, StateError
from needs import missing
from small_service import SMALL, pixels

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_killed_node_gives_its_streams_to_another(tmp_path):
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("grpc_reflection") is None:
        missing("needs Ray Serve: pip install 'ctta[test]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_agent_register_timeout_ms"] = "300000"  # a busy machine takes long to start its agents
    finished = subprocess.run(
        [sys.executable, str(TESTS / "killed_home.py"), str(tmp_path / "state"), str(port)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    (last,) = [line for line in finished.stdout.splitlines() if line.startswith("{")]  # Ray says things, too
    said = json.loads(last)
    assert said["lost"], "no home was on the node that was killed"
    assert said["moved"] == said["lost"]
    assert said["listed"] == said["homes"], "every stream has the home that its name says, and no other"
    assert {said["homes"][name] for name in said["answers"]} & set(said["lost"]), "no stream lived there"
    for answers in said["answers"].values():
        steps = [*map(int, answers)]
        assert steps[-1] >= 12
        again = steps[-1] - len(steps)  # batches that were learned, but whose answer died with the node
        assert again <= 2
        guard = ctta.Guard(ctta.TENT(tiny.network(), preset="auto", boundaries="detected"))
        for before, step in zip([0, *steps], steps, strict=False):
            for _ in range(before, step):
                expected = guard(torch.from_numpy(pixels(before, 8))).softmax(1).numpy()
            assert np.array_equal(np.array(answers[str(step)], np.float32), expected)


def test_what_a_cluster_needs(tmp_path):
    from ctta.serving.ray_house import Deployed
    from ctta.serving.security import Tokens
    from ctta.serving.settings import ServeSettings

    with pytest.raises(ConfigError, match="a folder that all nodes see"):
        Deployed(ServeSettings.make(SMALL), Tokens(), "auto", 2)
    (tmp_path / "homes.json").write_text('{"homes": 3}')
    with pytest.raises(StateError, match="--homes 3"):
        Deployed(ServeSettings.make({**SMALL, "state": str(tmp_path)}), Tokens(), "auto", 2)
