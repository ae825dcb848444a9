"""Fault runs with composite groups: trees of pod groups that come, lose parts and come back.

Beside the rules of `groups.py`: no tree waits whose groups would fit and be enough; and if nothing fails, a
member is bound only if enough groups of its tree have enough members with a node.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from bayplan.api.groups import (
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSpec,
    CompositeSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.runtime.search import run_through
from bayplan.scheduler.group_cycle import GroupCycle
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryStore
from bayplan.state.group_trees import tree_of
from bayplan.state.groups import ALL_COUNT, Group, GroupStates, group_key, key_of
from tests.faults import groups
from tests.faults.checks import Oversight, can_be_tried, fresh_core, oversight
from tests.faults.objects import make_pod
from tests.faults.workload import NAMESPACE

TREE_GATES: Final = {"TopologyAwareWorkloadScheduling", "CompositePodGroup"}
RELEASE: Final = groups.RELEASE.with_gates(groups.RELEASE.gates | TREE_GATES)


class TreeWorld(groups.GroupWorld):
    """The same changes, and composite groups."""

    def __init__(self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None]) -> None:
        super().__init__(store, rng, trace)
        self.add_actions([(6, self.create_tree), (2, self.delete_composite)])

    def create_tree(self) -> None:
        """Groups with identical members below one or two composite groups, which may come first or last."""
        rng, root = self._rng, self._new_name("t")
        count, priority = rng.randint(1, 3), rng.choice((-10, -5, 0, 0, 5))
        pod = make_pod(cpu=rng.choice((300, 900)), priority=priority)
        inner = self._new_name("t") if rng.random() < 0.3 else None
        composites = [make_composite(root, None, rng.randint(1, count), priority)]
        if inner is not None:
            composites.append(make_composite(inner, root, rng.randint(1, count), priority))
            composites[0] = make_composite(root, None, 1, priority)
        rng.shuffle(composites)
        first = rng.randint(0, len(composites))
        for composite in composites[:first]:
            self._put(composite)
        for _ in range(count):
            self._create_part(inner or root, pod, priority)
        for composite in composites[first:]:
            self._put(composite)

    def _create_part(self, parent: str, pod: Pod, priority: int) -> None:
        name, size = self._new_name("g"), self._rng.randint(1, 3)
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=self._rng.randint(1, size)))
        spec = PodGroupSpec(
            scheduling_policy=policy, priority=priority, parent_composite_pod_group_name=parent
        )
        self._put(PodGroup(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec))
        member = replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
        for _ in range(size):
            self._create(replace(pod, spec=member))

    def delete_composite(self) -> None:
        """It may come back, with the same groups below it."""
        composites = self.store.list(CompositePodGroup)
        if composites:
            item = self._rng.choice(composites)
            self._trace(f"composite group {item.name} is deleted")
            self.store.delete(CompositePodGroup, item.name, item.namespace)
            if self._rng.random() < 0.7:
                meta = ObjectMeta(name=item.name, namespace=NAMESPACE)
                self._put(CompositePodGroup(metadata=meta, spec=item.spec))


def make_composite(
    name: str, parent: str | None, least: int, priority: int, namespace: str = NAMESPACE
) -> CompositePodGroup:
    policy = CompositeSchedulingPolicy(gang=CompositeGangSchedulingPolicy(min_group_count=least))
    spec = CompositePodGroupSpec(
        parent_composite_pod_group_name=parent, scheduling_policy=policy, priority=priority
    )
    return CompositePodGroup(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


def waiting_trees(scheduler: Scheduler, store: MemoryStore) -> Iterator[Oversight]:
    """A tree whose groups would fit, and be enough, does not wait."""
    for item in store.list(CompositePodGroup):
        core = fresh_core(scheduler, store, RELEASE)
        states = core.cluster.groups
        assert states is not None
        root = states.root(key_of(item))
        if root is None or root.key != key_of(item) or not states.is_ready(root, ALL_COUNT):
            continue
        keys = {state.key for state in states.states_below(root)}
        pending = [
            pod
            for pod in store.list(Pod)
            if group_key(pod) in keys and not (pod.spec.node_name or pod.is_terminating or pod.is_finished)
        ]
        if not pending or not all(can_be_tried(scheduler, pod) for pod in pending):
            continue
        framework = core.frameworks[pending[0].spec.scheduler_name]
        decision = run_through(GroupCycle(framework, tree_of(states, root, pending)).decide())
        if decision.status.is_success:
            yield oversight(scheduler, f"tree {item.name}", "waits, but would fit", pending)


class BoundTrees(groups.BoundGangs):
    """Whether a member is bound although too few groups of its tree have enough members with a node."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._parents: dict[str, str] = {}
        self._lost: Counter[str] = Counter()
        """By composite group: the groups below it that were deleted, which may have been part of it."""

    def observe(self) -> None:
        super().observe()
        now = {
            item.uid: item.spec.parent_composite_pod_group_name or ""
            for item in self._store.list(CompositePodGroup)
        }
        for group in self._store.list(PodGroup):
            now[group.uid] = group.spec.parent_composite_pod_group_name or ""
        for uid, parent in self._parents.items():
            if uid not in now:
                self._lost[parent] += 1
        self._parents = now

    def bound(self, scheduler: Scheduler, pod: Pod) -> None:
        super().bound(scheduler, pod)
        states = scheduler.context.cluster.groups
        root = None if states is None else states.root_of(pod)
        if states is not None and root is not None and not self._is_complete(states, root):
            self.problems.append(f"pod {pod.key} is bound, but its tree {root.key} has too few groups")

    def _is_complete(self, states: GroupStates, group: Group) -> bool:
        if not group.key.is_composite:
            return self.has_enough(states, group.key)
        complete = sum(self._is_complete(states, child) for child in states.children(group.key))
        return complete + self._lost[group.key.name] >= group.min_count
