"""What controllers of a cluster do about scheduling, in response to changes of a what-if cluster.

| controller | here |
|---|---|
| owners of pods | a pod that is evicted or displaced is created again, pending |
| PersistentVolume controller, provisioners | claims get the volume that the scheduler chose, or a new one |
| resource claim controller | pods get claims from their templates; claims of deleted pods are freed |
| drivers of devices | what has to be prepared before a pod is bound (binding conditions) is ready at once |
| ephemeral volume controller | pods get claims for generic ephemeral volumes, which end with the pod |
| disruption controller | a budget allows one eviction fewer for every pod that is evicted |

What they decide is in `bayplan.controllers`; this module carries it out.

A new volume can be used in the zone of the node that was chosen for it (or by the keys of the class'
allowedTopologies): what a real provisioner does depends on its storage system. Where a class without
allowedTopologies binds at once, no node is chosen, and the volume is taken to be usable everywhere, with a
warning (`volume_assumption`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from bayplan.answers.whatif.state import BranchStore
from bayplan.api.devices import AllocatedDeviceStatus, ResourceClaim, ResourceClaimTemplate
from bayplan.api.groups import PodGroup, PodGroupResourceClaimStatus
from bayplan.api.meta import (
    Condition,
    Object,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
)
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodResourceClaimStatus
from bayplan.api.selectors import compile_selector
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    CLASS_ANNOTATION,
    REGION,
    SELECTED_NODE_ANNOTATION,
    WAIT_FOR_FIRST_CONSUMER,
    ZONE,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    StorageClass,
)
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.controllers.claims import (
    PodClaim,
    all_claims_of,
    can_provision,
    claim_from_template,
    claims_of,
    new_volume,
    shared_claims,
)
from bayplan.framework.binders import results_with_conditions

UNKNOWN_UID: Final = ""
"""Of the owner of an ephemeral volume's claim whose pod has not been created yet."""
_PREPARED: Final = (
    "driver {driver} has to prepare device {device} of ResourceClaim {claim} before the pod is bound: "
    "evaluated as if it succeeds at once"
)
_ANYWHERE: Final = "bayplan.dev/assumed-usable-everywhere"
"""An annotation of volumes that were provisioned without a node."""
_ASSUMED: Final = (
    "StorageClass {storage_class} provisions the volume of PersistentVolumeClaim {claim} before a node is "
    "chosen: evaluated as if it could be used on every node"
)
_COPIED_LABELS: Final = (ZONE, REGION)


def template_labels(pod: Pod, store: BranchStore) -> dict[str, str]:
    """The labels that a pod had before it got its node: binding copies zone and region of the node."""
    node = store.find(Node, pod.spec.node_name)
    if node is None or not any(key in pod.labels for key in _COPIED_LABELS):
        return pod.labels
    copied = {key for key in _COPIED_LABELS if pod.labels.get(key) == node.labels.get(key)}
    return {key: value for key, value in pod.labels.items() if key not in copied}


def without_node(pod: Pod, store: BranchStore) -> Pod:
    """The pod as its controller creates it again: pending, without status and what the server has set."""
    meta = replace(
        pod.metadata,
        uid="",
        resource_version="",
        deletion_timestamp=None,
        creation_timestamp=None,
        labels=template_labels(pod, store),
    )
    return Pod(metadata=meta, spec=replace(pod.spec, node_name=""))


def violated_budgets(
    budgets: Iterable[PodDisruptionBudget], pods: Sequence[Pod]
) -> Iterator[tuple[PodDisruptionBudget, int]]:
    """The budgets that allow fewer evictions than these, with the number of their pods among them."""
    for budget in budgets:
        count = sum(_selects(budget, pod) for pod in pods)
        if count > budget.status.disruptions_allowed:
            yield budget, count


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    return (
        selector is not None
        and budget.namespace == pod.namespace
        and compile_selector(selector).matches(pod.labels)
    )


def device_assumption(pod: Pod, store: BranchStore) -> str:
    """What is assumed about devices of a pod, as text; empty if nothing is."""
    for name in filter(None, (claim.claim_name for claim in claims_of(pod))):
        claim = store.find(ResourceClaim, name, pod.namespace)
        for device in () if claim is None else results_with_conditions(claim):
            return _PREPARED.format(
                driver=device.driver, device=device.device, claim=f"{pod.namespace}/{name}"
            )
    return ""


class Controllers:
    """Reacts to changes (`state.Reaction`)."""

    def __init__(self, store: BranchStore) -> None:
        self._store = store
        self._volumes = VolumeControllers(store)

    def __call__(self, old: Object | None, new: Object | None) -> None:
        if isinstance(new, Pod):
            if old is None and not new.spec.node_name:
                self._make_claims(new)
                self._volumes.pod_created(new)
        elif new is None and isinstance(old, Pod):
            self._free_claims(old)
            self._volumes.pod_deleted(old)
        elif isinstance(new, PersistentVolumeClaim):
            self._volumes.claim_changed(new)
        elif isinstance(new, PersistentVolume):
            self._volumes.volume_changed(new)
        elif isinstance(new, ResourceClaim):
            self._prepare_devices(new)

    # Pods

    def _free_claims(self, pod: Pod) -> None:
        """Frees the resource claims of a pod, and deletes those that were created for it."""
        for name in filter(None, (claim.claim_name for claim in all_claims_of(pod))):
            claim = self._store.find(ResourceClaim, name, pod.namespace)
            if claim is not None:
                self._release(claim, pod)

    def _release(self, claim: ResourceClaim, pod: Pod) -> None:
        self._store.release_claim(claim.name, claim.namespace, pod.uid)
        claim = self._store.get(ResourceClaim, claim.name, claim.namespace)
        if claim.status.reserved_for:
            return
        if claim.status.allocation is not None:
            status = replace(claim.status, allocation=None, devices=())
            meta = replace(claim.metadata, resource_version="")
            self._store.update_claim_status(replace(claim, metadata=meta, status=status))
        owner = claim.metadata.controller()
        if owner is not None and owner.uid == pod.uid:
            self._drop(claim)

    def _drop(self, claim: ResourceClaim) -> None:
        claim = self._store.get(ResourceClaim, claim.name, claim.namespace)
        if claim.metadata.finalizers:
            meta = replace(claim.metadata, finalizers=(), resource_version="")
            self._store.update(replace(claim, metadata=meta))
        self._store.delete(ResourceClaim, claim.name, claim.namespace)

    def _prepare_devices(self, claim: ResourceClaim) -> None:
        """Sets the binding conditions of devices that their drivers have not reported about."""
        status = claim.status
        reported = {(one.driver, one.pool, one.device, one.share_id) for one in status.devices}
        made = [
            AllocatedDeviceStatus(
                driver=one.driver,
                pool=one.pool,
                device=one.device,
                share_id=one.share_id,
                conditions=tuple(Condition(type=name, status="True") for name in one.binding_conditions),
            )
            for one in results_with_conditions(claim)
            if (one.driver, one.pool, one.device, one.share_id) not in reported
        ]
        if made:
            meta = replace(claim.metadata, resource_version="")
            status = replace(status, devices=(*status.devices, *made))
            self._store.update_claim_status(replace(claim, metadata=meta, status=status))

    def count_eviction(self, pod: Pod) -> None:
        """Budgets that select the pod allow one eviction fewer."""
        for budget in list(self._store.all(PodDisruptionBudget)):
            allowed = budget.status.disruptions_allowed
            if allowed > 0 and _selects(budget, pod):
                status = replace(budget.status, disruptions_allowed=allowed - 1)
                self._store.update(replace(budget, status=status))

    def _make_claims(self, pod: Pod) -> None:
        """The claims that a pod gets from ResourceClaimTemplates, for itself or with its group."""
        named, made = pod.spec.scheduling_group, list[PodResourceClaimStatus]()
        group = (
            None if named is None else self._store.find(PodGroup, named.pod_group_name or "", pod.namespace)
        )
        shared = set[str]() if group is None else shared_claims(pod, group)
        for entry in claims_of(pod):
            if not entry.template or entry.claim_name:
                continue
            if group is not None and entry.name in shared:
                name = self._claim_of_group(group, entry)
            else:
                name = self._make_claim(pod, entry)
            if name:
                made.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
        if made:
            status = replace(pod.status, resource_claim_statuses=(*pod.status.resource_claim_statuses, *made))
            self._store.update(replace(pod, status=status))

    def _claim_of_group(self, group: PodGroup, entry: PodClaim) -> str:
        """The claim of a group, which its first member creates; empty without its template."""
        group = self._store.get(PodGroup, group.name, group.namespace)
        known = {one.name: one.resource_claim_name for one in group.status.resource_claim_statuses}
        if found := known.get(entry.name):
            return found
        name = self._make_claim(group, entry)
        if name:
            made = PodGroupResourceClaimStatus(name=entry.name, resource_claim_name=name)
            claims = (*group.status.resource_claim_statuses, made)
            self._store.update(replace(group, status=replace(group.status, resource_claim_statuses=claims)))
        return name

    def _make_claim(self, owner: Pod | PodGroup, entry: PodClaim) -> str:
        """A new claim from its template; empty without the template."""
        template = self._store.find(ResourceClaimTemplate, entry.template, owner.namespace)
        if template is None:
            return ""
        content = claim_from_template(msgspec.to_builtins(template), owner, entry.name)
        content["metadata"]["namespace"] = owner.namespace
        return self._store.create(msgspec.convert(content, ResourceClaim)).name


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
        if node is None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
            return
        kind = msgspec.to_builtins(storage_class)
        if can_provision(kind) and self._store.find(PersistentVolume, f"pvc-{claim.uid}") is None:
            made = new_volume(msgspec.to_builtins(claim), kind, None if node is None else node.labels)
            volume = msgspec.convert(made, PersistentVolume)
            reaches_all = node is None and volume.spec.node_affinity is None
            notes = {**volume.annotations, _ANYWHERE: "true"} if reaches_all else volume.annotations
            reference = ObjectReference(
                kind="PersistentVolumeClaim", namespace=claim.namespace, name=claim.name, uid=claim.uid
            )
            self._store.create(
                replace(
                    volume,
                    metadata=replace(volume.metadata, annotations=notes),
                    spec=replace(volume.spec, claim_ref=reference),
                    status=PersistentVolumeStatus(phase="Bound"),
                )
            )

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
