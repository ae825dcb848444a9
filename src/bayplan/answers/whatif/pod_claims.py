"""PersistentVolumeClaims that belong to one pod: those of StatefulSets and of generic ephemeral volumes.

A copy of a pod needs claims of its own. They are copied from those of the pod, unbound, because nothing else
says what the StatefulSet or the volume has as a template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import ObjectMeta, OwnerReference
from bayplan.api.pod import PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume
from bayplan.api.storage import CLASS_ANNOTATION, PersistentVolumeClaim

UNKNOWN_UID: Final = ""
"""Of the owner of an ephemeral volume's claim whose pod has not been created yet."""

FindClaim = Callable[[str, str], PersistentVolumeClaim | None]
"""By name and namespace."""


def for_copy(pod: Pod, name: str, find: FindClaim) -> tuple[PodSpec, list[PersistentVolumeClaim]]:
    """The spec of a copy of the pod with another name, and the claims to create for it.

    If a claim is not known, the copy refers to one that does not exist: it is unschedulable, with a warning.
    """
    volumes: list[Volume] = []
    claims: list[PersistentVolumeClaim] = []
    for volume in pod.spec.volumes:
        known = find(pod.claim_name(volume) or "", pod.namespace)
        if volume.ephemeral is not None:
            if known is not None:
                claims.append(unbound(known, f"{name}-{volume.name}", _owner(name)))
        elif is_of_stateful_set(pod, volume):
            claim_name = f"{volume.name}-{name}"
            volume = replace(
                volume, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim_name)
            )
            if known is not None:
                claims.append(unbound(known, claim_name))
        volumes.append(volume)
    return replace(pod.spec, node_name="", volumes=tuple(volumes)), claims


def is_of_stateful_set(pod: Pod, volume: Volume) -> bool:
    """Whether the volume's claim is from a template of the pod's StatefulSet, not shared by its pods."""
    owner, source = pod.metadata.controller(), volume.persistent_volume_claim
    if owner is None or owner.kind != "StatefulSet" or source is None:
        return False
    return source.claim_name == f"{volume.name}-{pod.name}"


def unbound(
    claim: PersistentVolumeClaim, name: str, owner: OwnerReference | None = None
) -> PersistentVolumeClaim:
    """A claim as it was before it got a volume."""
    notes = {key: text for key, text in claim.annotations.items() if key == CLASS_ANNOTATION}
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=claim.namespace,
            labels=claim.labels,
            annotations=notes,
            owner_references=() if owner is None else (owner,),
        ),
        spec=replace(claim.spec, volume_name=""),
    )


def _owner(pod_name: str) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod_name, uid=UNKNOWN_UID, controller=True)
