"""What runs on a node, what is free there, and which pending pods it rejects and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.answers.explain.details import detail
from bayplan.answers.explain.devices import missing_devices
from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.explain.pods import PodQuestions, group_identical
from bayplan.answers.explain.rejections import Rejection
from bayplan.answers.sources.warnings import Warning
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import InputError
from bayplan.framework.status import Status
from bayplan.runtime.framework import Framework
from bayplan.state.nodes import CPU, EPHEMERAL_STORAGE, MEMORY

NO_SUCH_NODE: Final = "there is no such node in {source}"
PODS: Final = "pods"
MAX_GROUPS: Final = 100
"""Groups of identical pending pods that are evaluated."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One resource of a node, in the unit of its column (cpu: thousandths)."""

    resource: str
    allocatable: int
    requested: int

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
    resources: tuple[ResourceUse, ...]
    waiting: tuple[WaitingPods, ...]
    warnings: tuple[Warning, ...] = ()
    """Objects that the pending pods refer to and that were not loaded."""
    not_evaluated: int = 0
    """Pending pods that are left out, because there are too many different ones."""


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
    resources = tuple(_resources(questions, node, row, pods))
    groups = group_identical(questions.pending())
    waiting = tuple(_waiting(questions, name, group) for group in groups[:MAX_GROUPS])
    warnings = tuple(warning for group in groups[:MAX_GROUPS] for warning in questions.warnings(group[0]))
    left = sum(len(group) for group in groups[MAX_GROUPS:])
    return NodeAnswer(node, tuple(pods), resources, waiting, warnings, left)


def _resources(questions: PodQuestions, node: Node, row: int, pods: Sequence[Pod]) -> Iterator[ResourceUse]:
    columns = questions.core.cluster.nodes
    first = [name for name in (CPU, MEMORY, EPHEMERAL_STORAGE) if name in node.status.allocatable]
    others = sorted(set(node.status.allocatable) - {*first, PODS})
    for name in (*first, *others):
        resource = columns.resource(name)
        yield ResourceUse(name, int(resource.allocatable.array[row]), int(resource.requested.array[row]))
    if PODS in node.status.allocatable:
        yield ResourceUse(PODS, int(columns.allowed_pods.array[row]), len(pods))


def _detail(framework: Framework, pod: Pod, explanation: Explanation, rejection: Rejection) -> str:
    """What exactly is in the way on one node."""
    (name,) = rejection.nodes
    missing = missing_devices(framework.cluster, pod, explanation, [name])
    if missing:
        return "; ".join(f"claim {one.claim}, request {one.request}: {one.reason}" for one in missing)
    return detail(framework, pod, rejection)


def _waiting(questions: PodQuestions, name: str, group: Sequence[Pod]) -> WaitingPods:
    pod = group[0]
    framework = questions.core.frameworks[pod.spec.scheduler_name]
    explanation = explain(framework, pod)
    status = explanation.node_status.get(name)
    more = "" if status is None else _detail(framework, pod, explanation, Rejection(status, (name,)))
    return WaitingPods(tuple(one.key for one in group), explanation, status, more)
