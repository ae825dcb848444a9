"""Volumes: claims are bound to existing or provisioned ones, and ephemeral volumes get claims.

Claims of a class with WaitForFirstConsumer are left to the scheduler, which binds them to an existing volume,
or chooses the node for which one is provisioned (the annotation selected-node).

Provisioners are simulated: `bayplan.controllers.claims` says what their volumes are.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.meta import Content
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.quantity import parse_quantity
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
)
from bayplan.controllers.claims import (
    can_provision,
    ephemeral_claim,
    new_volume,
)
from bayplan.controllers.pods import compiled, is_controlled_by
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, write_status
from bayplan.embedded.server.kinds import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Resource,
)
from bayplan.errors import NotFoundError


class VolumeBinder(Controller):
    """Reconciles PersistentVolumeClaims."""

    name: ClassVar = "persistentvolume-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._unbound: dict[str, None] = {}

    def watches(self) -> dict[Resource, KeyMapper]:
        return {
            PERSISTENT_VOLUME_CLAIMS: self._claim,
            PERSISTENT_VOLUMES: self._volume,
            STORAGE_CLASSES: lambda change: list(self._unbound),
        }

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        self._unbound.pop(change.key, None)
        if change.after is None:
            return ()
        if not change.after.record(PersistentVolumeClaim).is_fully_bound:
            self._unbound[change.key] = None
        return (change.key,)

    def _volume(self, change: ObjectChange) -> Iterable[str]:
        """A volume concerns the claim in its claimRef, otherwise all unbound claims."""
        document = change.after or change.before
        assert document is not None
        claim = document.record(PersistentVolume).spec.claim_ref
        return list(self._unbound) if claim is None else (f"{claim.namespace}/{claim.name}",)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(PERSISTENT_VOLUME_CLAIMS, key)
        if document is None:
            return None
        record, claim = document.record(PersistentVolumeClaim), document.parse()
        name = record.spec.volume_name
        if name:
            volume = self.cluster.find(PERSISTENT_VOLUMES, name)
            if volume is not None and _is_free_for(volume, record):
                self._bind(claim, volume, chosen_by_us=False)
            elif record.is_fully_bound:
                status = {**claim.get("status", {}), "phase": "Lost"}
                write_status(self.api, PERSISTENT_VOLUME_CLAIMS, claim, status)
            return None
        if "deletionTimestamp" not in claim["metadata"]:
            self._find_volume(claim, record)
        return None

    def _find_volume(self, claim: Content, record: PersistentVolumeClaim) -> None:
        volume = self._reserved(record)
        if volume is not None:
            self._bind(claim, volume, chosen_by_us=True)
            return
        class_name = record.class_name
        storage_class = self.cluster.find(STORAGE_CLASSES, class_name) if class_name else None
        waits = (storage_class or {}).get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER
        node = record.annotations.get(SELECTED_NODE_ANNOTATION)
        if waits and not node:
            message = "waiting for first consumer to be created before binding"
            self.events.normal(claim, "WaitForFirstConsumer", message)
            return
        volume = None if waits else self._smallest_that_fits(record, claim)
        if volume is not None:
            self._bind(claim, volume, chosen_by_us=True)
        elif storage_class is not None and can_provision(storage_class):
            self._provision(claim, storage_class, node if waits else None)
        elif class_name:
            message = f'storageclass.storage.k8s.io "{class_name}" not found'
            if storage_class is None:
                self.events.warning(claim, "ProvisioningFailed", message)
        else:
            message = "no persistent volumes available for this claim and no storage class is set"
            self.events.normal(claim, "FailedBinding", message)

    def _reserved(self, claim: PersistentVolumeClaim) -> Content | None:
        """A volume with this claim as its claimRef, set by the scheduler or a user."""
        for document in self.api.documents(PERSISTENT_VOLUMES):
            if document.record(PersistentVolume).is_for(claim):
                return document.parse()
        return None

    def _smallest_that_fits(self, record: PersistentVolumeClaim, claim: Content) -> Content | None:
        wanted = parse_quantity(record.spec.resources.requests.get("storage"))
        selector = claim["spec"].get("selector")
        best, best_size = None, None
        for document in self.api.documents(PERSISTENT_VOLUMES):
            volume = document.record(PersistentVolume)
            size = parse_quantity(volume.spec.capacity.get("storage"))
            if (
                volume.spec.claim_ref is None
                and volume.metadata.deletion_timestamp is None
                and volume.class_name == record.class_name
                and (volume.spec.volume_mode or "Filesystem") == (record.spec.volume_mode or "Filesystem")
                and set(record.spec.access_modes) <= set(volume.spec.access_modes)
                and size >= wanted
                and (selector is None or compiled(selector).matches(volume.labels))
                and (best_size is None or size < best_size)
            ):
                best, best_size = document, size
        return None if best is None else best.parse()

    def _provision(self, claim: Content, storage_class: Content, node_name: str | None) -> None:
        labels = None
        if node_name is not None:
            node = self.api.store.find(NODES, node_name)
            if node is None:
                # The node was deleted after it was chosen: the scheduler has to choose again.
                del claim["metadata"]["annotations"][SELECTED_NODE_ANNOTATION]
                self.api.update(PERSISTENT_VOLUME_CLAIMS, claim)
                return
            labels = node.record(Node).labels
        volume = new_volume(claim, storage_class, labels)
        volume["spec"]["claimRef"] = _reference(claim)
        created = self.api.create(PERSISTENT_VOLUMES, volume)
        message = f"Successfully provisioned volume {created['metadata']['name']}"
        self.events.normal(claim, "ProvisioningSucceeded", message)
        self._bind(claim, created, chosen_by_us=True)

    def _bind(self, claim: Content, volume: Content, *, chosen_by_us: bool) -> None:
        """Writes claimRef and volumeName. It is idempotent."""
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            volume["spec"]["claimRef"] = _reference(claim)
            if reference is None:
                _note(volume, BOUND_BY_CONTROLLER_ANNOTATION)
            volume = self.api.update(PERSISTENT_VOLUMES, volume)
        if volume["status"].get("phase") != "Bound":
            status = {**volume["status"], "phase": "Bound", "lastPhaseTransitionTime": self.api.now()}
            write_status(self.api, PERSISTENT_VOLUMES, volume, status)
        if chosen_by_us:
            claim["spec"]["volumeName"] = volume["metadata"]["name"]
            _note(claim, BOUND_BY_CONTROLLER_ANNOTATION)
        _note(claim, BIND_COMPLETED_ANNOTATION)
        claim = self.api.update(PERSISTENT_VOLUME_CLAIMS, claim)
        status = {
            **(claim.get("status") or {}),
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes"),
            "capacity": volume["spec"].get("capacity"),
        }
        write_status(self.api, PERSISTENT_VOLUME_CLAIMS, claim, status)


class VolumeReclaimer(Controller):
    """Reconciles PersistentVolumes: Available, Bound, or Released."""

    name: ClassVar = "persistentvolume-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {
            PERSISTENT_VOLUMES: lambda change: () if change.after is None else (change.key,),
            PERSISTENT_VOLUME_CLAIMS: self._claim,
        }

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        if change.before is None or change.after is not None:
            return ()
        name = change.before.record(PersistentVolumeClaim).spec.volume_name
        return (name,) if name else ()

    def reconcile(self, key: str) -> float | None:
        volume = self.cluster.find(PERSISTENT_VOLUMES, key)
        if volume is None:
            return None
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            self._set_phase(volume, "Available")
            return None
        claim = self.cluster.find(PERSISTENT_VOLUME_CLAIMS, f"{reference['namespace']}/{reference['name']}")
        if claim is not None and claim["metadata"]["uid"] == reference["uid"]:
            return None  # the binder has it
        self._set_phase(volume, "Released")
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            with suppress(NotFoundError):
                self.api.delete(PERSISTENT_VOLUMES, key)
        return None

    def _set_phase(self, volume: Content, phase: str) -> None:
        if volume["status"].get("phase") != phase:
            status = {**volume["status"], "phase": phase, "lastPhaseTransitionTime": self.api.now()}
            write_status(self.api, PERSISTENT_VOLUMES, volume, status)


def _is_free_for(volume: Content, claim: PersistentVolumeClaim) -> bool:
    reference = volume["spec"].get("claimRef")
    if reference is None:
        return True
    names = reference.get("namespace"), reference.get("name")
    return names == (claim.namespace, claim.name) and reference.get("uid", "") in ("", claim.uid)


def _reference(claim: Content) -> Content:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }


def _note(content: Content, annotation: str) -> None:
    meta = content["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), annotation: "yes"}


_MAX_CREATED: Final = 100
"""Claims created per call; the rest are created in the next one, so that other tasks run."""


class EphemeralClaims(Controller):
    """Reconciles pods with ephemeral volumes."""

    name: ClassVar = "ephemeral_volume"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {PODS: self._pod}

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        if change.before is not None or change.after is None:
            return ()
        volumes = change.after.record(Pod).spec.volumes
        return (change.key,) if any(volume.ephemeral is not None for volume in volumes) else ()

    def reconcile(self, key: str) -> float | None:
        pod = self.cluster.find(PODS, key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return None
        meta = pod["metadata"]
        left = _MAX_CREATED
        for volume in pod["spec"].get("volumes") or ():
            claim = ephemeral_claim(pod, volume)
            if claim is None:
                continue
            name = claim["metadata"]["name"]
            known = self.cluster.find(PERSISTENT_VOLUME_CLAIMS, f"{meta['namespace']}/{name}")
            if known is None:
                if not left:
                    return 0.0
                left -= 1
                self.api.create(PERSISTENT_VOLUME_CLAIMS, claim, meta["namespace"])
            elif not is_controlled_by(known, pod):
                message = (
                    f'PVC "{meta["namespace"]}/{name}" was not created for pod "{key}" (pod is not owner)'
                )
                self.events.warning(pod, "EphemeralVolumeCollision", message)
        return None


CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"


class ClaimProtection(Controller):
    """Keeps claims that are being deleted until no pod on a node uses them.

    Every claim gets the finalizer. As upstream, a pod counts until it is deleted, even if it has ended
    (pvc_protection_controller.go: podUsesPVC).
    """

    name: ClassVar = "pvc-protection-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {PERSISTENT_VOLUME_CLAIMS: self._claim, PODS: self._pod}

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            return ()
        is_new = CLAIM_PROTECTION.encode() not in change.after.body
        return (change.key,) if is_new or b'"deletionTimestamp"' in change.after.body else ()

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        if change.after is not None or change.before is None:
            return ()
        return _claims_of(change.before.record(Pod))

    def reconcile(self, key: str) -> float | None:
        claim = self.cluster.find(PERSISTENT_VOLUME_CLAIMS, key)
        if claim is None:
            return None
        finalizers = claim["metadata"].get("finalizers") or []
        is_protected = CLAIM_PROTECTION in finalizers
        if "deletionTimestamp" not in claim["metadata"]:
            if not is_protected:
                claim["metadata"]["finalizers"] = [*finalizers, CLAIM_PROTECTION]
                self.api.update(PERSISTENT_VOLUME_CLAIMS, claim)
            return None
        if not is_protected:
            return None
        pods = (document.record(Pod) for document in self.api.documents(PODS, claim["metadata"]["namespace"]))
        if not any(pod.spec.node_name and key in _claims_of(pod) for pod in pods):
            claim["metadata"]["finalizers"] = [each for each in finalizers if each != CLAIM_PROTECTION]
            self.api.update(PERSISTENT_VOLUME_CLAIMS, claim)
        return None


def _claims_of(pod: Pod) -> list[str]:
    names = (pod.claim_name(volume) for volume in pod.spec.volumes)
    return [f"{pod.namespace}/{name}" for name in names if name]
