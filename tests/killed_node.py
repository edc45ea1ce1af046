"""Runs an experiment on a cluster of two nodes of this machine, and kills one half-way. A script, for a test.

Prints how often a job has lost its worker.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.running import engines
from ctta.running.engines.job import Losses

lost = []
again = Losses.again
Losses.again = lambda self, job: lost.append(job.cell.cell) or again(self, job)


def main(spec: str, out: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed = cluster.add_node(num_cpus=1)
    plan = engines.plan([(experiments.make(json.loads(spec)), RunFolder(Path(out)))], threads=1)
    seen: set[str] = set()
    try:
        events = engines.on_ray(plan.jobs, address=cluster.address, checkpoint_seconds=0.3)
        for state in engines.follow(plan, events):
            if not state.last.over:
                seen.add(state.last.job.cell.cell)
            if len(seen) == 2 and doomed is not None:  # a cell on either node, both half-way
                cluster.remove_node(doomed, allow_graceful=False)
                doomed = None
    finally:
        cluster.shutdown()
    print(json.dumps({"lost": lost, "failures": [event.error for event in state.failures]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
