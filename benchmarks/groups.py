"""Measures single decisions for large groups, in process: the search, placements and preemption, no requests.

    python benchmarks/groups.py

prints one JSON object per situation, with milliseconds of CPU: of the first attempt, when nothing is cached,
and of the next ones (the median), before each of which a pod was added to another node. `--nodes` changes the
size of the cluster, `--profile FILE` profiles the next attempts.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bayplan.api.groups import (
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    SchedulingConstraints,
    TopologyConstraint,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import PodSchedulingGroup
from bayplan.api.releases import V1_37
from bayplan.runtime.search import run_through
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.group_cycle import GroupCycle, GroupDecision
from bayplan.state.group_trees import tree_of
from bayplan.state.groups import GroupKey
from bayplan.testing import make_node, make_pod

GATES: Final = frozenset({"GenericWorkload", "TopologyAwareWorkloadScheduling"})
RACK: Final = "example.com/rack"
ATTEMPTS: Final = 9


@dataclass(frozen=True)
class Situation:
    """Nodes with 10 CPUs each, and a gang that does not run yet."""

    name: str
    members: int
    cpu: str
    """Of each member."""
    others: int = 0
    """Running pods on each node, with 1 CPU and priority 0."""
    taken: int = 0
    """The number of nodes that have a pod of 5 CPUs and a higher priority."""
    racks: int = 0
    """All members have to be in the same one; 0: anywhere."""
    priority: int = 0


def situations(nodes: int) -> Iterator[Situation]:
    yield Situation("gang of 1,000 fits", 1000, "1")
    yield Situation("gang of 1,000 fits, one on a node", 1000, "6")
    yield Situation("999 of a gang of 1,000 fit", 1000, "6", taken=nodes - 999)
    yield Situation("gang of 64 in one of 100 racks", 64, "1", racks=100)
    yield Situation("gang of 64 in one of 100 racks, 50 fit", 64, "6", racks=100)
    yield Situation("gang of 64 evicts", 64, "8", others=10, priority=100)
    yield Situation("gang of 64 would not fit if it evicted", 64, "11", others=10, priority=100)


def core_of(situation: Situation, nodes: int) -> SchedulingCore:
    core = SchedulingCore(release=V1_37.with_gates(V1_37.gates | GATES))
    for number in range(nodes):
        name = f"n{number}"
        labels = {RACK: f"r{number % situation.racks}"} if situation.racks else {}
        core.cluster.set_node(make_node(name, cpu="10", pods=110, labels=labels))
        for other in range(situation.others):
            core.cluster.add_pod(make_pod(f"o{number}-{other}", cpu="1", node=name), name)
        if number < situation.taken:
            core.cluster.add_pod(make_pod(f"t{number}", cpu="5", node=name, priority=100), name)
    return core


def measure(situation: Situation, nodes: int, profiler: cProfile.Profile | None) -> dict[str, Any]:
    core, count = core_of(situation, nodes), situation.members
    named = PodSchedulingGroup(pod_group_name="gang")
    pods = [
        make_pod(f"gang-{number}", cpu=situation.cpu, priority=situation.priority, scheduling_group=named)
        for number in range(count)
    ]
    spec = PodGroupSpec(
        scheduling_policy=PodGroupSchedulingPolicy(None, GangSchedulingPolicy(count)),
        scheduling_constraints=SchedulingConstraints((TopologyConstraint(RACK),))
        if situation.racks
        else None,
        priority=situation.priority,
    )
    core.cluster.objects.put(PodGroup(metadata=ObjectMeta(name="gang", namespace="default"), spec=spec))
    states = core.cluster.groups
    assert states is not None
    group = states.group(GroupKey("default", "gang"))
    assert group is not None
    (framework,) = core.frameworks.values()

    def attempt() -> tuple[GroupDecision, float]:
        started = time.process_time()
        decision = run_through(GroupCycle(framework, tree_of(states, group, pods)).decide())
        return decision, (time.process_time() - started) * 1e3

    gc.freeze()  # as the process does after syncing
    decision, first = attempt()
    times = []
    for number in range(ATTEMPTS):
        core.cluster.add_pod(make_pod(f"new-{number}", cpu="10m", node=f"n{number}"), f"n{number}")
        if profiler is not None:
            profiler.enable()
        decision, milliseconds = attempt()
        if profiler is not None:
            profiler.disable()
        times.append(milliseconds)
    gc.unfreeze()
    return {
        "situation": situation.name,
        "nodes": nodes,
        "pods": core.cluster.pod_count,
        "first_cpu_ms": round(first, 1),
        "next_cpu_ms": round(statistics.median(times), 1),
        "victims": 0 if decision.eviction is None else len(decision.eviction.victims),
        "result": decision.message or "fits",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    profiler = None if options.profile is None else cProfile.Profile()
    for situation in situations(options.nodes):
        print(json.dumps(measure(situation, options.nodes, profiler)), flush=True)
    if profiler is not None:
        profiler.dump_stats(options.profile)


if __name__ == "__main__":
    main()
