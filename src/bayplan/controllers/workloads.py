"""The desired pods of workloads: how many, which ones, and the next step towards them.

One function for each decision of the workload controllers of kube-controller-manager. A *step* is what one
reconcile does: a caller performs a rollout by carrying out the step, waiting for pods to become available,
and computing the next step, until there is none.

| workload | functions |
|---|---|
| Deployment | `bounds`, then `roll` for each step; `proportional_sizes` if it is scaled meanwhile |
| StatefulSet | `stateful_steps`; `stateful_pod` and `stateful_claims` make the objects |
| DaemonSet | `Eligibility` says where, `daemon_steps` and `daemon_rollout` what; `daemon_pod` makes a pod |
| Job | `job_pods` |

Pods and nodes are typed records, workloads plain values. The deletion order of a ReplicaSet's pods is in
`pods.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from bayplan.api.meta import Content
from bayplan.api.node import Node
from bayplan.api.node_selectors import NAME_FIELD, required_node_affinity
from bayplan.api.pod import NO_EXECUTE, Pod, untolerated_taint
from bayplan.api.reading import without_nulls
from bayplan.controllers.pods import REVISION_HASH, available_in, is_active, is_ready, pod_from, rounded

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_PREFIX: Final = "node.kubernetes.io/"
_DAEMON_TAINTS: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


# Deployments


@dataclass(frozen=True, slots=True)
class Bounds:
    """Replicas and bounds of a deployment."""

    replicas: int
    max_surge: int = 0
    max_unavailable: int = 0

    @property
    def max_total(self) -> int:
        return self.replicas + self.max_surge

    @property
    def min_available(self) -> int:
        return self.replicas - self.max_unavailable


@dataclass(frozen=True, slots=True)
class Size:
    """Desired and available pods of a ReplicaSet."""

    name: str
    desired: int
    available: int


def bounds(replicas: int, strategy: dict[str, object]) -> Bounds:
    """From spec.strategy. If both are 0 after rounding, one pod may be unavailable: otherwise the update
    stalls."""
    if strategy.get("type") != "RollingUpdate":
        return Bounds(replicas)
    rolling = strategy.get("rollingUpdate") or {}
    assert isinstance(rolling, dict)
    surge = rounded(rolling.get("maxSurge"), replicas, up=True)
    unavailable = min(rounded(rolling.get("maxUnavailable"), replicas, up=False), replicas)
    return Bounds(replicas, surge, unavailable if surge or unavailable else min(1, replicas))


def roll(wanted: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    """The next step of a rolling update: the new sizes of ReplicaSets that change; empty if none does.

    The new one is scaled up first, as far as maxSurge allows; then old ones, oldest first, are scaled down as
    far as maxUnavailable allows.
    """
    # deployment/rolling.go: rolloutRolling
    size = new_size(wanted, new, new.desired + sum(each.desired for each in old))
    if size != new.desired:
        return {new.name: size}
    sizes = _old_sizes(wanted, new, old)
    return {each.name: sizes[each.name] for each in old if sizes[each.name] != each.desired}


def new_size(wanted: Bounds, new: Size, total: int) -> int:
    """How many pods the new ReplicaSet should have; `total` is the sum over all ReplicaSets."""
    # deployment/util: NewRSNewReplicas
    if new.desired >= wanted.replicas:
        return wanted.replicas
    return min(new.desired + max(wanted.max_total - total, 0), wanted.replicas)


def _old_sizes(wanted: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    """How many pods the old ReplicaSets, oldest first, should have. Unavailable pods are removed first."""
    # deployment/rolling.go: reconcileOldReplicaSets
    total = new.desired + sum(each.desired for each in old)
    new_unavailable = new.desired - new.available
    may_go = total - wanted.min_available - new_unavailable
    sizes = {each.name: each.desired for each in old}
    if may_go <= 0:
        return sizes
    for each in old:
        useless = min(each.desired - each.available, may_go)
        if useless > 0:
            sizes[each.name] -= useless
            may_go -= useless
    available = new.available + sum(each.available for each in old)
    may_go = available - wanted.min_available
    for each in old:
        going = min(sizes[each.name], max(may_go, 0))
        sizes[each.name] -= going
        may_go -= going
    return sizes


def proportional_sizes(wanted: Bounds, sets: Sequence[tuple[Size, int]]) -> dict[str, int]:
    """The sizes after a deployment is scaled during an update: ReplicaSets are scaled in proportion.

    `sets` are those with pods, newest first, each with the deployment's maximum number of pods when the set
    was last scaled.
    """
    # deployment/sync.go: scale
    total = sum(size.desired for size, _ in sets)
    to_add = (wanted.max_total if wanted.replicas > 0 else 0) - total
    # The remainder of rounding goes to the largest. Scaling up prefers newer sets, scaling down older ones.
    order = list(sets) if to_add >= 0 else list(reversed(sets))
    order.sort(key=lambda each: each[0].desired, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for size, max_before in order:
        share = _share(size.desired, wanted, max_before or total or 1, to_add - added) if to_add else 0
        sizes[size.name] = size.desired + share
        added += share
    if order and added != to_add:
        largest = order[0][0].name
        sizes[largest] = max(sizes[largest] + to_add - added, 0)
    return sizes


def _share(desired: int, wanted: Bounds, max_before: int, left: int) -> int:
    if wanted.replicas == 0:
        return -desired
    ideal = desired * wanted.max_total / max_before
    share = int(ideal + 0.5) - desired
    return min(share, left) if left > 0 else max(share, left)


# StatefulSets


class Step(NamedTuple):
    """One change: create the pod of an ordinal or of a node, delete one, or wait for some seconds."""

    create: int | str | None = None
    delete: Pod | None = None
    wait: float | None = None
    has_failed: bool = False
    """Whether the pod to delete has ended, and is going to be created again."""


def stateful_ordinals(spec: Content) -> range:
    start = (spec.get("ordinals") or {}).get("start", 0)
    return range(start, start + spec["replicas"])


def stateful_partition(spec: Content) -> int:
    """Ordinals below keep the old revision during a rolling update."""
    strategy = spec["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return 0
    return stateful_ordinals(spec).start + ((strategy.get("rollingUpdate") or {}).get("partition") or 0)


def stateful_steps(spec: Content, pods: Mapping[int, Pod], digest: str, now: float) -> Iterator[Step]:
    """The next steps of a StatefulSet; `pods` by ordinal, `digest` the hash of the revision of its template.

    With OrderedReady, the default, this is one step: missing pods from the first to the last, surplus pods
    and pods of another revision from the last to the first, each when all other pods are available.
    """
    # statefulset/stateful_set_control.go: updateStatefulSet
    ordinals, min_ready = stateful_ordinals(spec), spec.get("minReadySeconds", 0)
    is_ordered = spec.get("podManagementPolicy") != "Parallel"
    for ordinal in ordinals:
        pod = pods.get(ordinal)
        if pod is None:
            yield Step(create=ordinal)
        elif pod.is_finished and not pod.is_terminating:
            yield Step(delete=pod, has_failed=True)
        elif is_ordered and (pod.is_terminating or not is_ready(pod)):
            return
        elif is_ordered and (delay := available_in(pod, min_ready, now)):
            yield Step(wait=delay)
        else:
            continue
        if is_ordered:
            return
    for ordinal in sorted((each for each in pods if each not in ordinals), reverse=True):
        if not pods[ordinal].is_terminating:
            yield Step(delete=pods[ordinal])
        if is_ordered:
            return
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        yield from _stateful_rollout(spec, pods, digest, now)


def _stateful_rollout(spec: Content, pods: Mapping[int, Pod], digest: str, now: float) -> Iterator[Step]:
    """Replaces the last pod of another revision; the next one only when that is available."""
    partition, min_ready = stateful_partition(spec), spec.get("minReadySeconds", 0)
    for ordinal in reversed(stateful_ordinals(spec)):
        pod = pods.get(ordinal)
        if ordinal < partition or pod is None:
            return
        if pod.labels.get(REVISION_HASH) != digest and not pod.is_terminating:
            yield Step(delete=pod)
            return
        delay = None if pod.is_terminating else available_in(pod, min_ready, now)
        if delay:
            yield Step(wait=delay)
        if delay != 0:
            return


def ordinal_of(pod_name: str, set_name: str) -> int | None:
    """The number in `web-3`, if it is a pod of `web`."""
    prefix, _, number = pod_name.rpartition("-")
    return int(number) if prefix == set_name and number.isdecimal() else None


def stateful_pod(content: Content, template: Content, digest: str, ordinal: int) -> Content:
    """The pod of a StatefulSet with this ordinal; `digest` is the hash of its template's revision."""
    name = f"{content['metadata']['name']}-{ordinal}"
    labels = {REVISION_HASH: digest, POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}
    pod = pod_from(template, content, name=name, labels=labels)
    spec = pod["spec"]
    spec["hostname"] = name
    if content["spec"].get("serviceName"):
        spec["subdomain"] = content["spec"]["serviceName"]
    volumes = {
        claim["metadata"]["name"]: _claim_name(claim, content, ordinal)
        for claim in content["spec"].get("volumeClaimTemplates") or ()
    }
    if volumes:
        others = [each for each in spec.get("volumes") or () if each.get("name") not in volumes]
        ours = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for volume, claim in volumes.items()
        ]
        spec["volumes"] = others + ours
    return pod


def _claim_name(claim: Content, content: Content, ordinal: int) -> str:
    return f"{claim['metadata']['name']}-{content['metadata']['name']}-{ordinal}"


def stateful_claims(content: Content, ordinal: int) -> list[Content]:
    """The claims of a pod, with the labels of the set."""
    labels = (content["spec"].get("selector") or {}).get("matchLabels") or {}
    return [
        {
            "metadata": {
                "name": _claim_name(claim, content, ordinal),
                "labels": {**(claim["metadata"].get("labels") or {}), **labels},
                **({"annotations": notes} if (notes := claim["metadata"].get("annotations")) else {}),
            },
            "spec": claim.get("spec") or {},
        }
        for claim in content["spec"].get("volumeClaimTemplates") or ()
    ]


# DaemonSets


class Eligibility:
    """The nodes that a DaemonSet is for: its template's node selector, affinity and tolerations say so."""

    def __init__(self, content: Content) -> None:
        spec = {**content["spec"]["template"]["spec"]}
        spec["tolerations"] = _tolerations(spec)
        pod = msgspec.convert(without_nulls({"spec": spec}), Pod, strict=False)
        self._tolerations = pod.spec.tolerations
        self._affinity = required_node_affinity(pod)

    def of(self, node: Node) -> tuple[bool, bool]:
        """Whether a pod should run there, and whether one that is there may stay."""
        # daemon/daemon_controller.go: NodeShouldRunDaemonPod
        if not self._affinity.matches(node.labels, node.name):
            return False, False
        taints = node.spec.taints
        may_come = untolerated_taint(taints, self._tolerations) is None
        evicting = [taint for taint in taints if taint.effect == NO_EXECUTE]
        return may_come, untolerated_taint(evicting, self._tolerations) is None


def daemon_steps(
    eligible: Mapping[str, tuple[bool, bool]], by_node: Mapping[str, Sequence[Pod]]
) -> Iterator[Step]:
    """Creates missing pods, and deletes pods that failed, are surplus, or on nodes that are not eligible.

    `eligible` is what `Eligibility.of` says of each node; the pods of a node are ordered, the one to keep
    first.
    """
    # daemon/daemon_controller.go: podsShouldBeOnNode
    for node, (may_come, may_stay) in eligible.items():
        pods = by_node.get(node, ())
        for pod in pods:
            if pod.is_finished and not pod.is_terminating:
                yield Step(delete=pod, has_failed=True)
        if may_come and not pods:
            yield Step(create=node)
        alive = [pod for pod in pods if is_active(pod)]
        for pod in alive[1:] if may_stay else alive:
            yield Step(delete=pod)
    for node, pods in by_node.items():
        if node not in eligible:
            # The node was deleted before the pod was assigned to it.
            for pod in pods:
                if is_active(pod) and not pod.spec.node_name:
                    yield Step(delete=pod)


def daemon_rollout(
    spec: Content, wanted: Collection[str], by_node: Mapping[str, Sequence[Pod]], digest: str, now: float
) -> Iterator[Step]:
    """Replaces pods of older templates on the wanted nodes, as many at a time as may be unavailable."""
    # daemon/update.go: rollingUpdate
    rolling = spec["updateStrategy"].get("rollingUpdate") or {}
    allowed = max(rounded(rolling.get("maxUnavailable", 1), len(wanted), up=True), 1)
    missing = 0
    delays: list[float] = []
    unavailable: list[Pod] = []
    available: list[Pod] = []
    for node in sorted(wanted):
        alive = [pod for pod in by_node.get(node, ()) if is_active(pod)]
        delay = available_in(alive[0], spec.get("minReadySeconds", 0), now) if alive else None
        if delay:
            delays.append(delay)
        missing += delay != 0
        if alive and alive[0].labels.get(REVISION_HASH) != digest:
            (available if delay == 0 else unavailable).append(alive[0])
    for pod in unavailable + available[: max(allowed - missing, 0)]:
        yield Step(delete=pod)
    if delays:
        yield Step(wait=min(delays))


def daemon_pod(content: Content, digest: str, node: str) -> Content:
    """The pod of a DaemonSet for a node: it tolerates the taints of unhealthy nodes, and names its node."""
    notes = content["metadata"].get("annotations") or {}
    generation = notes.get("deprecated.daemonset.template.generation") or "1"
    labels = {REVISION_HASH: digest, "pod-template-generation": generation}
    pod = pod_from(content["spec"]["template"], content, labels=labels)
    spec = pod["spec"]
    affinity: dict[str, Any] = dict(spec.get("affinity") or {})
    field = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    # The node is one for which the template's terms hold, so its name replaces them.
    terms = {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), **terms}
    pod["spec"] = {**spec, "affinity": affinity, "tolerations": _tolerations(spec)}
    return pod


def node_of(pod: Pod) -> str:
    """The node that a daemon pod is assigned to, or meant for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == NAME_FIELD and len(field.values) == 1:
                return field.values[0]
    return ""


def _tolerations(spec: Content) -> list[Content]:
    tolerations = list(spec.get("tolerations") or ())
    added = [*_DAEMON_TAINTS, *([("network-unavailable", "NoSchedule")] if spec.get("hostNetwork") else [])]
    for name, effect in added:
        toleration = {"key": f"{_PREFIX}{name}", "operator": "Exists", "effect": effect}
        if toleration not in tolerations:
            tolerations.append(toleration)
    return tolerations


# Jobs


def job_pods(spec: Content, *, succeeded: int = 0, active: int = 0) -> int:
    """How many pods of a Job should run; `active` are running, and `succeeded` have.

    Without `completions`, one success means that the others will find nothing left to do.
    """
    # job/job_controller.go: manageJob
    if spec.get("suspend"):
        return 0
    parallelism = int(spec["parallelism"])
    if spec.get("completions") is not None:
        return max(min(parallelism, int(spec["completions"]) - succeeded), 0)
    return active if succeeded else parallelism
