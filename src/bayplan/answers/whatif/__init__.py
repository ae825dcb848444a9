"""What-if questions about a cluster: where would pods go, what still fits, what moves.

cluster.py      `Cluster` and its branches: the library; view.py has what can be read of them
scheduling.py   schedules pods, one after the other
engine.py       runs the scheduler in virtual time, without the plugins' steps that act on the world
capacity.py     counts how many more pods fit
comparison.py   compares configurations
manifests.py    reads manifests, as strictly as an API server
applying.py     applies them; workloads.py creates, scales and changes workloads, rollouts.py plays rollouts
pods.py         creates, deletes and compares pods
admission.py    defaults, classes, limits and quotas for new pods
scaling.py      scales workloads that are there
machines.py     nodes to add
state.py        objects and columns, and how changes are reverted
controllers.py  what controllers do about claims, volumes, budgets and evicted pods
outcomes.py     results, and their HTML for notebooks
"""

from bayplan.answers.whatif.cluster import Branch, Cluster
from bayplan.answers.whatif.machines import machine
from bayplan.answers.whatif.outcomes import Answer, Capacity, Outcome, Placement, Placements

__all__ = [
    "Answer",
    "Branch",
    "Capacity",
    "Cluster",
    "Outcome",
    "Placement",
    "Placements",
    "machine",
]
