"""Counts how many more pods fit: copies are scheduled one by one until the next does not fit.

A pod of a gang is copied with its gang: as many members as `minCount`, all or none of them. Nothing is
evicted. Plain pods (`scheduling.py`) are only counted on their nodes, which is what binding them would change
for the next one; others are bound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from bayplan.answers.sources.groups import ASSUMED_GATE
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif.controllers import template_labels
from bayplan.answers.whatif.outcomes import Capacity, Outcome
from bayplan.answers.whatif.scaling import for_copy
from bayplan.api.groups import PodGroup, PodGroupStatus
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.errors import InputError
from bayplan.garbage import no_garbage_collection
from bayplan.preemption import victims as preemption
from bayplan.runtime.failure_log import PluginFailure
from bayplan.runtime.search import NotFound
from bayplan.scheduler.cycle import NO_NODES, diagnosis_message

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Branch, Cluster

PodMix = Sequence[tuple[Pod, int]]
"""Pods with their shares: after three of one comes one of the other."""

NEVER: Final = "Never"
_NOT_ELIGIBLE: Final = f" preemption: {preemption.NEVER}"
_PREEMPTION_OF_GROUP: Final = re.compile(
    ", deallocation and deletion of ResourceClaims completed, |, pod group preemption: "
)
"""What follows is the result of preemption, which copies do not use."""
_OF_NODES: Final = "nodes are available"
_NO_GROUP: Final = "there is no PodGroup {name}: add it to the manifest"
_GATES: Final = "its scheduling gates are ignored"
_ONE_BY_ONE: Final = "; copies are scheduled one at a time: for pods of a group use bayplan whatif --add"


def count_capacity(branch: Branch, mix: PodMix, at_most: int) -> Capacity:
    """Schedules copies on the branch until one does not fit."""
    if not mix or any(share < 1 for _, share in mix):
        raise InputError("a mix needs at least one pod, each with a share of at least 1")
    gangs = {group.key: group for pod, _ in mix if (group := _gang(branch, pod)) is not None}
    is_one = len({pod.spec.scheduling_group for pod, _ in mix}) == 1
    if gangs and not is_one:
        raise InputError("gangs are counted one kind at a time: a mix has only single pods")
    for group in gangs.values():
        return _count_gangs(branch, mix, group, at_most)
    copied = [(_Copied(branch, pod), share) for pod, share in mix]
    warnings = (
        *(Warning(_GATES, pod.key, Reason.NOT_RUN) for pod, _ in mix if pod.spec.scheduling_gates),
        *branch._scheduling.warnings_for([one.pod for one, _ in copied]),
    )
    by_node: Counter[str] = Counter()
    with no_garbage_collection():
        for count, one in enumerate(_in_turn(copied)):
            if count == at_most:
                return Capacity(count, False, dict(by_node), warnings=warnings)
            placed = one.place(count)
            if not placed.node:
                is_limit, reason, failures = not placed.failures, placed.reason, placed.failures
                return Capacity(count, is_limit, dict(by_node), reason, one.pod.key, warnings, failures)
            by_node[placed.node] += 1
    raise AssertionError("copies never end")


def _prepared(branch: Branch, pod: Pod) -> Pod:
    """The pod as an API server would store it; it evicts no other."""
    spec = replace(pod.spec, preemption_policy=NEVER, node_name="", scheduling_gates=())
    with branch.branch() as trial:
        name = f"{pod.name or 'pod'}-capacity"
        meta = replace(pod.metadata, name=name, labels=template_labels(pod, branch._store))
        made = trial.add(replace(pod, spec=spec, metadata=meta))[0]
    return replace(made, metadata=replace(made.metadata, name=pod.name or "pod"))


def _in_turn(mix: Sequence[tuple[_Copied, int]]) -> Iterator[_Copied]:
    while True:
        for one, share in mix:
            for _ in range(share):
                yield one


def _gang(branch: Branch, pod: Pod) -> PodGroup | None:
    """The PodGroup of a pod that belongs to a gang."""
    named = pod.spec.scheduling_group
    if named is None or branch._state.columns.groups is None:
        return None
    group = branch._store.find(PodGroup, named.pod_group_name or "", pod.namespace)
    if group is None:
        raise InputError(_NO_GROUP.format(name=f"{pod.namespace}/{named.pod_group_name}"))
    return None if group.spec.scheduling_policy.gang is None else group


def _count_gangs(branch: Branch, mix: PodMix, group: PodGroup, at_most: int) -> Capacity:
    """Schedules copies of a gang, each with as many members as it needs, until one is not scheduled.

    Args:
        mix: one kind of members, or several: then with their numbers in a gang.
    """
    gang = group.spec.scheduling_policy.gang
    assert gang is not None
    models = [
        _prepared(branch, replace(pod, spec=replace(pod.spec, scheduling_group=None)))
        for pod, share in mix
        for _ in range(gang.min_count if len(mix) == 1 else share)
    ]
    size = len(models)
    by_node: Counter[str] = Counter()
    warnings: tuple[Warning, ...] = (Warning(ASSUMED_GATE, reason=Reason.NOT_RUN),)
    meta = replace(group.metadata, uid="", resource_version="")
    for count in range(at_most):
        name = f"{group.name}-{count}"
        branch.add(replace(group, metadata=replace(meta, name=name), status=PodGroupStatus()))
        members: list[Pod] = []
        for number, model in enumerate(models):
            member = f"{name}-{number}"
            spec = replace(model.spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
            own, claims = for_copy(replace(model, spec=spec), member, branch._store.find_claim)
            copy = replace(model.metadata, name=member, uid="", resource_version="")
            members += branch.add(*claims, replace(model, metadata=copy, spec=own))
        result = branch.schedule(members)
        if not all(one.fits for one in result.pods):
            made = branch._store.find(PodGroup, name, group.namespace)
            told = () if made is None else made.status.conditions
            # The group's reason, then that of the member that fits nowhere.
            texts = [_PREEMPTION_OF_GROUP.split(one.message)[0] for one in told if one.message]
            of_nodes = [one.reason for one in result.pods if _OF_NODES in one.reason]
            reasons = [*texts, *of_nodes[:1]] or [one.reason for one in result.pods if not one.fits][:1]
            reason, is_limit = "; ".join(reasons), not result.failures
            named = _named(group, mix[0][0])
            return Capacity(count, is_limit, dict(by_node), reason, named, warnings, result.failures, size)
        by_node.update(one.node for one in result.pods)
    return Capacity(at_most, False, dict(by_node), warnings=warnings, gang_size=size)


def _named(group: PodGroup, member: Pod) -> str:
    """A gang by the name that users chose: that of a Job of Volcano, whose group is named by its uid."""
    owner = member.metadata.controller()
    if owner is not None and group.name == f"{owner.name}-{owner.uid}":
        return f"{group.namespace}/{owner.name}"
    return group.key


class _Placed(NamedTuple):
    """The node of a copy, or why there is none."""

    node: str = ""
    reason: str = ""
    failures: tuple[PluginFailure, ...] = ()


class _Copied:
    """A pod of the mix, and how its copies are placed."""

    def __init__(self, branch: Branch, pod: Pod) -> None:
        self._branch = branch
        self.pod = _prepared(branch, pod)
        scheduling = branch._scheduling
        framework = scheduling.profiles.core().framework_for(self.pod)
        if framework is None:
            raise InputError(f"pod {self.pod.key}: no profile is named {self.pod.spec.scheduler_name!r}")
        self._framework = framework
        self._columns = scheduling.state.columns
        self._is_plain = scheduling.profiles.is_plain(framework.profile, self.pod)

    def place(self, number: int) -> _Placed:
        """Schedules the next copy."""
        pod = self.pod
        name = f"{pod.name}-{number}"
        branch = self._branch
        why = branch._admission.rejection(replace(pod, metadata=replace(pod.metadata, name=name)))
        branch._state.deliver()
        if why:
            return _Placed(reason=why)
        if not self._is_plain:
            meta = replace(pod.metadata, name=name, uid="", resource_version="")
            spec, claims = for_copy(pod, name, branch._store.find_claim)
            result = branch.schedule(branch.add(*claims, replace(pod, metadata=meta, spec=spec)))
            outcome = result.pods[0]
            # That copies may not preempt is a rule of this count, not a property of the pod.
            reason = outcome.reason.partition(_NOT_ELIGIBLE)[0]
            if outcome.outcome is Outcome.WAITING:
                reason += _ONE_BY_ONE
            return _Placed(outcome.node, reason, result.failures)
        if not len(self._columns.order):
            return _Placed(reason=NO_NODES)
        copy = replace(pod, metadata=replace(pod.metadata, name=name, uid=f"{pod.uid}-{number}"))
        found = self._framework.find(copy)
        if isinstance(found, NotFound):
            return _Placed(reason=diagnosis_message(found.diagnosis))
        self._columns.add_pod(copy, found.node_name, found.search.pod_info)
        return _Placed(found.node_name)


@dataclass(frozen=True, slots=True)
class NodesNeeded:
    """How many nodes of a template are needed for a number of pods."""

    count: int | None
    """None: pods do not fit, however many nodes there are."""
    reason: str = ""
    """Why."""

    def as_json(self) -> dict[str, object]:
        return {"needed": self.count, "reason": self.reason}


def nodes_needed(cluster: Cluster, mix: PodMix, wanted: int, template: Node) -> NodesNeeded:
    """The smallest number of nodes like the template with which `wanted` pods fit, beside DaemonSets' pods.

    Found by doubling and bisection. More nodes never make fewer pods fit, except where spreading constraints
    count the new nodes' domains; the result is checked by scheduling, so it is always enough.
    """

    def fits(count: int) -> Capacity:
        with cluster.branch() as branch:
            before = {pod.uid for pod in branch.pending}
            branch.add_nodes(count, template)
            branch.schedule(pod for pod in branch.pending if pod.uid not in before)
            return branch.capacity(mix, at_most=wanted)

    found = fits(0)
    if found.count >= wanted:
        return NodesNeeded(0)
    before, enough = 0, 1
    # A node for each pod would be enough, if more nodes help at all.
    pods = wanted * max(found.gang_size, 1)
    while (found := fits(enough)).count < wanted:
        if enough > pods:
            return NodesNeeded(None, found.reason)
        before, enough = enough, 2 * enough
    while enough - before > 1:
        middle = (before + enough) // 2
        if fits(middle).count >= wanted:
            enough = middle
        else:
            before = middle
    return NodesNeeded(enough)
