"""`bayplan explain group`: who is missing, which member fits where, and what preemption would evict.

The group is decided as kube-scheduler 1.37 does with the gate GenericWorkload, by the scheduler's own cycle
(`scheduler/group_cycle.py`), on the cluster as it was loaded. Neither upstream nor the API shows anything
about members that are gated or whose PodGroup is missing; here each of them has its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bayplan.answers.sources.loaded import LoadedCluster, skip_reason
from bayplan.api.groups import PodGroup
from bayplan.api.pod import Pod
from bayplan.errors import InputError
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.group_cycle import GroupCycle, GroupDecision, invalid
from bayplan.state.groups import Group, GroupKey, group_key, group_of

FIRST_MINOR: Final = 37
"""The first release whose design of groups is implemented."""

NO_GROUP: Final = "there is no PodGroup {key}: its members wait until it is created"
TOO_FEW: Final = "waiting for more members: {need} must exist and {have} do, so {more} more must be created"
GATED: Final = "waiting: a member may not be scheduled yet, which holds the whole group"
NONE_WAITING: Final = "no member is waiting"
FITS: Final = "would be scheduled: {placed} of {waiting} waiting members find a node"
FAILS: Final = "cannot be scheduled: {message}"
PREEMPTS: Final = "would preempt {victims} and wait until they are gone"
ASSUMED_GATE: Final = (
    "decided with the feature gate GenericWorkload; without it the scheduler ignores groups and schedules "
    "each member alone"
)


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """One waiting member: its node, or why it has none."""

    pod: str
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """Everything about one group."""

    key: GroupKey
    group: Group | None
    """None if there is no PodGroup object."""
    verdict: str
    is_schedulable: bool
    scheduled: tuple[tuple[str, str], ...]
    """Members with a node, and their nodes."""
    waiting: tuple[MemberAnswer, ...]
    victims: tuple[str, ...] = ()

    @property
    def policy(self) -> str:
        if self.group is None:
            return "unknown, without its PodGroup"
        return f"gang of at least {self.group.min_count}" if self.group.is_gang else "basic"

    def as_json(self) -> dict[str, Any]:
        return {
            "group": str(self.key),
            "policy": self.policy,
            "minCount": None if self.group is None else self.group.min_count,
            "schedulable": self.is_schedulable,
            "verdict": self.verdict,
            "scheduled": [{"pod": pod, "node": node} for pod, node in self.scheduled],
            "waiting": [
                {"pod": one.pod} | ({"node": one.node} if one.node else {"reason": one.reason})
                for one in self.waiting
            ],
            "victims": list(self.victims),
        }


def explain_group(loaded: LoadedCluster, namespace: str, name: str) -> GroupAnswer:
    """What the scheduler would do with a group now.

    Raises:
        InputError: nothing is known of the group, or the release has no such groups.
        ConfigError: the configuration is invalid.
    """
    key = GroupKey(namespace, name)
    pods = [item for item in loaded.objects if isinstance(item, Pod) and group_key(item) == key]
    found = [item for item in loaded.objects if isinstance(item, PodGroup) and item.key == str(key)]
    if not pods and not found:
        raise InputError(f"there is no such group in {loaded.name}", object_key=f"PodGroup {key}")
    core = _core(loaded, group_of(found[0]) if found else None)
    return _answer(core, key, [pod for pod in pods if not pod.is_finished])


def _core(loaded: LoadedCluster, group: Group | None) -> SchedulingCore:
    """A core with the gates that a cluster with such an object has."""
    release = loaded.release if loaded.config is None else loaded.config.release
    if release.minor < FIRST_MINOR:
        raise InputError(
            f"pod groups are decided as Kubernetes 1.{FIRST_MINOR} does: "
            f"pass --emulated-version 1.{FIRST_MINOR}"
        )
    gates = {"GenericWorkload"}
    if group is not None and group.topology_key:
        gates.add("TopologyAwareWorkloadScheduling")
    if group is not None and group.source.spec.preemption_policy is not None:
        gates.add("PodGroupPreemptionPolicy")
    release = release.with_gates(release.gates | gates)
    # The gates decide which plugins a configuration has by default, so it is read again.
    return (replace(loaded, release=release) if loaded.reload is None else loaded.reload(release)).core()


def _answer(core: SchedulingCore, key: GroupKey, pods: Sequence[Pod]) -> GroupAnswer:
    states = core.cluster.groups
    assert states is not None, "the gate is on"
    waiting = sorted(
        (pod for pod in pods if not pod.spec.node_name and not pod.is_terminating),
        key=lambda pod: (-pod.priority, pod.name),
    )
    for pod in waiting:
        states.pod_pending(pod)
    group = states.group(key)
    scheduled = tuple(sorted((pod.key, pod.spec.node_name) for pod in pods if pod.spec.node_name))

    def answer(verdict: str, members: Sequence[MemberAnswer] = (), **more: Any) -> GroupAnswer:
        is_schedulable = more.pop("is_schedulable", False)
        return GroupAnswer(key, group, verdict, is_schedulable, scheduled, tuple(members), **more)

    if group is None:
        return answer(NO_GROUP.format(key=key), [MemberAnswer(pod.key) for pod in waiting])
    if not waiting:
        return answer(NONE_WAITING, is_schedulable=True)
    have = states[key].all_count
    if group.is_gang and have < group.min_count:
        text = TOO_FEW.format(need=group.min_count, have=have, more=group.min_count - have)
        return answer(text, [MemberAnswer(pod.key, reason=skip_reason(pod, core)) for pod in waiting])
    gated = {pod.key: reason for pod in waiting if (reason := skip_reason(pod, core))}
    if gated:
        return answer(GATED, [MemberAnswer(pod.key, reason=gated.get(pod.key, "")) for pod in waiting])
    framework = core.framework_for(waiting[0])
    assert framework is not None, "otherwise there is a reason to skip it"
    problem = invalid(
        group,
        states[key],
        waiting,
        has_own_policy="PodGroupPreemptionPolicy" in core.release.gates,
    )
    if problem:
        return answer(FAILS.format(message=problem), [MemberAnswer(pod.key) for pod in waiting])
    decision = _decided(GroupCycle(framework, group, states[key], waiting))
    members = [_member(decision, pod, index) for index, pod in enumerate(waiting)]
    if decision.final.is_success:
        placed = sum(bool(one.node) for one in members)
        text = FITS.format(placed=placed, waiting=len(waiting))
        return answer(text, members, is_schedulable=True)
    eviction = decision.eviction
    victims = () if eviction is None else tuple(sorted(pod.key for pod in eviction.victims))
    text = FAILS.format(message=decision.message)
    if victims:
        text = PREEMPTS.format(victims=f"{len(victims)} pod{'' if len(victims) == 1 else 's'}")
    return answer(text, members, victims=victims)


def _decided(cycle: GroupCycle) -> GroupDecision:
    try:
        request = next(cycle.decide())
    except StopIteration as end:
        decision: GroupDecision = end.value
        return decision
    raise RuntimeError(f"there are no extenders to answer {request!r}")


def _member(decision: GroupDecision, pod: Pod, index: int) -> MemberAnswer:
    member, nomination = decision.decisions[index], decision.nominations.get(pod.uid)
    if nomination is not None and nomination.node_name:
        return MemberAnswer(pod.key, nomination.node_name)
    if member is None:
        return MemberAnswer(pod.key, reason="not tried: there cannot be enough members")
    if member.found is None:
        return MemberAnswer(pod.key, reason=member.message)
    if decision.final.is_success:
        return MemberAnswer(pod.key, member.node_name)
    return MemberAnswer(pod.key, reason=f"fits on {member.node_name}, and waits for the others")
