"""PostFilter of DynamicResources: frees claims whose devices tie a pod to nodes that do not fit.

A claim is freed if no other pod or group uses it. The next attempt may then allocate other devices to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from bayplan.plugin import Cluster, FilterOutcome, Handle, NodeColumns, Pod
from bayplan.plugin.devices import ClaimBinder, ResourceClaim
from bayplan.plugin.groups import GroupOutcome
from bayplan.plugin.preemption import Diagnosis
from bayplan.plugins.dynamic_resources.claims import PodClaims
from bayplan.plugins.dynamic_resources.groups import GATE, reserved_claims

REASON_NOT_AVAILABLE: Final = "resourceclaim not available on the node"
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
GROUP_CLAIMS_FREED: Final = "deallocation and deletion of ResourceClaims completed"
GROUP_CLAIM_DEALLOCATED: Final = "deallocation of PodGroup ResourceClaim completed"
GROUP_CLAIM_UNRESERVED: Final = "ResourceClaim unreserved for PodGroup"
STILL_UNSCHEDULABLE: Final = "still not schedulable"


class Deallocation:
    """Frees claims of a pod, or of the members of a group, and says what it did.

    Args:
        plugin: the name of the plugin whose rejections count.
        binder: gives what writes claims, or None: nothing is written. Called only if a claim is to be freed.
    """

    def __init__(self, plugin: str, handle: Handle, binder: Callable[[], ClaimBinder | None]) -> None:
        self._plugin = plugin
        self._handle = handle
        self._binder = binder

    def for_pod(self, pod: Pod, claims: PodClaims, outcome: FilterOutcome) -> tuple[str, ...]:
        """Frees one claim of a pod, if that may help. Returns the reasons for the status."""
        return self._free_one(pod, claims, self._unavailable(claims, outcome.cluster, outcome.diagnosis))

    def for_group(self, outcome: GroupOutcome) -> str:
        """Frees a claim of each member, or one of the group, if that may help. Returns the reason."""
        cluster, group = outcome.cluster, outcome.group
        unavailable: list[tuple[Pod, ResourceClaim]] = []
        all_freed = True
        for member in outcome.members:
            if member.state is None:
                continue
            claims: PodClaims | None = member.state.get(self._plugin)
            freed: tuple[str, ...] = ()
            if claims is not None:
                here = self._unavailable(claims, cluster, member.diagnosis)
                unavailable += [(member.pod, claim) for claim in here]
                freed = self._free_one(member.pod, claims, here)
            all_freed = all_freed and freed in ((DEALLOCATED,), (DELETED,))
        assert cluster.groups is not None
        may_free_own = GATE in self._handle.release.gates and not cluster.groups[group.key].scheduled
        if all_freed or not may_free_own or not outcome.pods:
            return GROUP_CLAIMS_FREED
        for pod, claim in unavailable:
            if all(consumer.uid == group.uid for consumer in claim.status.reserved_for):
                self._deallocate(pod, claim)
                return GROUP_CLAIM_DEALLOCATED
        for claim in reserved_claims(cluster, group):
            if (binder := self._binder()) is not None:
                binder.unreserve(outcome.pods[0], claim, group.uid)
            return GROUP_CLAIM_UNRESERVED
        return GROUP_CLAIMS_FREED

    def _free_one(self, pod: Pod, claims: PodClaims, unavailable: list[ResourceClaim]) -> tuple[str, ...]:
        self._handle.random.shuffle(unavailable)
        demand = claims.demand
        for claim in unavailable:
            if claims.is_extended(claim):
                break
            if all(consumer.uid == pod.uid for consumer in claim.status.reserved_for):
                self._deallocate(pod, claim)
                return (DEALLOCATED,)
        if demand is not None and not demand.is_in_memory:
            if (binder := self._binder()) is not None:
                binder.delete(pod, demand.claim)
            return (DELETED,)
        return () if self._handle.release.devices.post_filter_without_message else (STILL_UNSCHEDULABLE,)

    def _deallocate(self, pod: Pod, claim: ResourceClaim) -> None:
        """Writes nothing for a claim that only another member of the group would have been allocated."""
        if claim.status.allocation is not None and (binder := self._binder()) is not None:
            binder.deallocate(pod, claim)

    def _unavailable(
        self, claims: PodClaims, cluster: Cluster, diagnosis: Diagnosis | None
    ) -> list[ResourceClaim]:
        """The claims, as they are stored, because of which the plugin, and none before it, rejected a node.

        Without a diagnosis the pod found a node; its claims may not be available on others.
        """
        if diagnosis is None:
            rows = [cluster.order]
        else:
            rows = [
                rows
                for status, rows in diagnosis.statuses()
                if status.plugin == self._plugin and REASON_NOT_AVAILABLE in status.reasons
            ]
        if not rows:
            return []
        nodes = NodeColumns(cluster, np.concatenate(rows))
        return [claims.claims[allocated.index] for allocated, _ in claims.unavailable_claims(nodes)]
