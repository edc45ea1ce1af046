"""Serves on a cluster of two nodes of this machine, and kills one under load. A script, for a test.

Prints what was asked and answered, stream by stream.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.cluster_utils import Cluster

import ctta
from ctta.client import ServiceError
from ctta.serving import ray_house
from ctta.serving.ray_house import Deployed, RayHouse
from ctta.serving.security import Tokens
from ctta.serving.settings import ServeSettings
from small_service import SMALL, pixels

STREAMS, BATCHES, KILLED = 6, 12, 5


def patiently(ask: Callable[[], Any]) -> Any:
    """Ask again if the service says that it cannot answer now, as while a node dies."""
    for _ in range(20):
        try:
            return ask()
        except ServiceError:
            time.sleep(3)
    return ask()


def main(folder: str, port: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    ray.init(address=cluster.address, namespace=ray_house.NAMESPACE, log_to_driver=False)
    ray_house.cluster.connect = lambda *_, **__: ray  # now, so that this process is not on the node that dies
    doomed = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    settings = ServeSettings.make(
        {**SMALL, "state": folder, "port": int(port), "save_updates": 1, "deadline": 120.0, "max_delay": 0.0}
    )
    deployed = Deployed(settings, Tokens(), cluster.address, homes=4)
    nodes = [node for _, node in deployed.abouts]
    lost = [number for number, node in enumerate(nodes) if node == doomed.node_id]
    names = [f"camera-{i}" for i in range(STREAMS)]
    homes = {name: RayHouse(settings, 4, deployed.abouts[0][0])._home_of(name) for name in names}
    answers: dict[str, dict[int, list[list[float]]]] = {name: {} for name in names}
    reached, killed = threading.Barrier(STREAMS + 1), threading.Event()

    def load(name: str) -> None:
        with ctta.Client(deployed.address, model="m", stream=name, timeout=180.0) as client:
            step = 0
            while step < BATCHES:
                if step == KILLED and not killed.is_set():
                    reached.wait(180)  # so that every stream has something to lose, and the kill is under load
                step = patiently(lambda: client.predict(pixels(0, 8))).step
                got = patiently(lambda step=step: client(pixels(step, 8)))
                answers[name][got.step] = got.probabilities.tolist()
                step = got.step

    threads = [threading.Thread(target=load, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    reached.wait(180)
    cluster.remove_node(doomed, allow_graceful=False)
    killed.set()
    for thread in threads:
        thread.join(300)
    with ctta.Client(deployed.address, model="m") as client:
        listed = {stream["name"]: stream["home"] for stream in client.streams()}
    after = deployed.ray.get([actor.about.remote() for actor in deployed.actors])
    moved = [number for number, (_, node) in enumerate(after) if node != nodes[number]]
    deployed.close()
    said = {"lost": lost, "moved": moved, "homes": homes, "listed": listed, "answers": answers}
    print(json.dumps(said), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
