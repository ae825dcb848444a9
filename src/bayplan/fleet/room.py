"""How many replicas of a workload fit into a member: exactly, and by Karmada's estimates; and why the two
differ.

The exact number is counted by the member's own scheduler on a branch: the pods that the workload has there
are deleted first, then copies of its pod are scheduled one after the other until one does not fit, without
evictions. LimitRanges and quotas of the member apply. Karmada's estimators use requests, and at most
selectors and taints of nodes; counting without each of the pod's other rules shows which of them make the
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from bayplan.answers.whatif.applying import models_of
from bayplan.answers.whatif.cluster import Branch, Cluster
from bayplan.answers.whatif.manifests import WORKLOADS, Manifest, Manifests
from bayplan.answers.whatif.pods import delete_pod
from bayplan.answers.whatif.workloads import Workload
from bayplan.api.meta import ObjectMeta
from bayplan.api.node import Namespace
from bayplan.api.pod import Affinity, Pod
from bayplan.api.selectors import DO_NOT_SCHEDULE
from bayplan.errors import InputError
from bayplan.fleet.karmada.clusters import ClusterTable, Ints
from bayplan.fleet.karmada.estimate import GeneralEstimator
from bayplan.fleet.karmada.kinds import BindingSpec, ReplicaRequirements
from bayplan.fleet.karmada.summary import node_estimate
from bayplan.fleet.karmada.templates import requirements_of
from bayplan.fleet.members import Member

AT_MOST: Final = 500
"""Copies to count in one member, unless a workload has more replicas."""
_FORBIDDEN: Final = " is forbidden: "


@dataclass(frozen=True, slots=True)
class Room:
    """Replicas that fit into a member, including the existing ones."""

    exact: int
    """Counted by its scheduler."""
    is_limit: bool
    """Whether the next one does not fit; otherwise counting stopped."""
    next_lacks: str
    """Why the next one does not fit."""
    previous: int
    """Existing replicas."""
    general: int
    """By Karmada's general estimator: from the sums of the cluster and its resource models."""
    by_nodes: int
    """By karmada-scheduler-estimator: requests, selectors and taints, node by node."""
    rules: tuple[str, ...] = ()
    """Rules of the pod that no estimator takes into account, and without which more would fit."""
    failures: tuple[str, ...] = ()
    """Plugins that failed while counting: the number is not reliable."""

    @property
    def more(self) -> int:
        """In addition to the existing ones; negative if those would not all fit again."""
        return self.exact - self.previous

    @property
    def explained(self) -> str:
        """Why the exact number is smaller than Karmada's; empty if it is not."""
        if not self.is_limit:
            return ""
        if self.rules and self.exact < self.by_nodes:
            return f"{', '.join(self.rules)}: {self.exact:,}, by resources: {self.by_nodes:,}"
        if self.exact < self.general and self.by_nodes < self.general:
            return f"node by node: {self.by_nodes:,}, by the sums of the cluster: {self.general:,}"
        return ""

    def as_json(self) -> dict[str, object]:
        return {
            "exact": self.exact,
            "isLimit": self.is_limit,
            "nextLacks": self.next_lacks,
            "previous": self.previous,
            "karmadaGeneral": self.general,
            "karmadaEstimator": self.by_nodes,
            "limitedBy": list(self.rules),
            "explanation": self.explained,
        }


@dataclass(frozen=True, slots=True)
class Exact:
    """An estimator (`karmada.estimate.Estimator`) with the exact numbers of the members that were read.

    For other clusters it answers as Karmada's general estimator.
    """

    more: Mapping[str, int]
    name: str = "exact"

    def available(self, clusters: ClusterTable, rows: Ints, spec: BindingSpec, *, sets: bool) -> Ints:
        found = GeneralEstimator().available(clusters, rows, spec, sets=sets)
        for place, row in enumerate(rows):
            found[place] = self.more.get(clusters.names[row], found[place])
        return found


def room_for(member: Member, workload: Manifest, others: Manifests, at_most: int) -> Room:
    """Counts the room for a workload, or a pod, in a member.

    Args:
        others: what is applied before: claims, classes, services.

    Raises:
        InputError: the member's API server would reject the workload.
    """
    with member.cluster.branch() as branch:
        previous, pod = prepare(branch, workload, others)
        requirements = requirements_of(pod)
        # The estimates of Karmada are for a cluster with these pods: they are deleted on the branch only.
        general = _general(member, requirements) + previous
        by_nodes = node_estimate(branch.columns, requirements)
        return _counted(branch, pod, previous, general, by_nodes, at_most)


def room_for_pod(member: Member, pod: Pod, at_most: int) -> Room:
    """The same for copies of a pod, in addition to everything that is running."""
    requirements = requirements_of(pod)
    with member.cluster.branch() as branch:
        create_namespace(branch, pod.namespace)
        general, by_nodes = _general(member, requirements), node_estimate(branch.columns, requirements)
        return _counted(branch, pod, 0, general, by_nodes, at_most)


def _general(member: Member, requirements: ReplicaRequirements | None) -> int:
    return int(GeneralEstimator().replicas(ClusterTable([member.karmada_cluster()]), requirements)[0])


def _counted(branch: Branch, pod: Pod, previous: int, general: int, by_nodes: int, at_most: int) -> Room:
    counted = branch.capacity(pod, at_most=at_most)
    rules: tuple[str, ...] = ()
    if counted.is_limit and counted.count < by_nodes:
        rules = _limiting_rules(branch, pod, counted.count, counted.reason, min(by_nodes, at_most))
    return Room(
        counted.count,
        counted.is_limit,
        counted.reason,
        previous,
        general,
        by_nodes,
        rules,
        tuple(one.message for one in counted.failures),
    )


def prepare(branch: Branch, workload: Manifest, others: Manifests) -> tuple[int, Pod]:
    """Deletes the pods that a workload has, and applies what it needs. Returns their number, and its pod."""
    create_namespace(branch, workload.namespace)
    there = pods_there(branch, workload)
    for pod in there:
        delete_pod(branch, pod)
    models = models_of(branch, Manifests(others.source, (*others.objects, workload)))
    return len(there), models[0][0][0]


def pods_there(cluster: Cluster, workload: Manifest) -> list[Pod]:
    """The pods of a workload, with a node or without."""
    if workload.kind in WORKLOADS:
        return list(Workload(cluster, workload, None).pods())
    found = cluster.find_pod(workload.key)
    return [] if found is None else [found]


def create_namespace(branch: Branch, name: str) -> None:
    """Karmada creates the namespaces of its objects in every member."""
    try:
        branch.add(Namespace(metadata=ObjectMeta(name=name)))
    except InputError:
        return  # It exists.


# Why fewer fit than requests allow


def _without_affinity(pod: Pod, **terms: Any) -> Pod:
    affinity = replace(pod.spec.affinity or Affinity(), **terms)
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def _without_ports(pod: Pod) -> Pod:
    containers = tuple(replace(one, ports=()) for one in pod.spec.containers)
    return replace(pod, spec=replace(pod.spec, containers=containers))


def _without_claims(pod: Pod) -> Pod:
    plain = tuple(volume for volume in pod.spec.volumes if not pod.claim_name(volume))
    return replace(pod, spec=replace(pod.spec, volumes=plain))


def _without_spread(pod: Pod) -> Pod:
    soft = tuple(
        one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable != DO_NOT_SCHEDULE
    )
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=soft))


_RULES: Final[Mapping[str, Callable[[Pod], Pod]]] = {
    "anti-affinity": lambda pod: _without_affinity(pod, pod_anti_affinity=None),
    "affinity": lambda pod: _without_affinity(pod, pod_affinity=None),
    "topology spread": _without_spread,
    "host ports": _without_ports,
    "volumes": _without_claims,
    "devices": lambda pod: replace(pod, spec=replace(pod.spec, resource_claims=())),
}
"""Rules of a pod that no estimator of Karmada knows, each with the pod without it."""


def _limiting_rules(branch: Branch, pod: Pod, count: int, reason: str, at_most: int) -> tuple[str, ...]:
    """The rules without which more copies fit: each alone, or else all together."""
    if _FORBIDDEN in reason:
        return ("quota or limits of the namespace",)
    present = {name: without(pod) for name, without in _RULES.items()}
    present = {name: changed for name, changed in present.items() if _differs(pod, changed)}
    limiting = tuple(
        name for name, changed in present.items() if branch.capacity(changed, at_most=count + 1).count > count
    )
    if limiting or not present:
        return limiting
    bare = pod
    for without in _RULES.values():
        bare = without(bare)
    together = branch.capacity(bare, at_most=min(at_most, count + 1)).count > count
    return tuple(present) if together else ()


def has_own_rules(pod: Pod) -> bool:
    """Whether a pod has a rule that no estimator of Karmada knows."""
    return any(_differs(pod, without(pod)) for without in _RULES.values())


def _differs(pod: Pod, changed: Pod) -> bool:
    """Whether a rule was removed, not only an empty value written."""
    return (pod.spec.affinity or Affinity()) != (changed.spec.affinity or Affinity()) or replace(
        pod.spec, affinity=None
    ) != replace(changed.spec, affinity=None)
