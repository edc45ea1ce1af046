"""Where method runs are done: in this process, in processes of this machine, or on a Ray cluster.

The unit of work is a job: one method run of one run folder. Engines differ only in where the work is done: the same
jobs leave the same records. A job whose worker is lost is run again and goes on from its checkpoint. A job that fails
does not keep the others from finishing.
"""

from __future__ import annotations

from ctta.running.engines.inline import Inline
from ctta.running.engines.job import Engine, Event, Events, Job
from ctta.running.engines.processes import Processes
from ctta.running.engines.ray import RayCluster

__all__ = ["Engine", "Event", "Events", "Inline", "Job", "Processes", "RayCluster"]
