"""What is known about one pod or one node, as one value: why it is where it is, and what rejects what.

A pending pod is evaluated on the cluster as it is. A pod that has a node is evaluated on the cluster without
it: the result shows why its node is good or bad *now*, not what the scheduler saw when it decided.

`printing.py` shows the answers on a terminal, `report.py` writes them as plain values.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from bayplan.answers.explain.details import detail
from bayplan.answers.explain.devices import missing_devices
from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.explain.group_answer import GroupAnswer
from bayplan.answers.explain.groups import GroupQuestions
from bayplan.answers.explain.rejections import Rejection, rejection_on
from bayplan.answers.explain.tables import EvaluatedPod
from bayplan.answers.sources.loaded import LoadedCluster, skip_reason
from bayplan.answers.sources.warnings import MissingObjects, Reason, Warning
from bayplan.api.devices import ResourceClaimTemplate
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import InputError
from bayplan.framework.events import ClusterEvent
from bayplan.framework.status import Status
from bayplan.runtime.framework import Framework
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.failure import waits_for_quota
from bayplan.scheduling_queue.hints import registrations
from bayplan.state.groups import group_key
from bayplan.state.nodes import CPU, EPHEMERAL_STORAGE, MEMORY
from bayplan.state.pods import pod_signature

NO_SUCH_POD: Final = "there is no such pod in {source}"
NO_SUCH_NODE: Final = "there is no such node in {source}"
PODS: Final = "pods"
MAX_GROUPS: Final = 100
"""Groups of identical pending pods that are evaluated."""
REPORTED: Final = (
    'its scheduler reported "{message}": the cluster has changed since, or the scheduler has plugins or '
    "settings that are not given here (--config, --plugin)"
)
OF_OTHER_SCHEDULER: Final = (
    'it is assigned to {node}, its schedulerName is "{scheduler}", and no profile has that name'
)
NO_TEMPLATE: Final = "{reason}; there is no ResourceClaimTemplate {name}"
CHANGED: Final = "the cluster has changed since the pod was scheduled: this is how it would be decided now"


class PodState(StrEnum):
    """The state of a pod with regard to scheduling."""

    PENDING = "Pending"
    """It has no node and is evaluated."""
    ASSIGNED = "Assigned"
    SKIPPED = "Skipped"
    """It is not evaluated: finished, being deleted, gated, or of another scheduler."""


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """Everything about one pod."""

    pod: Pod
    state: PodState
    reason: str = ""
    """Why it is skipped."""
    evaluated: EvaluatedPod | None = None
    warnings: tuple[Warning, ...] = ()
    events: dict[str, tuple[str, ...]] | None = None
    """Plugin → cluster events after which the scheduler tries the pod again, if the plugin rejected it."""
    identical: tuple[str, ...] = ()
    """Other pending pods that scheduling cannot tell apart from this one."""
    group: GroupAnswer | None = None
    """Of a member of a group: what holds for all of them. The rest is about the pod alone."""

    @property
    def explanation(self) -> Explanation | None:
        return None if self.evaluated is None else self.evaluated.explanation


class PodQuestions:
    """Answers questions about the pods of a cluster."""

    def __init__(self, loaded: LoadedCluster, core: SchedulingCore | None = None) -> None:
        self.loaded = loaded
        self.core = loaded.core() if core is None else core
        self._missing: MissingObjects | None = None
        self._by_key = {item.key: item for item in loaded.objects if isinstance(item, Pod)}

    def pod(self, key: str) -> Pod:
        """The pod `namespace/name`.

        Raises:
            InputError: there is none.
        """
        pod = self._by_key.get(key)
        if pod is None:
            raise InputError(NO_SUCH_POD.format(source=self.loaded.name), object_key=f"Pod {key}")
        return pod

    @property
    def keys(self) -> Iterable[str]:
        return self._by_key.keys()

    def pending(self) -> list[Pod]:
        """The pods that are evaluated."""
        return [pod for pod in self._without_node() if not skip_reason(pod, self.core)]

    def skipped(self) -> Counter[str]:
        """Why other pods without a node are not evaluated, and how many."""
        reasons = (skip_reason(pod, self.core) for pod in self._without_node())
        return Counter(reason for reason in reasons if reason)

    def _without_node(self) -> Iterator[Pod]:
        return (pod for pod in self._by_key.values() if not pod.spec.node_name and not pod.is_finished)

    def answer(self, pod: Pod) -> PodAnswer:
        """Everything about one pod."""
        key = group_key(pod)
        if key is None or self.core.cluster.groups is None or pod.spec.node_name or pod.is_finished:
            return self._alone(pod)
        group = GroupQuestions(self.loaded, self.core).answer(key)
        answer = self._alone(pod)
        # What the group's scheduler reported is about the group, and so no contradiction.
        warnings = tuple(one for one in answer.warnings if one.reason is not Reason.REPORTED_UNSCHEDULABLE)
        return dataclasses.replace(answer, group=group, warnings=warnings)

    def _alone(self, pod: Pod) -> PodAnswer:
        framework = self.core.framework_for(pod)
        if pod.spec.node_name and not pod.is_finished and framework is not None:
            return self._assigned(pod, framework)
        reason = skip_reason(pod, self.core)
        if pod.spec.node_name and not pod.is_finished:
            reason = OF_OTHER_SCHEDULER.format(node=pod.spec.node_name, scheduler=pod.spec.scheduler_name)
        if reason or framework is None:
            # A pod may be gated only because an object is not in the dump.
            may_be_gated = not pod.is_finished and not pod.is_terminating
            warnings = self.warnings(pod) if may_be_gated else ()
            return PodAnswer(pod, PodState.SKIPPED, self._with_absent(pod, reason), warnings=warnings)
        explanation = explain(framework, pod)
        warnings = (*_reported(pod, explanation), *self.warnings(pod, preempts=explanation.has_candidates))
        identical = self._identical(pod)
        events = requeue_events(framework, explanation.rejecting_plugins)
        evaluated = EvaluatedPod(pod, framework, explanation)
        return PodAnswer(pod, PodState.PENDING, "", evaluated, warnings, events, identical)

    def _with_absent(self, pod: Pod, reason: str) -> str:
        """Adds to the reason why a pod is gated that its claims can never be created."""
        if "ResourceClaimTemplate" not in self.loaded.listed or pod.spec.node_name or pod.is_finished:
            return reason
        templates = self.core.cluster.objects.of(ResourceClaimTemplate)
        made = {status.name for status in pod.status.resource_claim_statuses}
        for reference in pod.spec.resource_claims:
            name = reference.resource_claim_template_name
            if name and reference.name not in made and templates.get(name, pod.namespace) is None:
                reason = NO_TEMPLATE.format(reason=reason, name=f"{pod.namespace}/{name}")
        return reason

    def _assigned(self, pod: Pod, framework: Framework) -> PodAnswer:
        cluster = self.core.cluster
        unassigned = replace(
            pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, nominated_node_name="")
        )
        cluster.remove_pod(pod.uid)
        try:
            explanation = explain(framework, unassigned)
            evaluated = EvaluatedPod(unassigned, framework, explanation)
            changed = Warning(CHANGED, pod.key, Reason.CLUSTER_CHANGED)
            preempts = explanation.has_candidates
            warnings = (changed, *self.warnings(unassigned, preempts=preempts))
            return PodAnswer(pod, PodState.ASSIGNED, "", evaluated, warnings)
        finally:
            cluster.add_pod(pod, pod.spec.node_name)

    def warnings(self, pod: Pod, *, preempts: bool = False) -> tuple[Warning, ...]:
        """What may be wrong with the answer about a pod: objects that it refers to and that were not loaded.

        `preempts`: preemption has candidates for it.
        """
        framework = self.core.framework_for(pod)
        if framework is None:
            return ()
        if self._missing is None:
            self._missing = MissingObjects(self.loaded.objects, self.loaded.listed)
        return tuple(self._missing.of_pod(pod, framework.profile, preempts=preempts, runs_permit=True))

    def _identical(self, pod: Pod) -> tuple[str, ...]:
        signature = pod_signature(pod)
        return tuple(
            other.key
            for other in self.pending()
            if other is not pod and other.namespace == pod.namespace and pod_signature(other) == signature
        )


def _reported(pod: Pod, explanation: Explanation) -> Iterator[Warning]:
    """What the pod's own scheduler has reported, if this answer contradicts it."""
    if explanation.error or explanation.permit is not None or not explanation.chosen:
        return
    for condition in pod.status.conditions:
        if waits_for_quota(condition):
            continue
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable" and condition.message:
            text = REPORTED.format(message=condition.message)
            yield Warning(text, pod.key, Reason.REPORTED_UNSCHEDULABLE)


def requeue_events(framework: Framework, rejecting_plugins: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By plugin: the events after which a pod is tried again that these plugins rejected."""
    plugins = {plugin.name: plugin for plugin in framework.profile.all_plugins()}
    rules = framework.cluster.release.queue
    found = {}
    for name in sorted(plugins.keys() & set(rejecting_plugins)):
        found[name] = _event_texts(one.event for one in registrations(plugins[name], rules))
    return found


def _event_texts(events: Iterable[ClusterEvent]) -> tuple[str, ...]:
    """`Node: Add, UpdateNodeLabel`, once for each resource."""
    actions: dict[str, dict[str, None]] = {}
    for event in events:
        if event.is_wildcard:
            return ("any event",)
        actions.setdefault(str(event.resource), {}).update(dict.fromkeys(event.action_labels))
    return tuple(f"{resource}: {', '.join(labels)}" for resource, labels in actions.items())


def group_identical(pods: Sequence[Pod]) -> list[list[Pod]]:
    """Pods that scheduling cannot tell apart, in groups, in the order of the first ones."""
    groups: dict[bytes, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(pod_signature(pod), []).append(pod)
    return list(groups.values())


# Nodes


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One resource of a node, in the unit of its column (cpu: thousandths)."""

    resource: str
    allocatable: int
    requested: int
    nominated: int = 0
    """What pods request that are nominated to the node; it is not in `requested`."""
    releasing: int = 0
    """What terminating pods will free; it is in `requested`."""

    @property
    def free(self) -> int:
        return self.allocatable - self.requested


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Identical pending pods, and whether they fit on the node."""

    pods: tuple[str, ...]
    explanation: Explanation
    """How the scheduler would decide about the first of them now."""
    status: Status | None
    """Why the node is rejected; None: it fits."""
    detail: str = ""

    @property
    def chosen(self) -> str:
        """The node that the scheduler would choose; empty if none fits, or Permit holds the pod."""
        return self.explanation.chosen if self.explanation.permit is None else ""

    @property
    def error(self) -> str:
        return self.explanation.error


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Everything about one node."""

    node: Node
    pods: tuple[Pod, ...]
    nominated: tuple[Pod, ...]
    """Pods that are nominated to the node: others must fit with them."""
    resources: tuple[ResourceUse, ...]
    waiting: tuple[WaitingPods, ...]
    warnings: tuple[Warning, ...] = ()
    """Objects that the pending pods refer to and that were not loaded."""
    not_evaluated: int = 0
    """Pending pods that are left out, because there are too many different ones."""
    skipped: tuple[tuple[str, int], ...] = ()
    """Why other pods without a node are not evaluated, and how many."""


def explain_node(questions: PodQuestions, name: str) -> NodeAnswer:
    """What is on the node, and which pending pods fit there.

    Raises:
        InputError: there is no such node.
    """
    cluster = questions.core.cluster
    row = cluster.nodes.row_of.get(name)
    node = None if row is None else cluster.nodes.node[row]
    if row is None or node is None:
        raise InputError(NO_SUCH_NODE.format(source=questions.loaded.name), object_key=f"Node {name}")
    pods = sorted(cluster.pods_on(row), key=lambda pod: (-pod.priority, pod.key))
    slots = cluster.nominated.get(row, ())
    nominated = tuple(pod for slot in slots if (pod := cluster.pods.pod[slot]) is not None)
    resources = tuple(_resources(questions, node, row, pods, nominated))
    groups = group_identical(questions.pending())
    waiting = tuple(_waiting(questions, name, group) for group in groups[:MAX_GROUPS])
    warnings = tuple(warning for group in groups[:MAX_GROUPS] for warning in questions.warnings(group[0]))
    left = sum(len(group) for group in groups[MAX_GROUPS:])
    skipped = tuple(questions.skipped().most_common())
    return NodeAnswer(node, tuple(pods), nominated, resources, waiting, warnings, left, skipped)


def _resources(
    questions: PodQuestions, node: Node, row: int, pods: Sequence[Pod], nominated: Sequence[Pod]
) -> Iterator[ResourceUse]:
    cluster = questions.core.cluster
    columns, requests = cluster.nodes, cluster.release.accounting.assigned_requests
    of_nominated = [requests(pod) for pod in nominated]
    of_terminating = [requests(pod) for pod in pods if pod.is_terminating]
    first = [name for name in (CPU, MEMORY, EPHEMERAL_STORAGE) if name in node.status.allocatable]
    others = sorted(set(node.status.allocatable) - {*first, PODS})
    for name in (*first, *others):
        resource = columns.resource(name)
        yield ResourceUse(
            name,
            int(resource.allocatable.array[row]),
            int(resource.requested.array[row]),
            sum(one.get(name, 0) for one in of_nominated),
            sum(one.get(name, 0) for one in of_terminating),
        )
    if PODS in node.status.allocatable:
        allowed = int(columns.allowed_pods.array[row])
        yield ResourceUse(PODS, allowed, len(pods), len(nominated), len(of_terminating))


def _detail(framework: Framework, pod: Pod, explanation: Explanation, rejection: Rejection) -> str:
    """What exactly is in the way on one node."""
    (name,) = rejection.nodes
    missing = missing_devices(framework.cluster, pod, explanation, [name])
    if missing:
        return "; ".join(f"claim {one.claim}, request {one.request}: {one.reason}" for one in missing)
    return detail(framework, pod, rejection).text


def _waiting(questions: PodQuestions, name: str, group: Sequence[Pod]) -> WaitingPods:
    pod = group[0]
    framework = questions.core.frameworks[pod.spec.scheduler_name]
    explanation = explain(framework, pod)
    rejection = rejection_on(explanation, name)
    more = "" if rejection is None else _detail(framework, pod, explanation, rejection)
    status = None if rejection is None else rejection.status
    return WaitingPods(tuple(one.key for one in group), explanation, status, more)
