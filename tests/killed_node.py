"""Runs an experiment on a cluster of two nodes of this machine, and kills one half-way. A script, for a test.

Prints which method runs have lost their worker, and what failed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from ctta.experiments import experiment as experiments
from ctta.running.engines import Job, RayCluster
from ctta.running.engines.job import LostWorkers
from ctta.running.run import run
from gates import Gate


def main(spec: str, out: str) -> None:
    os.environ |= {"GATE": f"{out}.gate", "DRIVER": str(os.getpid())}  # before the nodes are started
    gate, lost, again = Gate(Path(os.environ["GATE"])), [], LostWorkers.again

    def note(self: LostWorkers, job: Job) -> bool:
        lost.append(job.cell.cell)
        gate.open()  # not before: a worker of the killed node could finish before it notices that it is alone
        return again(self, job)

    LostWorkers.again = note
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed = cluster.add_node(num_cpus=1)
    seen: set[str] = set()
    engine = RayCluster(cluster.address, checkpoint_seconds=0.0, update_seconds=0.0)
    try:
        for status in run(experiments.make(json.loads(spec)), out, engine):
            if status.last is not None:
                seen.add(status.last.job.cell.cell)
            if len(seen) == 2 and doomed is not None:  # there is one on either node, and neither gets past the gate
                cluster.remove_node(doomed, allow_graceful=False)
                doomed = None
    finally:
        cluster.shutdown()
    print(json.dumps({"lost": lost, "failures": [event.error for event in status.failures]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
