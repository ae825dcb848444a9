"""VolumeBinding: a pod runs where its claims have their volumes, or can get them.

A bound claim restricts the pod to the nodes that its volume reaches. A claim whose class waits for its first
consumer gets a volume when the pod gets a node: the smallest free one that reaches the node or, if there is
none, one that is provisioned there, if the class allows it and the driver has capacity. Any other claim has
to be bound before its pod is scheduled.

When the node is chosen (Reserve), those decisions are assumed, so that no other pod gets the same volume
(`state/volume_binding.py`). PreBind writes them to the API server and waits until they have happened.

https://kubernetes.io/docs/concepts/storage/storage-classes/#volume-binding-mode
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from msgspec.structs import replace

from bayplan.plugin import (
    SKIP,
    Action,
    BoolColumn,
    Cluster,
    ClusterEventWithHint,
    Code,
    CycleState,
    Dependencies,
    FilterPlugin,
    Handle,
    IntColumn,
    LabelSelector,
    Lookup,
    NodeColumns,
    Plugin,
    Pod,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reject,
    ReservePlugin,
    Resource,
    ScorePlugin,
    SelectorError,
    Status,
    compile_selector,
    derived,
    event_with_hint,
    failure,
    unresolvable,
)
from bayplan.plugin.args import VolumeBindingArgs, shape_scores
from bayplan.plugin.objects import NodeSelector, ObjectReference, Objects, Operator, rows_matching_selector
from bayplan.plugin.storage import (
    ASSUMED_KINDS,
    BOUND_BY_CONTROLLER_ANNOTATION,
    MIGRATED_PLUGINS_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    BindsVolumes,
    CSIDriver,
    CSINode,
    CSINodes,
    CSIStorageCapacity,
    OutOfSyncError,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageRoom,
    TranslationError,
    VolumeOffers,
    VolumePlan,
    assume_object,
    claims_by_size,
    expected_volume,
    in_tree_plugin,
    match_volumes,
    migrated_affinity,
    restore_object,
    rows_reached,
    volume_limit,
)
from bayplan.plugins.volume_binding.claims import (
    PodClaims,
    bytes_to_check,
    capacity_scores,
    claims_of,
    class_of,
    selected_node,
)

REASON_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
REASON_NO_ROOM: Final = "node(s) did not have enough free storage"
REASON_LOST_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

BAD_SELECTOR: Final = "error creating internal label selector for claim: {claim}: {problem}"
BAD_VOLUME: Final = "could not translate pv: {problem}"
NO_BINDER: Final = "binding volumes: this scheduler has no API server to write to"

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class VolumeBinding(
    Plugin, PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    """Rejects nodes that the pod's volumes do not reach, or where its claims can get none."""

    skip_covers_binding: ClassVar = True
    args_type: ClassVar = VolumeBindingArgs
    pre_binds_in_parallel: ClassVar = True
    depends_on = Dependencies.of(
        "volumes",
        kinds=(
            PersistentVolumeClaim,
            PersistentVolume,
            StorageClass,
            CSINode,
            CSIDriver,
            CSIStorageCapacity,
            *ASSUMED_KINDS,
        ),
    )

    args: VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        # The configuration has a shape only if the gate is on.
        self._capacity_scores = shape_scores(self.args.shape) if self.args.shape else None

    # Queueing hints

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        added_or_updated = Action.ADD | Action.UPDATE
        return [
            event_with_hint(Resource.STORAGE_CLASS, added_or_updated, self.class_change_helps),
            event_with_hint(Resource.PERSISTENT_VOLUME_CLAIM, added_or_updated, self.claim_change_helps),
            event_with_hint(Resource.PERSISTENT_VOLUME, added_or_updated),
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            event_with_hint(Resource.CSI_NODE, added_or_updated, self.csi_node_change_helps),
            event_with_hint(Resource.CSI_DRIVER, Action.UPDATE, self.driver_change_helps),
            event_with_hint(Resource.CSI_STORAGE_CAPACITY, added_or_updated, self.capacity_change_helps),
        ]

    def class_change_helps(self, pod: Pod, old: StorageClass | None, new: StorageClass) -> bool:
        """A class was added, or allows volumes in more places."""
        return old is None or old.allowed_topologies != new.allowed_topologies

    def claim_change_helps(
        self, pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
    ) -> bool:
        """It is one of the pod's claims."""
        names = (pod.claim_name(volume) for volume in pod.spec.volumes)
        return new.namespace == pod.namespace and new.name in names

    def csi_node_change_helps(self, pod: Pod, old: CSINode | None, new: CSINode) -> bool:
        """A CSINode was added, or a plugin has migrated to CSI there."""
        key = MIGRATED_PLUGINS_ANNOTATION
        return old is None or old.annotations.get(key, "") != new.annotations.get(key, "")

    def driver_change_helps(self, pod: Pod, old: CSIDriver, new: CSIDriver) -> bool:
        """One of the pod's own drivers no longer requires a check of its capacity."""
        drivers = {volume.csi.driver for volume in pod.spec.volumes if volume.csi is not None}
        return new.name in drivers and bool(old.spec.storage_capacity) and not new.spec.storage_capacity

    def capacity_change_helps(
        self, pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity
    ) -> bool:
        """There is capacity, or more of it than before."""
        if old is None:
            return True
        before, now = volume_limit(old), volume_limit(new)
        return now is not None and (before is None or now > before)

    # Filtering

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        if not pod.spec.volumes:
            return SKIP
        claims = claims_of(nodes.cluster.objects, pod)
        if isinstance(claims, Status):
            return claims
        state.write(self.name, claims)
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        claims: PodClaims = state.read(self.name)
        # Evicting pods frees no volume and no storage, so preemption does not help.
        evaluated = np.ones(len(nodes), dtype=np.bool_)
        for reject in _out_of_reach(claims.bound, nodes):
            yield reject
            if reject.status.code is Code.ERROR:
                evaluated &= np.logical_not(reject.mask)
        if claims.delayed:
            yield from _without_volumes(claims.delayed, nodes, evaluated)

    # Scoring: by free capacity, if the gate StorageCapacityScoring is on

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return SKIP if self._capacity_scores is None else None

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        claims: PodClaims | None = state.get(self.name)
        if self._capacity_scores is None or claims is None or not claims.delayed:
            return np.zeros(len(nodes), dtype=np.int64)
        return capacity_scores(claims.delayed, nodes, self._capacity_scores)

    # Binding

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if not pod.spec.volumes:
            return None
        assert self.handle is not None
        objects = self.handle.cluster.objects
        plan = self._plan(pod, node_name)
        if isinstance(plan, Status):
            return plan
        for done, item in enumerate(plan.items):
            try:
                assume_object(objects, item)
            except OutOfSyncError as error:
                _revert_assumed(objects, plan.items[:done])
                return failure(str(error))
        state.write((self.name, pod.uid), plan)
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        assert self.handle is not None
        plan: VolumePlan | None = state.get((self.name, pod.uid))
        if plan is not None:
            _revert_assumed(self.handle.cluster.objects, plan.items)

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if not pod.spec.volumes:
            return SKIP
        plan: VolumePlan | None = state.get((self.name, pod.uid))
        return None if plan is not None and plan.items else SKIP

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        plan: VolumePlan | None = state.get((self.name, pod.uid))
        if plan is None or not plan.items:
            return None
        handle: object = self.handle
        if not isinstance(handle, BindsVolumes):
            return failure(NO_BINDER)
        return await handle.volumes.bind(pod, node_name, plan, float(self.args.bind_timeout_seconds))

    def _plan(self, pod: Pod, node_name: str) -> VolumePlan | Status:
        """What has to be written so that the pod can run on this node."""
        assert self.handle is not None
        cluster = self.handle.cluster
        claims = claims_of(cluster.objects, pod)
        if isinstance(claims, Status):
            return VolumePlan() if claims is SKIP else claims
        if not claims.delayed:
            return VolumePlan()
        row = cluster.nodes.row_of[node_name]
        node = NodeColumns(cluster, np.array([row], dtype=np.intp))
        unselected = claims_by_size(claim for claim in claims.delayed if selected_node(claim) is None)
        try:
            chosen = match_volumes(unselected, derived(cluster, VolumeOffers), node).at(0)
        except SelectorError as error:
            return failure(_bad_selector(error))
        matched = list(zip(unselected, chosen, strict=True))
        to_provision = [claim for claim in claims.delayed if selected_node(claim) is not None]
        to_provision += [claim for claim, volume in matched if volume is None]
        return VolumePlan(
            tuple(_bound_to(claim, volume) for claim, volume in matched if volume is not None),
            tuple(_provisioned_on(node_name, claim) for claim in to_provision),
        )


def _out_of_reach(claims: Sequence[PersistentVolumeClaim], nodes: NodeColumns) -> Iterator[Reject]:
    """Rows that the volume of a bound claim does not reach. The first such claim decides."""
    objects = nodes.cluster.objects
    undecided = np.ones(len(nodes), dtype=np.bool_)
    for claim in claims:
        volume = expected_volume(objects, claim.spec.volume_name)
        if volume is None:
            yield Reject(undecided, unresolvable(REASON_LOST_VOLUME))
            return
        affinity = volume.spec.node_affinity
        reached = rows_reached(nodes, affinity.required if affinity is not None else None)
        moved = _moved_to_csi(volume, nodes)
        if moved is not None and moved.any():
            plugin = in_tree_plugin(volume.spec)
            assert plugin is not None
            try:
                reached = np.where(moved, rows_reached(nodes, migrated_affinity(plugin, volume)), reached)
            except TranslationError as error:
                yield Reject(undecided & moved, failure(BAD_VOLUME.format(problem=error)))
                undecided = undecided & ~moved
        yield Reject(undecided & ~reached, unresolvable(REASON_AFFINITY))
        undecided = undecided & reached


def volume_affinity(volume: PersistentVolume, cluster: Cluster, row: int) -> NodeSelector | None:
    """The node affinity of a volume on one row, for explanations: the migrated one where its plugin is."""
    nodes = NodeColumns(cluster, np.array([row], dtype=np.intp))
    moved, plugin = _moved_to_csi(volume, nodes), in_tree_plugin(volume.spec)
    if moved is not None and plugin is not None and moved[0]:
        return migrated_affinity(plugin, volume)
    return None if volume.spec.node_affinity is None else volume.spec.node_affinity.required


def _moved_to_csi(volume: PersistentVolume, nodes: NodeColumns) -> BoolColumn | None:
    """Rows where the volume's in-tree plugin has migrated to CSI; None if it is not of such a plugin."""
    plugin = in_tree_plugin(volume.spec)
    if plugin is None:
        return None
    csi_nodes = derived(nodes.cluster, CSINodes)
    is_moved = Lookup(csi_nodes.plugin_sets, lambda plugins: plugin.name in plugins)
    moved: BoolColumn = is_moved(nodes.of(csi_nodes.migrated)) != 0
    return moved


def _without_volumes(
    claims: Sequence[PersistentVolumeClaim], nodes: NodeColumns, evaluated: BoolColumn
) -> Iterator[Reject]:
    """Rows, among those that are evaluated, where a claim can get no volume, neither a free one nor a new
    one."""
    here = evaluated.copy()
    for claim in claims:
        selected = selected_node(claim)
        if selected is not None:
            here &= nodes.is_named(selected)
    yield Reject(evaluated & ~here, unresolvable(REASON_NO_VOLUME))
    if not here.any():
        return
    unselected = claims_by_size(claim for claim in claims if selected_node(claim) is None)
    try:
        matches = match_volumes(unselected, derived(nodes.cluster, VolumeOffers), nodes)
    except SelectorError as error:
        yield Reject(here, failure(_bad_selector(error)))
        return
    # Each claim with the rows where a volume would have to be provisioned. The first failure decides.
    to_provision = [(claim, here) for claim in claims if selected_node(claim) is not None]
    to_provision += [(claim, here & matches.missing(place)) for place, claim in enumerate(unselected)]
    undecided = here
    for claim, rows in to_provision:
        open_rows = undecided & rows
        if not open_rows.any():
            continue
        allowed = provisioning_allowed(claim, nodes)
        yield Reject(open_rows & ~allowed, unresolvable(REASON_NO_VOLUME))
        room = has_room(claim, nodes)
        yield Reject(open_rows & allowed & ~room, unresolvable(REASON_NO_ROOM))
        undecided = undecided & ~(open_rows & ~(allowed & room))


def provisioning_allowed(claim: PersistentVolumeClaim, nodes: NodeColumns) -> BoolColumn:
    """Rows where the claim's class allows provisioning."""
    storage_class = class_of(claim, nodes)
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return np.zeros(len(nodes), dtype=np.bool_)
    if not storage_class.allowed_topologies:
        return np.ones(len(nodes), dtype=np.bool_)
    allowed = np.zeros(len(nodes), dtype=np.bool_)
    for term in storage_class.allowed_topologies:
        expressions = tuple(replace(e, operator=Operator.IN) for e in term.match_label_expressions)
        if expressions:
            try:
                selector = compile_selector(LabelSelector(match_expressions=expressions))
            except SelectorError:
                continue
            allowed |= rows_matching_selector(nodes, selector)
    return allowed


def has_room(claim: PersistentVolumeClaim, nodes: NodeColumns) -> BoolColumn:
    """Rows where the driver has capacity for the claim; all of them for drivers that do not report it."""
    wanted = bytes_to_check(claim, nodes)
    if wanted is None:
        return np.ones(len(nodes), dtype=np.bool_)
    return derived(nodes.cluster, StorageRoom).rows_with_room(nodes, claim.class_name, wanted)


def _bad_selector(error: SelectorError) -> str:
    return BAD_SELECTOR.format(claim=error.object_key, problem=error.problem)


def _bound_to(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolume:
    """The volume, bound to the claim. Unless a user did that before, it is marked as bound by the
    controller."""
    annotations = volume.annotations
    if not volume.is_for(claim):
        annotations = {BOUND_BY_CONTROLLER_ANNOTATION: "yes", **annotations}
    reference = ObjectReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        resource_version=claim.metadata.resource_version,
    )
    before = volume.spec.claim_ref
    if before is not None and volume.is_for(claim) and before.uid == claim.uid:
        reference = before
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=reference),
    )


def _provisioned_on(node_name: str, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    annotations = {**claim.annotations, SELECTED_NODE_ANNOTATION: node_name}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def _revert_assumed(objects: Objects, items: Sequence[PersistentVolume | PersistentVolumeClaim]) -> None:
    for item in items:
        restore_object(objects, item)
