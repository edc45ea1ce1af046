"""Where cells are run: in this process, in processes of this machine, or on a Ray cluster.

The unit of work is a job: one cell of one run folder. `plan` claims the folders and lists the jobs that are not done;
an engine runs them and tells how far each is; `follow` adds that up. Engines differ in where the work is done and in
nothing else: the same cells leave the same records. A job whose worker is lost is run again and goes on from its
checkpoint. A job that fails does not hinder the others.
"""

from __future__ import annotations

from ctta.running.engines.inline import here
from ctta.running.engines.job import Event, Events, Job, Plan, State, follow, plan
from ctta.running.engines.processes import local
from ctta.running.engines.ray import on_ray

__all__ = ["Event", "Events", "Job", "Plan", "State", "follow", "here", "local", "on_ray", "plan"]
