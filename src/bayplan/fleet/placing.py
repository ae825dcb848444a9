"""Places workloads in a fleet: the division of `karmada.schedule`, with exact numbers and with Karmada's own.

Workloads are placed one after the other. Each one's pods are scheduled in the members by their schedulers, on
branches, before the next one is divided: a burst does not count the same room twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif.cluster import Cluster
from bayplan.answers.whatif.manifests import WORKLOADS, LeftOut, Manifest, Manifests
from bayplan.answers.whatif.outcomes import Placements
from bayplan.answers.whatif.pods import delete_pod
from bayplan.api.pod import Pod
from bayplan.errors import InputError
from bayplan.fleet.control_plane import ControlPlane
from bayplan.fleet.karmada.binding import Attempt, considered
from bayplan.fleet.karmada.clusters import ClusterTable
from bayplan.fleet.karmada.estimate import Estimator, GeneralEstimator
from bayplan.fleet.karmada.kinds import (
    APIEnablement,
    APIResource,
    BindingSpec,
    Placement,
    PropagationPolicy,
    TargetCluster,
)
from bayplan.fleet.karmada.kinds import Cluster as KarmadaCluster
from bayplan.fleet.karmada.schedule import Result, schedule
from bayplan.fleet.karmada.templates import (
    binding_spec,
    policy_of,
    replicas_of,
    with_placement_defaults,
)
from bayplan.fleet.members import Member
from bayplan.fleet.room import Exact, Room, create_namespace, pods_there, room_for

_NOT_DIVIDED: Final = {
    "DaemonSet": "it has one pod on each node of every cluster",
    "ReplicationController": "Karmada does not know its replicas",
}
_ONE_GANG: Final = "a Job of Volcano is one gang: it is not divided between clusters"
MIN_COUNTED: Final = 100
"""The minimum number of copies to count in a member, because weights are in proportion to what fits."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one member gets."""

    replicas: int
    previous: int
    nodes: Mapping[str, int]
    """Replicas by node, after its scheduler has placed them."""
    pending: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why replicas are pending, with their number."""
    evicted: tuple[str, ...] = ()
    """Pods of lower priority that are evicted for them."""


@dataclass(frozen=True, slots=True)
class PlacedWorkload:
    """Where a workload goes."""

    kind: str
    key: str
    replicas: int
    placement: Placement
    rooms: Mapping[str, Room]
    """By member, without those that reject the workload."""
    refused: Mapping[str, str]
    """Members whose API server would reject it, and why."""
    result: Result
    """With the exact numbers."""
    by_estimate: Result
    """With the estimates that karmada-scheduler has by default."""
    table: ClusterTable
    shares: Mapping[str, Share]
    affinity_group: str = ""
    attempt: Attempt | None = None
    """What karmada-scheduler does with the binding, where there is one."""
    unread: tuple[str, ...] = ()
    """Clusters of the control plane that were not read: only estimates are known."""
    warnings: tuple[Warning, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def pending(self) -> int:
        return sum(share.pending for share in self.shares.values())

    @property
    def fits(self) -> bool:
        return self.result.reason is None and not self.pending and not self.failures

    def pending_by_estimate(self) -> dict[str, int]:
        """Replicas that would stay pending if they were divided by Karmada's estimates."""
        return {
            name: count - room.exact
            for name, count in self.by_estimate.replicas.items()
            if (room := self.rooms.get(name)) is not None and room.is_limit and count > room.exact
        }

    def static_weights(self) -> list[dict[str, object]]:
        """The division as the `staticWeightList` of a policy."""
        return [
            {"targetCluster": {"clusterNames": [name]}, "weight": count}
            for name, count in sorted(self.result.replicas.items())
            if count
        ]


def split(manifests: Manifests) -> tuple[list[Manifest], Manifests]:
    """The workloads and pods of manifests, and everything else."""
    creating = [one for one in manifests.objects if one.kind in ("Pod", *WORKLOADS)]
    rest = tuple(one for one in manifests.objects if one not in creating)
    return creating, replace(manifests, objects=rest)


def not_placeable(workloads: Sequence[Manifest]) -> Iterator[LeftOut]:
    """Workloads that are not divided."""
    for one in workloads:
        if one.is_volcano_job:
            yield LeftOut(one.kind, one.key, _ONE_GANG)
        elif one.kind in _NOT_DIVIDED:
            yield LeftOut(one.kind, one.key, _NOT_DIVIDED[one.kind])


@contextmanager
def branches(members: Sequence[Member]) -> Iterator[None]:
    """Changes to the members' clusters are reverted at the end."""
    originals = [(member.cluster, member.computed) for member in members]
    with ExitStack() as stack:
        for member in members:
            member.cluster = stack.enter_context(member.cluster.branch())
        try:
            yield
        finally:
            for member, (cluster, computed) in zip(members, originals, strict=True):
                member.cluster, member.computed = cluster, computed


@dataclass(frozen=True, slots=True)
class Placer:
    """Places workloads in members, one after the other; use it within `branches`."""

    members: Sequence[Member]
    policies: Sequence[PropagationPolicy] = ()
    default: Placement = field(default_factory=Placement)
    """For workloads that no policy claims."""
    at_most: int | None = None
    """Where to stop counting; None: twice the replicas, and at least MIN_COUNTED."""
    fresh: bool = False
    """Whether existing replicas may move."""
    plane: ControlPlane = field(default_factory=ControlPlane)
    """Of Karmada, if there is one: bindings, and clusters that are not among the members."""

    def placement_for(self, workload: Manifest) -> Placement:
        """The placement of the policy that claims a workload."""
        found = policy_of(workload.content, self.policies)
        return with_placement_defaults(self.default if found is None else found.spec.placement)

    def place(self, workload: Manifest, others: Manifests, replicas: int | None = None) -> PlacedWorkload:
        """Divides a workload, and schedules its pods in the members."""
        placement = self.placement_for(workload)
        wanted = replicas_of(workload.content) if replicas is None else replicas
        at_most = max(wanted, max(2 * wanted, MIN_COUNTED) if self.at_most is None else self.at_most)
        rooms: dict[str, Room] = {}
        refused: dict[str, str] = {}
        for member in self.members:
            key = msgspec.json.encode([workload.content, [one.content for one in others.objects]]), at_most
            try:
                rooms[member.name] = member.remember(
                    key, partial(room_for, member, workload, others, at_most)
                )
            except InputError as error:
                refused[member.name] = str(error)
        spec = self._spec(workload, placement, wanted, rooms)
        known = {member.name for member in self.members}
        unread = tuple(one for name, one in self.plane.clusters.items() if name not in known)
        clusters = [member.karmada_cluster() for member in self.members if member.name in rooms]
        table = ClusterTable(described(one, spec) for one in (*clusters, *unread))
        # A binding may name replicas whose pods have not been created yet.
        assigned = {target.name: target.replicas for target in spec.clusters}
        more = {name: room.exact - assigned.get(name, 0) for name, room in rooms.items()}
        group, result = decide(spec, table, (Exact(more),), fresh=self.fresh)
        binding = self.plane.binding_of(workload.kind, workload.key)
        attempted = (
            None if binding is None else considered(msgspec.structs.replace(binding, spec=spec), table)
        )
        if attempted is not None and attempted.result is not None:
            by_estimate = attempted.result
        else:
            _, by_estimate = decide(spec, table, (GeneralEstimator(),), fresh=self.fresh)
        placed = PlacedWorkload(
            workload.kind,
            workload.key,
            wanted,
            placement,
            rooms,
            refused,
            result,
            by_estimate,
            table,
            {},
            group,
            attempted,
            tuple(one.name for one in unread),
        )
        failures = tuple(text for room in rooms.values() for text in room.failures)
        if result.reason is not None:
            return replace(placed, failures=failures)
        shares: dict[str, Share] = {}
        warnings: list[Warning] = []
        for member in self.members:
            if member.name in rooms:
                count = result.replicas.get(member.name, 0)
                found, outcome = apply_share(member, workload, others, count, rooms[member.name].previous)
                shares[member.name] = found
                warnings += outcome.warnings
                failures += tuple(one.message for one in outcome.failures)
        return replace(placed, shares=shares, warnings=tuple(warnings), failures=failures)

    def _spec(
        self, workload: Manifest, placement: Placement, replicas: int, rooms: Mapping[str, Room]
    ) -> BindingSpec:
        pod = None
        for member in self.members:
            if member.name in rooms:
                pod = model(member.cluster, workload)
                break
        spec = binding_spec(workload.content, pod, placement, replicas=replicas)
        binding = self.plane.binding_of(workload.kind, workload.key)
        if binding is not None:
            return msgspec.structs.replace(
                binding.spec,
                replicas=spec.replicas,
                replica_requirements=spec.replica_requirements,
                placement=placement,
            )
        previous = tuple(
            TargetCluster(name=name, replicas=room.previous) for name, room in rooms.items() if room.previous
        )
        return msgspec.structs.replace(spec, clusters=previous)


def model(cluster: Cluster, workload: Manifest) -> Pod:
    """The pod of a workload, as the member's API server would store it."""
    from bayplan.answers.whatif.applying import models_of

    with cluster.branch() as branch:
        create_namespace(branch, workload.namespace)
        return models_of(branch, Manifests("", (workload,)))[0][0][0]


def described(cluster: KarmadaCluster, spec: BindingSpec) -> KarmadaCluster:
    """The cluster with the API of the workload, if what it serves is not known."""
    if cluster.status.api_enablements:
        return cluster
    enabled = APIEnablement(
        group_version=spec.resource.api_version, resources=(APIResource(kind=spec.resource.kind),)
    )
    return msgspec.structs.replace(
        cluster, status=msgspec.structs.replace(cluster.status, api_enablements=(enabled,))
    )


def decide(
    spec: BindingSpec, table: ClusterTable, estimators: Sequence[Estimator], *, fresh: bool = False
) -> tuple[str, Result]:
    """The first affinity group that succeeds, or the first error; without groups, the only result."""
    assert spec.placement is not None
    names = [term.affinity_name for term in spec.placement.cluster_affinities] or [""]
    first: tuple[str, Result] | None = None
    for name in names:
        result = schedule(spec, table, observed=name, estimators=estimators, fresh=fresh)
        if result.reason is None:
            return name, result
        first = first or (name, result)
    assert first is not None
    return first


def apply_share(
    member: Member, workload: Manifest, others: Manifests, replicas: int, previous: int
) -> tuple[Share, Placements]:
    """Applies the share of a member: existing replicas are scaled, and the scheduler places new ones."""
    cluster, placed = member.cluster, Placements(())
    if replicas or previous:
        member.changed()
    if not replicas:
        for pod in pods_there(cluster, workload):
            delete_pod(cluster, pod)
    elif isinstance(cluster, Cluster):
        with cluster.branch() as branch:
            create_namespace(branch, workload.namespace)
            branch.apply(Manifests(others.source, (*others.objects, with_replicas(workload, replicas))))
            mine = {pod.key for pod in pods_there(branch, workload)}
            placed = branch.schedule([pod for pod in branch.pending if pod.key in mine])
            rejected = [one for one in branch.not_recreated if one.pod not in mine]
            placed = replace(placed, pods=(*placed.pods, *rejected))
            branch.commit()
    there = pods_there(cluster, workload)
    nodes = Counter(pod.spec.node_name for pod in there if pod.spec.node_name)
    pending = replicas - nodes.total() if replicas else 0
    evicted = placed.evicted
    return Share(replicas, previous, dict(nodes), max(0, pending), dict(placed.reasons()), evicted), placed


def with_replicas(workload: Manifest, replicas: int) -> Manifest:
    """The workload with another number of replicas, in what it states, too."""
    if workload.kind == "Pod":
        return workload
    field_name = "parallelism" if workload.kind == "Job" else "replicas"

    def changed(content: dict[str, object]) -> dict[str, object]:
        spec = content.get("spec")
        assert isinstance(spec, dict)
        return {**content, "spec": {**spec, field_name: replicas}}

    return replace(workload, content=changed(workload.content), given=changed(workload.given))
