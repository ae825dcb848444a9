"""What controllers of a cluster do about scheduling, in response to changes of a what-if cluster.

| controller | here |
|---|---|
| owners of pods | a pod that is evicted or displaced is created again, pending |
| PersistentVolume controller, provisioners | claims get the volume that the scheduler chose, or a new one |
| resource claim controller | pods get claims from their templates; claims of deleted pods are freed |
| disruption controller | a budget allows one eviction fewer for every pod that is evicted |

A new volume can be used in the zone of the node that was chosen for it (or by the keys of the class'
allowedTopologies): what a real provisioner does depends on its storage system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import (
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    Object,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
)
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodResourceClaimStatus
from bayplan.api.resource_claims import ResourceClaim, ResourceClaimTemplate
from bayplan.api.selectors import compile_selector
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
)
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.whatif.state import BranchStore

ZONE: Final = "topology.kubernetes.io/zone"
_PER_NODE: Final = frozenset(("DaemonSet", "Node"))
"""Kinds of owners that have one pod on each node: DaemonSets, and kubelets with static pods."""


def belongs_to_node(pod: Pod) -> bool:
    """Whether the pod is of a DaemonSet or static: a drain leaves it, and it never moves to another node."""
    owner = pod.metadata.controller()
    return owner is not None and owner.kind in _PER_NODE


def is_recreated(pod: Pod) -> bool:
    """Whether a controller creates the pod again, perhaps on another node, if it is deleted."""
    return pod.metadata.controller() is not None and not belongs_to_node(pod)


def without_node(pod: Pod) -> Pod:
    """The pod as its controller creates it again: pending, without status and what the server has set."""
    meta = replace(
        pod.metadata, uid="", resource_version="", deletion_timestamp=None, creation_timestamp=None
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


class Controllers:
    """Reacts to changes (`state.Reaction`)."""

    def __init__(self, store: BranchStore) -> None:
        self._store = store

    def __call__(self, old: Object | None, new: Object | None) -> None:
        if isinstance(new, Pod):
            if old is None and not new.spec.node_name:
                self._make_claims(new)
        elif new is None and isinstance(old, Pod):
            self.pod_deleted(old)
        elif isinstance(new, PersistentVolumeClaim):
            self._claim_changed(new)
        elif isinstance(new, PersistentVolume):
            self._volume_changed(new)

    # Pods

    def pod_deleted(self, pod: Pod) -> None:
        """Frees the resource claims of a pod, and deletes those that were created for it."""
        names = {status.resource_claim_name for status in pod.status.resource_claim_statuses}
        names.update(entry.resource_claim_name for entry in pod.spec.resource_claims)
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            names.add(extended.resource_claim_name)
        for name in filter(None, names):
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

    def count_eviction(self, pod: Pod) -> None:
        """Budgets that select the pod allow one eviction fewer."""
        for budget in list(self._store.all(PodDisruptionBudget)):
            allowed = budget.status.disruptions_allowed
            if allowed > 0 and _selects(budget, pod):
                status = replace(budget.status, disruptions_allowed=allowed - 1)
                self._store.update(replace(budget, status=status))

    def _make_claims(self, pod: Pod) -> None:
        """The claims that a pod gets from ResourceClaimTemplates."""
        known = {status.name for status in pod.status.resource_claim_statuses}
        made: list[PodResourceClaimStatus] = []
        for entry in pod.spec.resource_claims:
            template_name = entry.resource_claim_template_name
            if not template_name or entry.name in known:
                continue
            template = self._store.find(ResourceClaimTemplate, template_name, pod.namespace)
            if template is None:
                continue
            owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
            claim = self._store.create(
                ResourceClaim(
                    metadata=ObjectMeta(
                        namespace=pod.namespace,
                        generate_name=f"{pod.name}-{entry.name}-",
                        labels=template.spec.metadata.labels,
                        owner_references=(owner,),
                    ),
                    spec=template.spec.spec,
                )
            )
            made.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=claim.name))
        if made:
            status = replace(pod.status, resource_claim_statuses=(*pod.status.resource_claim_statuses, *made))
            self._store.update(replace(pod, status=status))

    # Volumes

    def _volume_changed(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None:
            return
        claim = self._store.find(PersistentVolumeClaim, reference.name, reference.namespace)
        if claim is not None and not claim.spec.volume_name and volume.is_for(claim):
            self._bind(claim, volume)

    def _claim_changed(self, claim: PersistentVolumeClaim) -> None:
        node_name = claim.annotations.get(SELECTED_NODE_ANNOTATION)
        if claim.spec.volume_name or not node_name:
            return
        storage_class = self._store.find(StorageClass, claim.class_name)
        node = self._store.find(Node, node_name)
        if storage_class is not None and node is not None:
            self._store.create(_new_volume(claim, storage_class, node))  # and `_volume_changed` binds it

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


def _new_volume(claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node) -> PersistentVolume:
    name = f"pvc-{claim.uid}"
    expressions = (e for term in storage_class.allowed_topologies for e in term.match_label_expressions)
    keys = list(dict.fromkeys(expression.key for expression in expressions)) or [ZONE]
    reach = tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(node.labels[key],))
        for key in keys
        if key in node.labels
    )
    terms = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=reach),))
    return PersistentVolume(
        metadata=ObjectMeta(name=name),
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
