"""Where method runs are done: in this process, in processes of this machine, or on a Ray cluster.

A job is one method run of one run folder, and leaves the same records wherever it is run. A job whose worker is lost
goes on from its checkpoint. A job that fails does not keep the others from finishing.
"""

from __future__ import annotations

from ctta.running.engines.inline import Inline
from ctta.running.engines.job import Engine, Event, Events, Job
from ctta.running.engines.processes import Processes
from ctta.running.engines.ray import RayCluster

__all__ = ["Engine", "Event", "Events", "Inline", "Job", "Processes", "RayCluster"]
