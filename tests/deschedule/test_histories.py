"""Generated histories: moves end where the plan says, end at all, and stay within budgets."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.deschedule.executing import Executor, Outcome, Rate
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.planner import Planner
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pdb, make_pod_affinity, make_pod_term, make_spread
from tests.deschedule.situations import NOW, descheduler, replica
from tests.deschedule.test_executing import READY, SimulatedCluster
from tests.effort import examples

HOSTNAME = "kubernetes.io/hostname"
POLICY: dict[str, Any] = {
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"],
    },
    "RemoveDuplicates": {},
    "RemovePodsViolatingTopologySpreadConstraint": {"constraints": ["DoNotSchedule", "ScheduleAnyway"]},
    "LowNodeUtilization": {"thresholds": {"cpu": 40}, "targetThresholds": {"cpu": 60}},
    "HighNodeUtilization": {"thresholds": {"cpu": 30}},
}
"""The last two work against each other: upstream loops with them (descheduler#668, #1026)."""
MAX_CYCLES = 60


def generated(rng: random.Random) -> list[Object]:
    """A few nodes in two zones, and pods of four owners wherever chance put them."""
    nodes: list[Object] = []
    for i in range(rng.randint(2, 6)):
        taints = rng.choice([[], [], ["old=1:NoSchedule"], ["karpenter.sh/disrupted:NoSchedule"]])
        labels = {HOSTNAME: f"n{i}", "zone": f"z{i % 2}", "disk": rng.choice(["ssd", "hdd"])}
        nodes.append(make_node(f"n{i}", cpu=rng.choice([2, 4, 8]), labels=labels, taints=taints))
    objects = list(nodes)
    for k in range(rng.randint(1, 14)):
        owner = rng.choice(["a", "b", "c", "d"])
        fields: dict[str, Any] = {"cpu": rng.choice(["100m", "500m", "1"])}
        if owner == "a":
            fields["spread"] = [make_spread("zone", {"app": "a"}, hard=rng.random() < 0.5)]
        if owner == "b":
            fields["affinity"] = make_pod_affinity(anti_required=[make_pod_term(HOSTNAME, {"app": "b"})])
        if owner == "c":
            fields["node_selector"] = {"disk": "ssd"}
        node = rng.choice(nodes).name
        objects.append(replica(f"p{k:02}", node, owner, conditions=[READY], **fields))
    objects += [make_pdb(one, {"app": one}, allowed=rng.randint(0, 2)) for one in "abd" if rng.random() < 0.5]
    return objects


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**9))
@example(156474)  # pods of one owner with several templates
@example(5399)  # a pod without a place is moved by another strategy before it is tried again
def test_cycles_end_and_plans_are_kept(seed: int) -> None:
    """Without outside change cycles end, every move ends on its node, none returns, no budget is exceeded."""
    simulated = SimulatedCluster(generated(random.Random(seed)))
    memory = Memory()
    left: set[tuple[str, str]] = set()
    for _ in range(MAX_CYCLES):
        cluster = run_virtual(simulated.load())
        plan = Planner(cluster, descheduler(POLICY), NOW, memory).plan()
        if not plan.moves:
            return
        budgets = {one.key: one.status.disruptions_allowed for one in simulated.stored
                   if isinstance(one, PodDisruptionBudget)}  # fmt: skip
        for budget, allowed in budgets.items():
            assert sum(one.budget == budget for one in plan.moves) <= allowed
        steps = run_virtual(Executor(simulated, memory, Rate(6000)).run(plan.moves))
        assert [one.outcome for one in steps] == [Outcome.MOVED] * len(plan.moves), steps
        where = {one.key: one.spec.node_name for one in simulated.stored if isinstance(one, Pod)}
        for move in plan.moves:
            assert where[move.pod] == move.target
            assert (move.pod, move.target) not in left
            left.add((move.pod, move.source))
    raise AssertionError("the moves do not end")
