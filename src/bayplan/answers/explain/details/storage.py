"""Volumes: which claim or volume is not available on the nodes, and why."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.answers.explain.details.subject import Subject, named
from bayplan.api.node_selectors import compile_terms
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from bayplan.plugins.node_volume_limits import PodVolumes
from bayplan.plugins.volume_binding import (
    REASON_AFFINITY,
    REASON_LOST_VOLUME,
    REASON_NO_ROOM,
    REASON_NO_VOLUME,
)
from bayplan.plugins.volume_binding.claims import UNBOUND_IMMEDIATE
from bayplan.plugins.volume_restrictions import REASON_CLAIM
from bayplan.plugins.volume_zone import locations_of
from bayplan.state.csi_nodes import CSINodes
from bayplan.state.derived import derived
from bayplan.state.disks import disks_clash, disks_of
from bayplan.state.volumes import VolumeUses


def volume_binding_detail(subject: Subject) -> str:
    reasons = subject.status.reasons
    if UNBOUND_IMMEDIATE in reasons:
        return named(_unbound(subject))
    texts: list[str] = []
    for claim in _claims(subject):
        volume = _volume(subject, claim)
        if claim.spec.volume_name:
            if REASON_LOST_VOLUME in reasons and volume is None:
                texts.append(f"claim {claim.key} is bound to {claim.spec.volume_name}, which does not exist")
            elif REASON_AFFINITY in reasons and volume is not None:
                texts += _where(claim, volume)
        elif REASON_NO_VOLUME in reasons or REASON_NO_ROOM in reasons:
            size = claim.spec.resources.requests.get("storage", "any size")
            modes = ", ".join(claim.spec.access_modes)
            texts.append(f"claim {claim.key}: class {claim.class_name or 'none'}, {size}, {modes}")
    return named(texts)


def _unbound(subject: Subject) -> Iterator[str]:
    """The claims that the volume controller has to bind before the pod is scheduled."""
    classes = subject.cluster.objects.of(StorageClass)
    for claim in _claims(subject):
        found = classes.get(claim.class_name)
        waits = found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if not claim.is_fully_bound and (claim.spec.volume_name or not waits):
            absent = ", which does not exist" if claim.class_name and found is None else ""
            yield f"claim {claim.key}: class {claim.class_name or 'none'}{absent}"


def _where(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Iterator[str]:
    """Where a volume can be used."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return
    terms = [
        " and ".join(map(str, (*term.expressions, *term.fields)))
        for term in compile_terms(affinity.required.node_selector_terms)
    ]
    yield f"volume {volume.name} of claim {claim.key} requires {' or '.join(terms)}"


def volume_zone_detail(subject: Subject) -> str:
    texts = []
    for claim in _claims(subject):
        volume = _volume(subject, claim)
        for place in () if volume is None else locations_of(volume):
            zones = ", ".join(sorted(place.values))
            texts.append(f"volume {claim.spec.volume_name} of claim {claim.key} is in {place.label}={zones}")
    return named(texts)


def restrictions_detail(subject: Subject) -> str:
    """The pods that use the disk, or the claim with ReadWriteOncePod."""
    cluster, pod = subject.cluster, subject.pod
    if REASON_CLAIM not in subject.status.reasons:
        disks = disks_of(pod)
        others = (other for other in subject.pods() if disks_clash(disks, disks_of(other)))
        return named(f"in use by {other.key}" for other in others)
    own = set(_claim_names(pod))
    users = (
        f"claim {pod.namespace}/{name} is in use by {other.key} on {cluster.nodes.name[row]}"
        for row in cluster.order.tolist()
        for other in cluster.pods_on(row)
        if other.namespace == pod.namespace
        for name in own.intersection(_claim_names(other))
    )
    return named(users)


def volume_limits_detail(subject: Subject) -> str:
    """Limit and use of each driver on the node with the most room."""
    wants = subject.plugin_state()
    if not isinstance(wants, PodVolumes) or not isinstance(wants.with_csi_node, frozenset):
        return ""
    nodes, uses = derived(subject.cluster, CSINodes), derived(subject.cluster, VolumeUses)
    texts = []
    for driver in dict.fromkeys(sorted(volume.driver for volume in wants.with_csi_node)):
        count = uses.count(driver)
        rooms = []
        for row, name in zip(subject.rows.tolist(), subject.nodes, strict=True):
            limit = nodes.limits_of(row).get(driver)
            if limit is not None:
                used = 0 if count is None else int(count.array[row])
                rooms.append((limit - used, name, used, limit))
        if rooms:
            _, name, used, limit = max(rooms)
            texts.append(f"{driver}: {used} of {limit} volumes on {name}")
    return named(texts)


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


def _volume(subject: Subject, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    return subject.cluster.objects.of(PersistentVolume).get(claim.spec.volume_name)
