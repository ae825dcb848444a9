"""What controllers and provisioners do about volumes, in response to changes of a what-if cluster.

A new volume can be used in the zone of the node that was chosen for it (or by the keys of the class'
allowedTopologies): what a real provisioner does depends on its storage system. Where a class binds at once,
no node is chosen, and the volume is taken to be usable everywhere, with a warning (`volume_assumption`).
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from bayplan.answers.whatif.pod_claims import UNKNOWN_UID, unbound
from bayplan.answers.whatif.state import BranchStore
from bayplan.api.meta import (
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    ObjectReference,
)
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    NO_PROVISIONER,
    SELECTED_NODE_ANNOTATION,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
)

ZONE: Final = "topology.kubernetes.io/zone"
_ANYWHERE: Final = "bayplan.dev/assumed-usable-everywhere"
"""An annotation of volumes that were provisioned without a node."""
_ASSUMED: Final = (
    "StorageClass {storage_class} provisions the volume of PersistentVolumeClaim {claim} before a node is "
    "chosen: evaluated as if it could be used on every node"
)


class VolumeControllers:
    """The PersistentVolume controller, provisioners, and the controller of ephemeral volumes."""

    def __init__(self, store: BranchStore) -> None:
        self._store = store

    # Claims of ephemeral volumes

    def pod_created(self, pod: Pod) -> None:
        """Claims of ephemeral volumes that were created before their pod get its uid."""
        for claim in self._claims_of(pod):
            owner = claim.metadata.controller()
            if owner is not None and (owner.kind, owner.uid) == ("Pod", UNKNOWN_UID):
                owners = (replace(owner, uid=pod.uid),)
                self._store.update(replace(claim, metadata=replace(claim.metadata, owner_references=owners)))

    def pod_deleted(self, pod: Pod) -> None:
        """The claims of ephemeral volumes end with their pod; if it is created again, it gets new ones."""
        for claim in self._claims_of(pod):
            if not claim.was_made_for(pod):
                continue
            volume = self._store.find(PersistentVolume, claim.spec.volume_name)
            self._remove(claim)
            if volume is not None:
                self._remove(volume)
            owner = claim.metadata.controller()
            assert owner is not None, "it was made for the pod"
            self._store.create(unbound(claim, claim.name, replace(owner, uid=UNKNOWN_UID)))

    def _claims_of(self, pod: Pod) -> list[PersistentVolumeClaim]:
        names = [f"{pod.name}-{volume.name}" for volume in pod.spec.volumes if volume.ephemeral is not None]
        found = (self._store.find(PersistentVolumeClaim, name, pod.namespace) for name in names)
        return [claim for claim in found if claim is not None]

    def _remove(self, item: PersistentVolumeClaim | PersistentVolume) -> None:
        if item.metadata.finalizers:
            meta = replace(item.metadata, finalizers=(), resource_version="")
            self._store.update(replace(item, metadata=meta))
        self._store.delete(type(item), item.name, item.namespace)

    # Binding

    def volume_changed(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None:
            return
        claim = self._store.find(PersistentVolumeClaim, reference.name, reference.namespace)
        if claim is not None and not claim.spec.volume_name and volume.is_for(claim):
            self._bind(claim, volume)

    def claim_changed(self, claim: PersistentVolumeClaim) -> None:
        """Provisions a volume if a node was chosen, or if none has to be; `volume_changed` binds it."""
        storage_class = self._store.find(StorageClass, claim.class_name)
        if claim.spec.volume_name or storage_class is None:
            return
        node = self._store.find(Node, claim.annotations.get(SELECTED_NODE_ANNOTATION, ""))
        if node is not None:
            self._store.create(_new_volume(claim, storage_class, node))
        elif storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            name = f"pvc-{claim.uid}"
            is_provisioned = storage_class.provisioner not in ("", NO_PROVISIONER)
            if is_provisioned and self._store.find(PersistentVolume, name) is None:
                self._store.create(_new_volume(claim, storage_class, None))

    def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        if volume.status.phase != "Bound":
            self._store.update(replace(volume, status=PersistentVolumeStatus(phase="Bound")))
        notes = {**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
        self._store.update(
            replace(
                claim,
                metadata=replace(claim.metadata, annotations=notes),
                spec=replace(claim.spec, volume_name=volume.name),
                status=replace(claim.status, phase="Bound"),
            )
        )


def volume_assumption(pod: Pod, store: BranchStore) -> str:
    """What is assumed about new volumes of a pod, as text; empty if nothing is."""
    for volume in pod.spec.volumes:
        name = pod.claim_name(volume)
        claim = store.find(PersistentVolumeClaim, name, pod.namespace) if name else None
        bound = store.find(PersistentVolume, claim.spec.volume_name) if claim is not None else None
        if claim is not None and bound is not None and _ANYWHERE in bound.annotations:
            return _ASSUMED.format(storage_class=claim.class_name, claim=claim.key)
    return ""


def _new_volume(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None
) -> PersistentVolume:
    """The volume that is provisioned for a claim and, if one was chosen, for a node."""
    name = f"pvc-{claim.uid}"
    expressions = (e for term in storage_class.allowed_topologies for e in term.match_label_expressions)
    keys = list(dict.fromkeys(expression.key for expression in expressions)) or [ZONE]
    labels = {} if node is None else node.labels
    reach = tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(labels[key],))
        for key in keys
        if key in labels
    )
    terms = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=reach),))
    return PersistentVolume(
        metadata=ObjectMeta(name=name, annotations={_ANYWHERE: "true"} if node is None else {}),
        spec=PersistentVolumeSpec(
            capacity={STORAGE: claim.spec.resources.requests.get(STORAGE, "0")},
            access_modes=claim.spec.access_modes,
            claim_ref=ObjectReference(
                kind="PersistentVolumeClaim", namespace=claim.namespace, name=claim.name, uid=claim.uid
            ),
            storage_class_name=claim.class_name,
            volume_mode=claim.spec.volume_mode,
            node_affinity=VolumeNodeAffinity(required=terms) if reach else None,
            csi=CSIPersistentVolumeSource(driver=storage_class.provisioner, volume_handle=name),
        ),
        status=PersistentVolumeStatus(phase="Bound"),
    )
