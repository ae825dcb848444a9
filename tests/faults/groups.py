"""Fault runs with pod groups of Kubernetes: gangs, basic groups, changing members and minCount.

In these lives the scheduler has the feature gate GenericWorkload, and no plugin Coscheduling. The rule at the
end: no group waits whose members would fit and be enough. While it runs, if nothing fails: a member of a gang
is bound only if the minimum of members has a node.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from bayplan.api.groups import (
    BasicSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    Mode,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGate, PodSchedulingGroup
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryStore
from bayplan.state.groups import GroupKey, GroupStates
from tests.faults.checks import Oversight, can_be_tried, fresh_core, oversight
from tests.faults.objects import make_pod
from tests.faults.workload import NAMESPACE, World

RELEASE: Final = DEFAULT_RELEASE.with_gates(DEFAULT_RELEASE.gates | {"GenericWorkload"})


class GroupWorld(World):
    """The same changes, with pod groups of Kubernetes in place of those of Coscheduling."""

    def __init__(self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None]) -> None:
        super().__init__(store, rng, trace)
        self.add_actions([(6, self.create_group), (3, self.add_to_group), (2, self.delete_group)])

    def create_group(self) -> None:
        """All members are identical, so that it is clear whether a group fits. They may come before the
        group, and one may be gated at first."""
        rng, name = self._rng, self._new_name("g")
        size = rng.randint(1, 5)
        wanted = rng.randint(1, size) if rng.random() < 0.9 else size + 1
        priority = rng.choice((-10, -5, 0, 0, 5))
        mode = DisruptionMode(all=Mode()) if rng.random() < 0.3 else DisruptionMode(single=Mode())
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=wanted))
        if rng.random() < 0.2:
            policy = PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
        group = PodGroup(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE),
            spec=PodGroupSpec(scheduling_policy=policy, priority=priority, disruption_mode=mode),
        )
        first = rng.random() < 0.7
        if first:
            self._put(group)
        pod = make_pod(cpu=rng.choice((300, 900, 1500)), priority=priority)
        spec = replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
        for number in range(size):
            gates = (PodSchedulingGate(name="hold"),) if not number and rng.random() < 0.2 else ()
            self._create(replace(pod, spec=replace(spec, scheduling_gates=gates)))
        if not first:
            self._put(group)

    def add_to_group(self) -> None:
        groups = self.store.list(PodGroup)
        if groups:
            identical = members(self.store, self._rng.choice(groups))
            if identical:
                fresh = replace(identical[0].spec, node_name="", scheduling_gates=())
                self._create(Pod(metadata=ObjectMeta(labels=identical[0].labels), spec=fresh))

    def change_group(self) -> None:
        groups = [group for group in self.store.list(PodGroup) if group.spec.scheduling_policy.gang]
        if groups:
            group = self._rng.choice(groups)
            wanted = max(1, min_count(group) + self._rng.choice((-1, 1)))
            self._trace(f"group {group.name} wants {wanted}")
            policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=wanted))
            self.store.update(replace(group, spec=replace(group.spec, scheduling_policy=policy)))

    def delete_group(self) -> None:
        """It may come back, with the same members."""
        groups = self.store.list(PodGroup)
        if groups:
            group = self._rng.choice(groups)
            self._trace(f"group {group.name} is deleted")
            self.store.delete(PodGroup, group.name, group.namespace)
            if self._rng.random() < 0.7:
                self._put(
                    PodGroup(metadata=ObjectMeta(name=group.name, namespace=NAMESPACE), spec=group.spec)
                )


def min_count(group: PodGroup) -> int:
    gang = group.spec.scheduling_policy.gang
    return 1 if gang is None else gang.min_count


def group_name(pod: Pod) -> str:
    named = pod.spec.scheduling_group
    return "" if named is None else named.pod_group_name or ""


def members(store: MemoryStore, group: PodGroup) -> list[Pod]:
    """Its pods that have not ended."""
    return [pod for pod in store.list(Pod) if group_name(pod) == group.name and not pod.is_finished]


def waiting_groups(scheduler: Scheduler, store: MemoryStore) -> Iterator[Oversight]:
    """A group whose members would fit, and be enough, does not wait."""
    for group in store.list(PodGroup):
        if group.spec.parent_composite_pod_group_name:
            continue  # `trees.py` checks the tree as a whole
        known = members(store, group)
        scheduled = sum(bool(pod.spec.node_name) for pod in known)
        pending = [pod for pod in known if not pod.spec.node_name and not pod.is_terminating]
        candidates = [pod for pod in pending if can_be_tried(scheduler, pod)]
        if not candidates or len(candidates) < len(pending) or len(known) < min_count(group):
            continue
        core = fresh_core(scheduler, store)
        fitting = 0
        for pod in candidates:
            decision = core.decide(pod)
            if decision.fits:
                core.assume(decision)
                fitting += 1
        if fitting and scheduled + fitting >= min_count(group):
            text = f"needs {min_count(group)} and has {scheduled}, but {fitting} more would fit"
            yield oversight(scheduler, f"group {group.name}", text, candidates)


class BoundGangs:
    """Whether a gang is bound although too few of its members have a node."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._lowest: dict[str, int] = {}
        """The lowest minCount that each group ever had."""
        self._gone: Counter[str] = Counter()
        """Members of each group that were deleted, or have ended: they may have been part of it."""
        self._known: dict[str, str] = {}
        self.problems: list[str] = []

    def observe(self) -> None:
        """What has changed since the last call."""
        for group in self._store.list(PodGroup):
            wanted = min_count(group)
            self._lowest[group.name] = min(wanted, self._lowest.get(group.name, wanted))
        now = {pod.uid: group_name(pod) for pod in self._store.list(Pod) if not pod.is_finished}
        for uid, name in self._known.items():
            if name and uid not in now:
                self._gone[name] += 1
        self._known = now

    def bound(self, scheduler: Scheduler, pod: Pod) -> None:
        """The scheduler asks the API server to bind a pod."""
        self.observe()
        name, states = group_name(pod), scheduler.context.cluster.groups
        if not name or states is None:
            return
        key = GroupKey(pod.namespace, name)
        if not self.has_enough(states, key):
            have = states[key].scheduled_count
            self.problems.append(
                f"pod {pod.key} is bound, but its group {name} has {have} of {self._lowest[name]} members"
            )

    def has_enough(self, states: GroupStates, key: GroupKey) -> bool:
        """Whether the minimum of a group has a node, or had one."""
        return states[key].scheduled_count + self._gone[key.name] >= self._lowest.get(key.name, 1)
