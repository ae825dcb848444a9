"""Binds a pod's volumes: writes what VolumeBinding decided, and waits until it has happened.

    write volumes, then claims ─► check every second ── all bound ──────────────────► None
          │ error (also 409)                │ not yet ── after bindTimeoutSeconds ─► failure
          ▼                                 ▼ cannot succeed any more
       failure                           failure: node, pod, claim or volume deleted, claimRef reset,
                                         volume not accessible from the node, provisioner gave up

The PV controller binds claims to the volumes that name them, provisioners create volumes for claims that name
a node. A provisioner that fails removes the node's name from the claim, so that the pod is scheduled again.
Writes are not reverted (the next attempt uses them); Unreserve reverts assumptions.

Only objects that the API server has sent are read, never assumed ones.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bayplan.api.meta import NodeSelector, Object, version_number
from bayplan.api.node import Node
from bayplan.api.node_selectors import terms_match
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    SELECTED_NODE_ANNOTATION,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    TranslationError,
    in_tree_plugin,
    migrated_affinity,
    migrated_plugins,
)
from bayplan.errors import APIError, BayplanError
from bayplan.framework.binders import VolumePlan
from bayplan.framework.status import Status, failure
from bayplan.scheduler.context import Context
from bayplan.state.objects import Objects
from bayplan.state.volume_binding import reach

POLL_SECONDS: Final = 1.0
"""Interval between polls, and before the first one."""

TIMED_OUT: Final = "context deadline exceeded"
NO_NODE: Final = 'failed to get node "{node}": node "{node}" not found'
NO_POD: Final = 'pod does not exist any more: pod "{pod}" not found'
NOT_FOUND: Final = 'failed to check {what}: {kind} "{key}" not found'
AFFINITY_MISMATCH: Final = (
    'pv "{volume}" node affinity doesn\'t match node "{node}": no matching NodeSelectorTerms'
)
CLAIM_REF_RESET: Final = 'ClaimRef got reset for pv "{volume}"'
SELECTED_NODE_RESET: Final = 'selectedNode annotation reset for PVC "{claim}"'
NOT_PROVISIONED: Final = 'provisioning failed for PVC "{claim}"'


class NotBoundError(BayplanError):
    """The volumes will not be bound as planned."""


class ClusterVolumeBinder:
    """Executes plans on the scheduler's cluster (`framework.binders.VolumeBinder`)."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, timeout_seconds: float) -> Status | None:
        try:
            written = await self._write(plan)
            await self._until_bound(pod, node_name, written, timeout_seconds)
        except APIError as error:
            self._context.metrics.volume_error("bind")
            return failure(str(error))
        except NotBoundError as error:
            self._context.metrics.volume_error("bind")
            return failure(f"binding volumes: {error}")
        return None

    async def _write(self, plan: VolumePlan) -> VolumePlan:
        """Writes one after the other. Returns the objects in the server's version."""
        volumes: list[PersistentVolume] = []
        for volume in plan.volumes:
            answer = await self._context.api.update(volume)
            assert isinstance(answer, PersistentVolume)
            volumes.append(answer)
        claims: list[PersistentVolumeClaim] = []
        for claim in plan.claims:
            changed = await self._context.api.update(claim)
            assert isinstance(changed, PersistentVolumeClaim)
            claims.append(changed)
        return VolumePlan(tuple(volumes), tuple(claims))

    async def _until_bound(
        self, pod: Pod, node_name: str, written: VolumePlan, timeout_seconds: float
    ) -> None:
        loop = self._context.loop
        end = loop.time() + timeout_seconds
        next_poll = loop.time() + POLL_SECONDS
        while next_poll < end:
            await asyncio.sleep(next_poll - loop.time())
            if self._are_bound(pod, node_name, written):
                return
            next_poll = max(next_poll + POLL_SECONDS, loop.time())
        await asyncio.sleep(max(end - loop.time(), 0.0))
        raise NotBoundError(TIMED_OUT)

    def _are_bound(self, pod: Pod, node_name: str, written: VolumePlan) -> bool:
        """Whether everything is bound. Raises NotBoundError if it cannot happen any more."""
        objects = self._context.cluster.objects
        nodes = self._context.cluster.nodes
        node = nodes.node[nodes.row_of[node_name]] if node_name in nodes.row_of else None
        if node is None:
            raise NotBoundError(NO_NODE.format(node=node_name))
        latest = self._context.pods.latest(pod)
        if latest is None or latest.uid != pod.uid:
            raise NotBoundError(NO_POD.format(pod=pod.name))
        return all(_is_bound(volume, objects, node) for volume in written.volumes) and all(
            _is_provisioned(claim, objects, node) for claim in written.claims
        )


def _is_bound(written: PersistentVolume, objects: Objects, node: Node) -> bool:
    """Whether a volume that existed before is bound to its claim."""
    volume = objects.of(PersistentVolume).get(written.name)
    if volume is None:
        raise _missing("binding", written)
    reference = written.spec.claim_ref
    assert reference is not None
    claim = objects.of(PersistentVolumeClaim).get(reference.name, reference.namespace)
    if claim is None:
        key = f"{reference.namespace}/{reference.name}"
        raise NotBoundError(NOT_FOUND.format(what="binding", kind=_plural(PersistentVolumeClaim), key=key))
    if _is_older(volume, written):
        return False
    try:
        _check_node_affinity(volume, objects, node)
    except TranslationError as error:
        raise NotBoundError(f"failed to translate pv to csi: could not translate pv: {error}") from error
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        raise NotBoundError(CLAIM_REF_RESET.format(volume=volume.name))
    return claim.is_fully_bound


def _is_provisioned(written: PersistentVolumeClaim, objects: Objects, node: Node) -> bool:
    """Whether a claim has a volume that was provisioned for it, and that the node can use."""
    claim = objects.of(PersistentVolumeClaim).get(written.name, written.namespace)
    if claim is None:
        raise _missing("provisioning pvc", written)
    if _is_older(claim, written):
        return False
    if not claim.annotations:
        raise NotBoundError(SELECTED_NODE_RESET.format(claim=claim.name))
    if claim.annotations.get(SELECTED_NODE_ANNOTATION) != node.name:
        raise NotBoundError(NOT_PROVISIONED.format(claim=claim.name))
    if claim.spec.volume_name:
        volume = objects.of(PersistentVolume).get(claim.spec.volume_name)
        if volume is None:
            return False  # the watch has not delivered it yet
        try:
            _check_node_affinity(volume, objects, node)
        except TranslationError as error:
            raise NotBoundError(f"could not translate pv: {error}") from error
    return claim.is_fully_bound


def _check_node_affinity(volume: PersistentVolume, objects: Objects, node: Node) -> None:
    """Labels of nodes and node affinity of volumes may have changed since the node was chosen."""
    required = _required_affinity(volume, objects.of(CSINode).get(node.name))
    if required is not None and not terms_match(reach(required), node.labels, node.name):
        raise NotBoundError(AFFINITY_MISMATCH.format(volume=volume.name, node=node.name))


def _required_affinity(volume: PersistentVolume, csi_node: CSINode | None) -> NodeSelector | None:
    plugin = in_tree_plugin(volume.spec)
    if plugin is not None and csi_node is not None and plugin.name in migrated_plugins(csi_node):
        return migrated_affinity(plugin, volume)
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


def _is_older(shown: Object, written: Object) -> bool:
    """Whether the watch has not delivered our own write yet; False if versions cannot be compared."""
    ours = version_number(written.metadata.resource_version)
    theirs = version_number(shown.metadata.resource_version)
    return ours is not None and theirs is not None and theirs < ours


def _missing(what: str, item: Object) -> NotBoundError:
    return NotBoundError(NOT_FOUND.format(what=what, kind=_plural(type(item)), key=item.key))


def _plural(kind: type[Object]) -> str:
    return f"{kind.__name__.lower()}s"
