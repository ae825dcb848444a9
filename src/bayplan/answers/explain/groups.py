"""`bayplan explain group`: who is missing, which member fits where, and what preemption would evict.

The group is decided as kube-scheduler 1.37 does with the gate GenericWorkload, by the scheduler's own cycle
(`scheduler/group_cycle.py`), on the cluster as it was loaded. Neither upstream nor the API shows anything
about members that are gated or whose PodGroup is missing; here each of them has its reason. What to do about
it follows from the result: how many members are missing, and for how many there is room.

A PodGroup in a composite group is scheduled with it: the answer is about the whole tree.

Groups of Coscheduling and of Volcano are read as the scheduler reads them, if the configuration names their
dialect, or if no PodGroup of Kubernetes has the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bayplan.answers.explain.explanation import evicts_by_priority
from bayplan.answers.explain.group_answer import GroupAnswer, MemberAnswer, PartAnswer, policy_text
from bayplan.answers.explain.group_domains import compare_domains
from bayplan.answers.explain.group_errors import (
    LAST,
    NOT_SEEN,
    last_error,
    remedies_for_contradiction,
    remedies_for_error,
)
from bayplan.answers.explain.group_remedies import (
    ALLOW_PREEMPTION,
    LOWER_MIN_COUNT,
    OF_JOB,
    RAISE_PRIORITY,
    is_gap,
    pods_text,
    remedies_for,
)
from bayplan.answers.explain.remedies import named
from bayplan.answers.sources.groups import (
    FIRST_MINOR,
    in_dialects,
    names_group,
    release_for,
)
from bayplan.answers.sources.loaded import LoadedCluster, skip_reason
from bayplan.answers.volcano_queues import ask_queues
from bayplan.api import volcano
from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.pod import Pod
from bayplan.api.workloads import POD_GROUP_LABEL
from bayplan.config.model import PodGroupDialect
from bayplan.errors import InputError
from bayplan.framework.status import Code
from bayplan.preemption.groups import terminating_victims
from bayplan.preemption.units import slots_below
from bayplan.runtime.framework import Framework
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.group_cycle import GroupCycle, GroupDecision, GroupPart
from bayplan.state.group_trees import GroupTree, invalid, tree_of
from bayplan.state.groups import (
    ALL_COUNT,
    NEVER,
    SCHEDULED_COUNT,
    Group,
    GroupKey,
    group_key,
    key_of,
)

GATED: Final = "waiting: a member may not be scheduled yet, which holds the whole group"
NONE_WAITING: Final = "no member is waiting"
BELOW: Final = (
    "no member is waiting, and {have} of at least {need} are left: running members stay, and new ones wait "
    "until {need} exist"
)
GROUPS_FIT: Final = (
    "would be scheduled: {fitting} of {groups} groups, and {placed} of {waiting} waiting members"
)
FITS: Final = "would be scheduled: {placed} of {waiting} waiting members find a node"
FAILS: Final = "cannot be scheduled: {message}"
PREEMPTS: Final = "would preempt {victims} and wait until {they} gone"
WAITS_FOR_VICTIMS: Final = "waiting until preempted pods are gone from the nodes of its members: {victims}"
MAX_NAMED_VICTIMS: Final = 5
DEVICES: Final = "DynamicResources"
MAX_PRIORITY: Final = 1_000_000_000
"""The highest of a PriorityClass of users; pods above it are those of the system."""
LEAVING: Final = "no member is waiting, and {count} of {have} with a node are being deleted"
WITHOUT_RESOURCES: Final = "not tried: the cluster has less than minResources of the PodGroup"
NO_DOMAIN: Final = "not tried: there is no domain in which all members may run"
NOT_TRIED: Final = "not tried: there cannot be enough members"
ERROR_BEFORE: Final = "not tried: the attempt ends with an error"
ELSEWHERE: Final = "fits on {node}, and waits for the others"
GROUP_WAITS: Final = "its PodGroup fits, and waits for the other groups"
GROUP_NOT_TRIED: Final = "not tried: there cannot be enough groups"

WAITS_FOR_GROUP: Final = "waits for its PodGroup"
WAITS_FOR_PARENT: Final = "waits for the CompositePodGroups above its PodGroup"
CREATE_GROUP: Final = "create the PodGroup"
CREATE_PARENT: Final = "create the CompositePodGroup {key}"
NO_MORE: Final = "no more members can be scheduled: {message}"
NOT_JUDGED: Final = (
    "not judged: {count} waiting {pods} have a schedulerName that no profile has; pass the configuration of "
    "their scheduler with --config"
)
CREATE_MEMBERS: Final = "create {more} more {pods} with {link}: {name}"
LINKS: Final = {
    PodGroupDialect.KUBERNETES: "schedulingGroup.podGroupName",
    PodGroupDialect.COSCHEDULING: f"the label {POD_GROUP_LABEL}",
    PodGroupDialect.VOLCANO: f"the annotation {volcano.GROUP_ANNOTATION}",
}
"""How a pod names its group."""
FINISHED_LEFT: Final = "finished pods no longer count as members: {count}"


def explain_group(loaded: LoadedCluster, namespace: str, name: str, order: Sequence[str] = ()) -> GroupAnswer:
    """What the scheduler would do with a group now.

    Args:
        order: members, by namespace/name, in the order in which the scheduler's queue has them; others come
            after them, by priority and creation.

    Raises:
        InputError: nothing is known of the group, or the release or the configuration has no such groups.
        ConfigError: the configuration is invalid.
    """
    release = loaded.release if loaded.config is None else loaded.config.release
    if release.minor < FIRST_MINOR:
        raise InputError(
            f"pod groups are decided as Kubernetes 1.{FIRST_MINOR} does: "
            f"pass --emulated-version 1.{FIRST_MINOR}"
        )
    loaded, dialect, key = _with_group(loaded, GroupKey(namespace, name))
    release = release_for(release, loaded.objects)
    if release.gates != loaded.release.gates:
        # The gates decide which plugins a configuration has by default, so it is read again.
        objects = loaded.objects
        again = replace(loaded, release=release) if loaded.reload is None else loaded.reload(release)
        loaded = replace(again, objects=objects)
    core = loaded.core()
    if core.cluster.groups is None:
        raise InputError("the scheduler ignores pod groups: its feature gate GenericWorkload is off")
    return GroupQuestions(loaded, core, order, dialect).answer(key)


def _with_group(loaded: LoadedCluster, key: GroupKey) -> tuple[LoadedCluster, PodGroupDialect, GroupKey]:
    """The cluster with the group in the form of Kubernetes, its dialect, and its key, composite or not."""
    for dialect in PodGroupDialect:
        objects = in_dialects(loaded.objects, (dialect,))
        has_group = any(isinstance(item, PodGroup) and item.key == str(key) for item in objects)
        if has_group or any(isinstance(item, Pod) and group_key(item) == key for item in objects):
            return replace(loaded, objects=objects), dialect, key
    composite = key._replace(is_composite=True)
    if any(isinstance(item, CompositePodGroup) and key_of(item) == composite for item in loaded.objects):
        return loaded, PodGroupDialect.KUBERNETES, composite
    raise InputError(f"there is no such group in {loaded.name}", object_key=f"PodGroup {key}")


class GroupQuestions:
    """Answers questions about the groups of a cluster, with a core that has the gate on."""

    def __init__(
        self,
        loaded: LoadedCluster,
        core: SchedulingCore,
        order: Sequence[str] = (),
        dialect: PodGroupDialect = PodGroupDialect.KUBERNETES,
    ) -> None:
        self._loaded = loaded
        self._translated = self._dialect = dialect
        settings = None if loaded.config is None else loaded.config.bayplan.queues
        self._queues = None if settings is None else ask_queues(loaded, settings, core)
        assert core.cluster.groups is not None, "the gate is on"
        self._core = core
        self._states = core.cluster.groups
        self._order = {pod: place for place, pod in enumerate(order)}
        self._pods: dict[GroupKey, list[Pod]] = {}
        self._max_priority = max(
            (item.priority for item in loaded.objects if isinstance(item, Pod) and item.spec.node_name),
            default=None,
        )
        """Of the pods that have a node."""
        for item in loaded.objects:
            if isinstance(item, Pod) and (key := group_key(item)) is not None:
                self._pods.setdefault(key, []).append(item)

    def answer(self, key: GroupKey) -> GroupAnswer:
        """What the scheduler would do with this group now."""
        config = self._loaded.config
        configured = () if config is None else config.bayplan.pod_groups
        self._dialect = self._translated
        if self._dialect is PodGroupDialect.KUBERNETES:
            # If the configuration has other dialects, their groups were translated when they were loaded.
            naming = (one for one in configured if names_group(self._loaded.objects, one, key))
            self._dialect = next(naming, self._dialect)
        return self._answer(key).in_words_of(self._field)

    @property
    def _field(self) -> str:
        return "minCount" if self._dialect is PodGroupDialect.KUBERNETES else "minMember"

    def _setting(self, key: GroupKey) -> str:
        """What sets the number of members that have to run together: Volcano's Job, if the group is one's."""
        for item in self._loaded.objects if self._dialect is PodGroupDialect.VOLCANO else ():
            if isinstance(item, volcano.PodGroup) and item.key == str(key):
                for owner in item.metadata.owner_references:
                    if owner.kind == "Job" and owner.controller:
                        return OF_JOB.format(name=owner.name)
        return self._field

    def _answer(self, key: GroupKey) -> GroupAnswer:
        root = self._states.root(key)
        keys = [key] if root is None else [state.key for state in self._states.states_below(root)]
        known = [pod for one in keys for pod in self._pods.get(one, ())]
        pods = [pod for pod in known if not pod.is_finished]
        finished = len(known) - len(pods)
        waiting = sorted(
            (pod for pod in pods if not pod.spec.node_name and not pod.is_terminating), key=self._place
        )
        group = self._states.group(key) if root is None else root
        scheduled = tuple(sorted((pod.key, pod.spec.node_name) for pod in pods if pod.spec.node_name))
        made = GroupAnswer(
            key if root is None else root.key,
            group,
            NONE_WAITING,
            is_schedulable=True,
            scheduled=scheduled,
            waiting=(),
            dialect=self._dialect,
            parts=() if root is None else self._parts(root, keys),
        )
        foreign = [pod for pod in waiting if self._core.framework_for(pod) is None]
        if foreign:
            members = [MemberAnswer(pod.key, reason=skip_reason(pod, self._core)) for pod in waiting]
            verdict = NOT_JUDGED.format(count=len(foreign), pods=pods_text(len(foreign)))
            return replace(_failed(made, verdict, members), is_judged=False)
        if root is None:
            missing = WAITS_FOR_GROUP if group is None else WAITS_FOR_PARENT
            members = [MemberAnswer(pod.key, reason=missing) for pod in waiting]
            return _failed(made, self._states.why_incomplete(key), members, self._missing(key))
        if not pods and self._queues is not None and (why := self._queues.not_admitted(str(key))):
            return _failed(made, why, [])
        if (root.is_gang or root.key.is_composite) and not self._states.is_ready(root, ALL_COUNT):
            return self._too_few(made, root, waiting, finished)
        if not waiting:
            leaving = sum(bool(pod.spec.node_name) and pod.is_terminating for pod in pods)
            text = LEAVING.format(count=leaving, have=len(scheduled)) if leaving else NONE_WAITING
            return replace(made, verdict=text)
        return self._decided(made, root, waiting)

    def _missing(self, key: GroupKey) -> Sequence[str]:
        """What to create for a group without a root."""
        group = self._states.group(key)
        if group is None:
            return (CREATE_GROUP,)
        parent = self._states.with_ancestors(group)[-1].parent
        is_missing = parent is not None and self._states.group(parent) is None
        return (CREATE_PARENT.format(key=parent),) if is_missing else ()

    def _parts(self, root: Group, keys: Sequence[GroupKey]) -> tuple[PartAnswer, ...]:
        """The PodGroups of a composite group, not evaluated yet."""
        found = []
        for key in keys if root.key.is_composite else ():
            group, state = self._states.group(key), self._states[key]
            assert group is not None
            waiting = state.all_count - state.scheduled_count
            found.append(PartAnswer(key.name, policy_text(group), state.scheduled_count, waiting, ""))
        return tuple(found)

    def _place(self, pod: Pod) -> tuple[int, int, float, str]:
        """Sorts members as the queue does, as far as that is known: by priority, attempts and arrival."""
        created = pod.metadata.creation_timestamp
        place = self._order.get(pod.key, len(self._order))
        return -pod.priority, place, created.timestamp() if created else 0.0, pod.name

    def _too_few(self, made: GroupAnswer, root: Group, waiting: Sequence[Pod], finished: int) -> GroupAnswer:
        link, remedies = LINKS[self._dialect], list[str]()
        for state in self._states.states_below(root):
            group, have = self._states.group(state.key), state.all_count
            if group is None or have >= group.min_count:
                continue
            more, name = group.min_count - have, group.key.name
            remedies.append(CREATE_MEMBERS.format(more=more, pods=pods_text(more), link=link, name=name))
            if have:
                lower = LOWER_MIN_COUNT.format(field=self._setting(root.key), count=have)
                remedies.append(f"{lower} in PodGroup {name}" if root.key.is_composite else lower)
        have = sum(state.all_count for state in self._states.states_below(root))
        if finished:
            remedies.append(FINISHED_LEFT.format(count=finished))
        text = self._states.why_incomplete(made.key)
        if have and not waiting:
            text = BELOW.format(need=root.min_count, have=have)
        members = [MemberAnswer(pod.key, reason=skip_reason(pod, self._core)) for pod in waiting]
        return _failed(made, text, members, remedies)

    def _decided(self, made: GroupAnswer, group: Group, waiting: Sequence[Pod]) -> GroupAnswer:
        gated = {pod.key: reason for pod in waiting if (reason := skip_reason(pod, self._core))}
        if gated:
            members = [MemberAnswer(pod.key, reason=gated.get(pod.key, "")) for pod in waiting]
            return _failed(made, GATED, members)
        framework = self._core.framework_for(waiting[0])
        assert framework is not None, "otherwise there is a reason to skip it"
        tree = tree_of(self._states, group, waiting)
        has_own_policy = "PodGroupPreemptionPolicy" in self._core.release.gates
        problem = invalid(tree, has_own_policy=has_own_policy)
        if problem:
            members = [MemberAnswer(pod.key, reason=ERROR_BEFORE) for pod in waiting]
            return _failed(made, FAILS.format(message=problem), members, remedies_for_contradiction(tree))
        error = last_error(group, waiting)
        if error:
            made = replace(made, last_error=LAST.format(message=error))
        if self._queues is not None:
            least = max(1, group.min_count - tree.scheduled_count) if group.is_gang else 1
            made = replace(made, capacity=self._queues.group(waiting, least))
        decision = _decided(GroupCycle(framework, tree, keeps_placements=True))
        made = replace(made, domains=compare_domains(decision))
        if made.last_error and decision.final.code is not Code.ERROR:
            made = replace(made, remedies=(NOT_SEEN,))
        members = [
            _member(decision, part, pod, one)
            for part in decision.parts
            for pod, one in zip(part.pods, part.decisions, strict=True)
        ]
        results = {part.group.key.name: _result(decision, part) for part in decision.parts}
        made = replace(made, parts=tuple(replace(one, result=results[one.name]) for one in made.parts))
        if decision.final.is_success:
            placed = sum(bool(one.node) for one in members)
            text = FITS.format(placed=placed, waiting=len(waiting))
            if group.key.is_composite:
                fitting = sum(part.fits for part in decision.parts if not part.group.key.is_composite)
                text = GROUPS_FIT.format(
                    fitting=fitting, groups=len(made.parts), placed=placed, waiting=len(waiting)
                )
            is_held = made.capacity is not None and made.capacity.waits
            return replace(made, verdict=text, is_schedulable=not is_held, waiting=tuple(members))
        eviction = decision.eviction
        if eviction is not None:
            victims = tuple(sorted(pod.key for pod in eviction.victims))
            they = "it is" if len(victims) == 1 else "they are"
            text = PREEMPTS.format(victims=f"{len(victims)} {pods_text(len(victims))}", they=they)
            return replace(_failed(made, text, members), victims=victims)
        if decision.waits_for_preemption:
            gone = terminating_victims(
                self._core.cluster, waiting, group.priority, any_priority=self._queues is not None
            )
            shown = named(sorted(pod.key for pod in gone), MAX_NAMED_VICTIMS)
            return _failed(made, WAITS_FOR_VICTIMS.format(victims=shown), members)
        has_enough = self._states.is_ready(group, SCHEDULED_COUNT)
        text = (NO_MORE if has_enough else FAILS).format(message=decision.message)
        alone = self._without_others(framework, tree)
        without_others = None if alone is None or alone.final.is_success else alone
        remedies = remedies_for(tree, decision, alone, self._setting(group.key))
        if decision.final.code is Code.ERROR:
            if error in decision.message:
                made = replace(made, last_error="")
            errors = remedies_for_error(self._core.cluster, tree, decision)
            return _failed(made, text, members, errors or remedies)
        if without_others is not None:
            return _failed(made, text, members, remedies)
        if remedies and any(pod.spec.preemption_policy == NEVER for pod in waiting):
            remedies.append(ALLOW_PREEMPTION)
        elif (
            remedies
            and self._max_priority is not None
            and self._max_priority >= group.priority
            and evicts_by_priority(framework)
        ):
            remedies.append(RAISE_PRIORITY)
        return _failed(made, text, members, remedies)

    def _without_others(self, framework: Framework, tree: GroupTree) -> GroupDecision | None:
        """The decision if the only pods were its own and those that cannot be preempted.

        None if devices are missing then: those of other pods stay allocated here.
        """
        cluster = self._core.cluster
        own = {cluster.slot_of(pod.uid) for pod in tree.scheduled()}
        others = [slot for slot in slots_below(cluster, MAX_PRIORITY + 1) if slot not in own]
        cluster.undo.mark()
        try:
            cluster.remove_pods(others)
            decision = _decided(GroupCycle(framework, tree, keeps_placements=True))
        finally:
            cluster.undo.revert()
        return None if any(map(_lacks_devices, decision.decisions)) else decision


def _lacks_devices(member: Decision | None) -> bool:
    diagnosis = None if member is None else member.diagnosis
    return diagnosis is not None and DEVICES in diagnosis.rejecting_plugins


def _failed(
    made: GroupAnswer, verdict: str, members: Sequence[MemberAnswer], remedies: Sequence[str] = ()
) -> GroupAnswer:
    shown = (*made.remedies, *remedies)
    return replace(made, verdict=verdict, is_schedulable=False, waiting=tuple(members), remedies=shown)


def _result(decision: GroupDecision, part: GroupPart) -> str:
    """What becomes of one PodGroup of a composite group."""
    if part.final.is_success:
        return "would be scheduled" if part.pods else "is scheduled"
    if part.fits:
        return "fits, and waits for the other groups"
    return GROUP_NOT_TRIED if part.status is decision.status else part.status.message


def _decided(cycle: GroupCycle) -> GroupDecision:
    try:
        request = next(cycle.decide())
    except StopIteration as end:
        decision: GroupDecision = end.value
        return decision
    raise RuntimeError(f"there are no extenders to answer {request!r}")


def _member(decision: GroupDecision, part: GroupPart, pod: Pod, member: Decision | None) -> MemberAnswer:
    nomination = decision.nominations.get(pod.uid)
    if nomination is not None and nomination.node_name:
        return MemberAnswer(pod.key, nomination.node_name)
    if member is None:
        is_inherited = part.group.key != decision.group.key and part.status is decision.status
        text = GROUP_WAITS if part.fits else GROUP_NOT_TRIED if is_inherited else NOT_TRIED
        if is_gap(decision):
            text = WITHOUT_RESOURCES
        elif decision.status.code is Code.ERROR:
            text = ERROR_BEFORE
        elif decision.group.topology_key and not any(decision.decisions):
            text = NO_DOMAIN
        return MemberAnswer(pod.key, reason=text)
    if member.found is None:
        return MemberAnswer(pod.key, reason=member.message)
    if part.final.is_success:
        return MemberAnswer(pod.key, member.node_name)
    return MemberAnswer(pod.key, reason=ELSEWHERE.format(node=member.node_name))


def next_attempt(queue: Mapping[str, Any]) -> str:
    """When the group is tried next, from a member's position in the queue; empty if that is unknown."""
    state, attempts = queue.get("state", ""), queue.get("attempts", 0)
    tried = f" after {attempts} attempt{'' if attempts == 1 else 's'}" if attempts else ""
    if "secondsToNextAttempt" in queue:
        return f"next attempt in {queue['secondsToNextAttempt']} s{tried}"
    if state == "active":
        return f"active{tried}, position {queue['position']} of {queue['length']}"
    if state == "InFlight":
        return f"being scheduled now{tried}"
    if state == "gated":
        return f"not tried while {', '.join(queue.get('plugins', ()))} holds it"
    return ""
