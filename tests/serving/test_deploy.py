"""What lies in deploy/ and examples/ fits the service."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from ctta.serving.settings import ServeSettings
from small_service import INFER, body, pixels

ROOT = Path(__file__).parents[2]


def test_the_dashboard_shows_only_what_is_measured(service):
    client = service(method="dss", changes={"views": 1})
    client.post(INFER, json=body(pixels(0, 32)))
    text = client.get("/metrics").text
    board = (ROOT / "deploy/grafana/ctta.json").read_text()
    asked = set(re.findall(r"ctta_\w+", "".join(t["expr"] for p in json.loads(board)["panels"] for t in p["targets"])))
    assert len(asked) > 12
    assert [name for name in sorted(asked) if not re.search(rf"^(# HELP )?{name}\b", text, re.MULTILINE)] == []


def test_compose_and_the_example_settings_are_valid():
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    assert set(services) == {"ctta", "prometheus", "grafana"}
    for one in services.values():
        assert all(port.startswith("127.0.0.1:") for port in one["ports"]), "nothing is open to other machines"
    assert ServeSettings.read(ROOT / "examples/serve.yaml", {"port": 1}).save_updates == 20
