"""What controllers of a cluster do about scheduling, in response to changes of a what-if cluster.

| controller | here |
|---|---|
| owners of pods | a pod that is evicted or displaced is created again, pending |
| PersistentVolume controller, provisioners | claims get the volume that the scheduler chose, or a new one |
| resource claim controller | pods get claims from their templates; claims of deleted pods are freed |
| drivers of devices | what has to be prepared before a pod is bound (binding conditions) is ready at once |
| ephemeral volume controller | pods get claims for generic ephemeral volumes, which end with the pod |
| disruption controller | a budget allows one eviction fewer for every pod that is evicted |

Volumes are in `volumes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from bayplan.answers.whatif.state import BranchStore
from bayplan.answers.whatif.volumes import VolumeControllers
from bayplan.api.in_tree_volumes import REGION, ZONE
from bayplan.api.meta import Condition, Object, ObjectMeta, OwnerReference
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodResourceClaimStatus
from bayplan.api.resource_claims import AllocatedDeviceStatus, ResourceClaim, ResourceClaimTemplate
from bayplan.api.selectors import compile_selector
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.binders import results_with_conditions

_PREPARED: Final = (
    "driver {driver} has to prepare device {device} of ResourceClaim {claim} before the pod is bound: "
    "evaluated as if it succeeds at once"
)
_COPIED_LABELS: Final = (ZONE, REGION)
_PER_NODE: Final = frozenset(("DaemonSet", "Node"))
"""Kinds of owners that have one pod on each node: DaemonSets, and kubelets with static pods."""


def belongs_to_node(pod: Pod) -> bool:
    """Whether the pod is of a DaemonSet or static: a drain leaves it, and it never moves to another node."""
    owner = pod.metadata.controller()
    return owner is not None and owner.kind in _PER_NODE


def is_recreated(pod: Pod) -> bool:
    """Whether a controller creates the pod again, perhaps on another node, if it is deleted."""
    return pod.metadata.controller() is not None and not belongs_to_node(pod)


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
    names = [one.resource_claim_name for one in pod.spec.resource_claims]
    names += [one.resource_claim_name for one in pod.status.resource_claim_statuses]
    for name in filter(None, names):
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
