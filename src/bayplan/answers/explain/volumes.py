"""What the reasons of the volume plugins leave out: which claim, volume, class, driver or capacity it is.

Each function reads what its plugin reads. VolumeBinding is evaluated node by node, because volumes reach
different nodes; nodes with the same remedy share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bayplan.answers.explain.labels import label_remedies
from bayplan.answers.explain.rejections import Subject
from bayplan.answers.explain.remedies import (
    MAX_NAMED,
    Detail,
    FreeClaim,
    FreeDisk,
    Remedy,
    bytes_text,
    counted,
    named,
)
from bayplan.api.node import Node
from bayplan.api.node_selectors import CompiledTerm, terms_match
from bayplan.api.pod import Pod
from bayplan.api.quantity import value
from bayplan.api.selectors import Operator, Requirement, compile_selector
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from bayplan.errors import SelectorError
from bayplan.plugins.node_volume_limits import PodVolumes
from bayplan.plugins.volume_binding import (
    REASON_AFFINITY,
    REASON_LOST_VOLUME,
    REASON_NO_ROOM,
    REASON_NO_VOLUME,
    has_room,
    provisioning_allowed,
    volume_affinity,
)
from bayplan.plugins.volume_binding.claims import UNBOUND_IMMEDIATE, PodClaims, class_of, selected_node
from bayplan.plugins.volume_restrictions import REASON_CLAIM, Exclusive
from bayplan.plugins.volume_zone import CURRENT_LABEL, locations_of
from bayplan.state.derived import derived
from bayplan.state.disks import disks_clash, disks_of
from bayplan.state.view import NodeColumns
from bayplan.state.volume_binding import (
    VolumeOffers,
    expected_volume,
    reach,
    volume_limit,
)
from bayplan.state.volume_matching import (
    AVAILABLE,
    FILESYSTEM,
    claims_by_size,
    match_volumes,
)
from bayplan.state.volumes import CSINodes, VolumeUses

MAX_NODES: Final = 50
"""Nodes of a rejection that are evaluated for volumes; the remedies cover no others."""


@dataclass(frozen=True, slots=True)
class BindClaim(Remedy):
    """A claim that the volume controller has to bind before the pod is scheduled."""

    claim: str
    class_name: str
    class_exists: bool
    volume: str = ""
    """The volume that it names, although it is not bound."""

    @property
    def text(self) -> str:
        if self.volume:
            return (
                f"claim {self.claim} names volume {self.volume}, but its binding is not complete: it lacks "
                f"the annotation {BIND_COMPLETED_ANNOTATION}"
            )
        absent = ", which does not exist" if self.class_name and not self.class_exists else ""
        return f"claim {self.claim}: class {self.class_name or 'none'}{absent}"


@dataclass(frozen=True, slots=True)
class CreateVolume(Remedy):
    """The volume that a claim is bound to does not exist."""

    claim: str
    volume: str

    @property
    def text(self) -> str:
        return f"claim {self.claim} is bound to {self.volume}, which does not exist"


@dataclass(frozen=True, slots=True)
class MoveClaim(Remedy):
    """A claim whose volume is to be provisioned, on another node or by a class that has no provisioner."""

    claim: str
    node: str
    """The node in the annotation `volume.kubernetes.io/selected-node`."""
    class_provisions: bool = True

    @property
    def text(self) -> str:
        if not self.class_provisions:
            return (
                f"the volume of claim {self.claim} is to be provisioned on {self.node}, "
                "but its class has no provisioner"
            )
        return f"the volume of claim {self.claim} is being provisioned on {self.node}"


@dataclass(frozen=True, slots=True)
class UnsuitableVolume:
    """A volume of the claim's class, and everything that keeps it from being used."""

    volume: str
    problems: tuple[tuple[str, str], ...]
    """Field and sentence."""

    def __str__(self) -> str:
        return f"{self.volume} {' and '.join(text for _, text in self.problems)}"


@dataclass(frozen=True, slots=True)
class ProvideVolume(Remedy):
    """A claim for which no volume is provisioned: a suitable one has to exist."""

    claim: str
    class_name: str
    bytes: int
    access_modes: tuple[str, ...]
    volumes: tuple[UnsuitableVolume, ...]
    """Those of the class, the nearest first."""
    reserved: bool
    """Whether the first is reserved for the claim: then no other is used."""

    @property
    def text(self) -> str:
        size, modes = bytes_text(self.bytes) if self.bytes else "any size", ", ".join(self.access_modes)
        found = named(map(str, self.volumes)) or "there is no PersistentVolume of this class"
        return f"claim {self.claim}: class {self.class_name or 'none'}, {size}, {modes}; {found}"


@dataclass(frozen=True, slots=True)
class AddStorageCapacity(Remedy):
    """A driver reports no capacity for a claim on a node."""

    claim: str
    class_name: str
    bytes: int
    largest: int | None
    """The largest volume that can be provisioned on the node; None if nothing is reported for it."""

    @property
    def text(self) -> str:
        wanted = f"claim {self.claim}: class {self.class_name}, {bytes_text(self.bytes)}"
        if self.largest is None:
            return f"{wanted}; no CSIStorageCapacity of this class covers the node"
        return f"{wanted}; CSIStorageCapacity allows at most {bytes_text(self.largest)} on the node"


@dataclass(frozen=True, slots=True)
class RaiseVolumeLimit(Remedy):
    """A driver attaches no more volumes to a node."""

    driver: str
    attached: int
    further: int
    """Volumes of the pod that are not attached yet."""
    limit: int

    @property
    def text(self) -> str:
        more = f", {counted(self.further, 'more')} needed" if self.further > 1 else ""
        return f"{self.driver}: {self.attached} of {self.limit} volumes on {self.nodes[0]}{more}"


# VolumeBinding


def binding_detail(subject: Subject) -> Detail:
    reasons = subject.status.reasons
    if UNBOUND_IMMEDIATE in reasons:
        return Detail.of(_unbound(subject), most=MAX_NAMED)
    claims = subject.plugin_state()
    if not isinstance(claims, PodClaims):
        return Detail()
    found: list[Remedy] = []
    for position in range(min(len(subject.nodes), MAX_NODES)):
        one = replace(
            subject, nodes=subject.nodes[position : position + 1], rows=subject.rows[position : position + 1]
        )
        for node in one.node_objects():
            if REASON_LOST_VOLUME in reasons:
                found += _lost(one, claims)
            if REASON_AFFINITY in reasons:
                found += _out_of_reach(one, claims, node)
            if REASON_NO_VOLUME in reasons or REASON_NO_ROOM in reasons:
                found += _without_volumes(one, claims, node)
    return Detail.of(_shared(found), most=MAX_NAMED)


def _shared(remedies: Iterable[Remedy]) -> list[Remedy]:
    """Remedies that differ in nothing but their nodes as one."""
    found: dict[Remedy, list[str]] = {}
    for remedy in remedies:
        found.setdefault(replace(remedy, nodes=()), []).extend(remedy.nodes)
    return [replace(remedy, nodes=tuple(nodes)) for remedy, nodes in found.items()]


def _unbound(subject: Subject) -> Iterator[BindClaim]:
    classes = subject.cluster.objects.of(StorageClass)
    for claim in _claims(subject):
        found = classes.get(claim.class_name)
        waits = found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if not claim.is_fully_bound and (claim.spec.volume_name or not waits):
            yield BindClaim(
                tuple(subject.nodes), claim.key, claim.class_name, found is not None, claim.spec.volume_name
            )


def _lost(subject: Subject, claims: PodClaims) -> Iterator[CreateVolume]:
    for claim in claims.bound:
        if expected_volume(subject.cluster.objects, claim.spec.volume_name) is None:
            yield CreateVolume(tuple(subject.nodes), claim.key, claim.spec.volume_name)


def _out_of_reach(subject: Subject, claims: PodClaims, node: Node) -> Iterator[Remedy]:
    """Where the volumes of bound claims can be used."""
    for claim in claims.bound:
        volume = expected_volume(subject.cluster.objects, claim.spec.volume_name)
        affinity = None if volume is None else volume_affinity(volume, subject.cluster, int(subject.rows[0]))
        if volume is not None and affinity is not None:
            origin = f"volume {volume.name} of claim {claim.key}"
            yield from label_remedies(subject, reach(affinity), origin)


def _without_volumes(subject: Subject, claims: PodClaims, node: Node) -> Iterator[Remedy]:
    """For each claim that can get no volume on the node, what it lacks."""
    nodes = NodeColumns(subject.cluster, subject.rows)
    moved = [claim for claim in claims.delayed if selected_node(claim) not in (None, node.name)]
    for claim in moved:
        yield MoveClaim(tuple(subject.nodes), claim.key, selected_node(claim) or "")
    if moved:
        return
    unselected = claims_by_size(claim for claim in claims.delayed if selected_node(claim) is None)
    chosen = match_volumes(unselected, derived(subject.cluster, VolumeOffers), nodes).at(0)
    taken = {
        volume.name: claim for claim, volume in zip(unselected, chosen, strict=True) if volume is not None
    }
    to_provision = [claim for claim in claims.delayed if selected_node(claim) is not None]
    to_provision += [claim for claim, volume in zip(unselected, chosen, strict=True) if volume is None]
    for claim in to_provision:
        storage_class = class_of(claim, nodes)
        if not provisioning_allowed(claim, nodes)[0]:
            terms = list(_topologies(storage_class))
            if terms:
                origin = f"class {storage_class.name} of claim {claim.key} (allowedTopologies)"
                yield from label_remedies(subject, terms, origin)
            elif selected_node(claim) is not None:
                yield MoveClaim(tuple(subject.nodes), claim.key, node.name, class_provisions=False)
            else:
                yield _provide(subject, claim, node, taken)
        elif not has_room(claim, nodes)[0]:
            size = value(claim.spec.resources.requests.get(STORAGE))
            largest = _largest_capacity(subject, claim, node)
            yield AddStorageCapacity(tuple(subject.nodes), claim.key, claim.class_name, size, largest)


def _topologies(storage_class: StorageClass) -> Iterator[CompiledTerm]:
    """allowedTopologies of a class that provisions volumes, as terms of a node selector."""
    if storage_class.provisioner in ("", "kubernetes.io/no-provisioner"):
        return
    for term in storage_class.allowed_topologies:
        if term.match_label_expressions:
            yield CompiledTerm(
                tuple(
                    Requirement(one.key, Operator.IN, frozenset(one.values))
                    for one in term.match_label_expressions
                )
            )


def _largest_capacity(subject: Subject, claim: PersistentVolumeClaim, node: Node) -> int | None:
    limits = []
    for capacity in subject.cluster.objects.of(CSIStorageCapacity):
        limit = volume_limit(capacity)
        if capacity.storage_class_name != claim.class_name or limit is None:
            continue
        try:
            covers = compile_selector(capacity.node_topology).matches(node.labels)
        except SelectorError:
            covers = False
        if covers:
            limits.append(limit)
    return max(limits, default=None)


def _provide(
    subject: Subject, claim: PersistentVolumeClaim, node: Node, taken: dict[str, PersistentVolumeClaim]
) -> ProvideVolume:
    objects = subject.cluster.objects
    found, reserved = [], []
    for one in objects.of(PersistentVolume):
        volume = expected_volume(objects, one.name)
        if volume is None:
            continue
        problems = tuple(_problems(volume, claim, node, taken))
        if volume.is_for(claim):
            reserved.append(UnsuitableVolume(volume.name, problems))
        elif volume.class_name == claim.class_name:
            found.append(UnsuitableVolume(volume.name, problems))
    # A reserved volume that only does not reach the node excludes all others.
    excluding = [one for one in reserved if [field for field, _ in one.problems] == ["nodeAffinity"]]
    found.sort(key=lambda one: (len(one.problems), one.volume))
    return ProvideVolume(
        tuple(subject.nodes),
        claim.key,
        claim.class_name,
        value(claim.spec.resources.requests.get(STORAGE)),
        tuple(claim.spec.access_modes),
        tuple(excluding[:1] or (*reserved, *found)),
        bool(excluding),
    )


def _problems(
    volume: PersistentVolume,
    claim: PersistentVolumeClaim,
    node: Node,
    taken: dict[str, PersistentVolumeClaim],
) -> Iterator[tuple[str, str]]:
    """Everything that keeps a volume from being used for the claim on the node."""
    # index.go: FindMatchingVolume
    reference, is_reserved = volume.spec.claim_ref, volume.is_for(claim)
    if reference is not None and not is_reserved:
        yield "claimRef", f"belongs to claim {reference.namespace}/{reference.name}"
    elif volume.name in taken:
        yield "taken", f"goes to claim {taken[volume.name].key} of the same pod"
    if volume.class_name != claim.class_name:
        yield "storageClassName", f"has class {volume.class_name or 'none'}"
    size, wanted = value(volume.spec.capacity.get(STORAGE)), value(claim.spec.resources.requests.get(STORAGE))
    if size < wanted:
        yield "capacity", f"has only {bytes_text(size)}"
    if (volume.spec.volume_mode or FILESYSTEM) != (claim.spec.volume_mode or FILESYSTEM):
        yield "volumeMode", f"has volumeMode {volume.spec.volume_mode or FILESYSTEM}"
    if (volume.spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or ""):
        yield "volumeAttributesClassName", "has another volumeAttributesClassName"
    if volume.metadata.deletion_timestamp is not None:
        yield "deletionTimestamp", "is being deleted"
    if reference is None:
        if volume.status.phase != AVAILABLE:
            yield "phase", f"is {volume.status.phase or 'in no phase'}, not {AVAILABLE}"
        if claim.spec.selector is not None and not compile_selector(claim.spec.selector).matches(
            volume.labels
        ):
            yield "labels", "does not match the claim's selector"
        modes = [mode for mode in claim.spec.access_modes if mode not in volume.spec.access_modes]
        if modes:
            yield "accessModes", f"lacks {' and '.join(modes)}"
    affinity = volume.spec.node_affinity
    required = None if affinity is None else affinity.required
    if required is not None and not terms_match(reach(required), node.labels, ""):
        terms = (" and ".join(map(str, term.expressions)) for term in reach(required))
        yield "nodeAffinity", f"requires {' or '.join(terms)}"


# VolumeZone, VolumeRestrictions, NodeVolumeLimits


def zone_detail(subject: Subject) -> Detail:
    remedies: list[Remedy] = []
    for claim in _claims(subject):
        volume = subject.cluster.objects.of(PersistentVolume).get(claim.spec.volume_name)
        for place in () if volume is None else locations_of(volume):
            terms = [CompiledTerm((Requirement(place.label, Operator.IN, place.values),))]
            if place.label in CURRENT_LABEL:
                deprecated = Requirement(place.label, Operator.DOES_NOT_EXIST)
                current = Requirement(CURRENT_LABEL[place.label], Operator.IN, place.values)
                terms.append(CompiledTerm((deprecated, current)))
            origin = f"volume {claim.spec.volume_name} of claim {claim.key}"
            remedies += label_remedies(subject, terms, origin)
    return Detail.of(remedies, most=MAX_NAMED)


def restrictions_detail(subject: Subject) -> Detail:
    """The pods that use the disk, or the claim with ReadWriteOncePod."""
    cluster, pod = subject.cluster, subject.pod
    remedies: list[Remedy] = []
    if REASON_CLAIM not in subject.status.reasons:
        disks = disks_of(pod)
        remedies += [
            FreeDisk((node,), subject.in_the_way(other, node))
            for other, node in subject.pods()
            if disks_clash(disks, disks_of(other))
        ]
        return Detail.of(remedies, most=MAX_NAMED)
    exclusive = subject.plugin_state()
    if not isinstance(exclusive, Exclusive):
        return Detail()
    for row in cluster.order.tolist():
        for other in cluster.pods_on(row):
            if other.namespace == pod.namespace:
                remedies += [
                    FreeClaim(
                        tuple(subject.nodes),
                        f"{pod.namespace}/{name}",
                        subject.in_the_way(other, cluster.nodes.name[row]),
                    )
                    for name in sorted(exclusive.claims.intersection(_claim_names(other)))
                ]
    return Detail.of(remedies, most=MAX_NAMED)


def limits_detail(subject: Subject) -> Detail:
    """Limit and use of each driver that is full, on the node with the most room."""
    wants = subject.plugin_state()
    if not isinstance(wants, PodVolumes) or not isinstance(wants.with_csi_node, frozenset):
        return Detail()
    nodes, uses = derived(subject.cluster, CSINodes), derived(subject.cluster, VolumeUses)
    found: dict[str, list[RaiseVolumeLimit]] = {}
    drivers = {volume.driver for volume in wants.with_csi_node}
    for row, name in zip(subject.rows.tolist(), subject.nodes, strict=True):
        limits = nodes.limits_of(row)
        for driver in sorted(drivers & limits.keys()):
            volumes = [one for one in wants.with_csi_node if one.driver == driver]
            further = sum(row not in uses.rows_using(volume) for volume in volumes)
            count = uses.count(driver)
            attached = 0 if count is None else int(count.array[row])
            if further and attached + further > limits[driver]:
                remedy = RaiseVolumeLimit((name,), driver, attached, further, limits[driver])
                found.setdefault(name, []).append(remedy)
    nearest: Sequence[RaiseVolumeLimit] = min(
        found.values(),
        key=lambda ones: sum(one.attached + one.further - one.limit for one in ones),
        default=(),
    )
    return Detail.of(nearest, most=MAX_NAMED)


def _claims(subject: Subject) -> Iterator[PersistentVolumeClaim]:
    claims = subject.cluster.objects.of(PersistentVolumeClaim)
    for name in _claim_names(subject.pod):
        claim = claims.get(name, subject.pod.namespace)
        if claim is not None:
            yield claim


def _claim_names(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        name = pod.claim_name(volume)
        if name:
            yield name
