"""NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node.

The node's CSINode has the limit for each driver. A volume counts once however many pods use it, and as long
as it is attached even if no pod uses it any more. A volume to be provisioned for a claim counts as well, and
so do in-tree volumes, as their CSI drivers' (`state/volumes.py`).

A CSIDriver may also require that it is installed on the node (gate VolumeLimitScaling).

https://kubernetes.io/docs/concepts/storage/storage-limits/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.plugin import (
    SKIP,
    Action,
    BoolColumn,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    NodeColumns,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    Status,
    derived,
    event_with_hint,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.preemption import Hypothesis
from bayplan.plugin.storage import (
    NO_LIMIT,
    CSIDriver,
    CSINode,
    CSINodes,
    InlineVolume,
    NodeVolumes,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    VolumeId,
    VolumeProblem,
    VolumeUses,
    in_tree_plugin,
    limited_volumes,
    wanted_volumes,
)

REASON: Final = "node(s) exceed max volume count"
NOT_INSTALLED: Final = "{driver} CSI driver is not installed on the node"
GATE: Final = "VolumeLimitScaling"

Wanted = frozenset[VolumeId] | VolumeProblem


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes that the pod would use on nodes with a CSINode and on those without."""

    with_csi_node: Wanted
    without_csi_node: Wanted


class NodeVolumeLimits(Plugin, PreFilterPlugin, FilterPlugin):
    """Rejects nodes to which not all of the pod's volumes can be attached."""

    depends_on = Dependencies.of(
        "volumes",
        usage=True,
        kinds=(PersistentVolumeClaim, PersistentVolume, StorageClass, CSIDriver, CSINode, VolumeAttachment),
    )

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.CSI_NODE, Action.ADD),
            event_with_hint(Resource.CSI_NODE, Action.UPDATE, self.csi_node_change_helps),
            event_with_hint(Resource.POD, Action.DELETE, self.deleted_pod_helps),
            event_with_hint(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, self.added_claim_helps),
            event_with_hint(Resource.VOLUME_ATTACHMENT, Action.DELETE, self.deleted_attachment_helps),
        ]

    def csi_node_change_helps(self, pod: Pod, old: CSINode, new: CSINode) -> bool:
        """The limit of a driver increased."""
        before = _limits(old)
        return any(limit > before.get(driver, 0) for driver, limit in _limits(new).items())

    def deleted_pod_helps(self, pod: Pod, old: Pod, new: None) -> bool:
        """A pod was removed that had a node, or was nominated to one, and used a volume."""
        has_node = bool(old.spec.node_name or old.status.nominated_node_name)
        return has_node and bool(limited_volumes(old))

    def added_claim_helps(self, pod: Pod, old: None, new: PersistentVolumeClaim) -> bool:
        """It is one of the pod's claims."""
        names = (pod.claim_name(volume) for volume in pod.spec.volumes)
        return new.namespace == pod.namespace and new.name in names

    def deleted_attachment_helps(self, pod: Pod, old: VolumeAttachment, new: None) -> bool:
        """A volume was detached, and the pod has one that may be of the same driver."""
        if any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes):
            return True
        plugins = [in_tree_plugin(volume) for volume in pod.spec.volumes]
        return any(plugin is not None and plugin.driver == old.spec.attacher for plugin in plugins) or any(
            isinstance(volume, InlineVolume) and volume.problem for volume in limited_volumes(pod)
        )

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        volumes = limited_volumes(pod) if pod.spec.volumes else ()
        if not volumes:
            return SKIP
        objects = nodes.cluster.objects
        state.write(
            self.name,
            PodVolumes(
                wanted_volumes(objects, pod, volumes, has_csi_node=True),
                wanted_volumes(objects, pod, volumes, has_csi_node=False),
            ),
        )
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        pod_volumes: PodVolumes = state.read(self.name)
        csi_nodes = derived(nodes.cluster, CSINodes)
        has_csi_node = nodes.of(csi_nodes.present)
        if isinstance(pod_volumes.without_csi_node, VolumeProblem):
            yield _problem_reject(~has_csi_node, pod_volumes.without_csi_node)
        if isinstance(pod_volumes.with_csi_node, VolumeProblem):
            yield _problem_reject(has_csi_node, pod_volumes.with_csi_node)
        is_open = np.ones(len(nodes), dtype=np.bool_)
        if GATE in self.release.gates:
            for driver, missing in self._missing_drivers(pod_volumes, csi_nodes, nodes):
                yield Reject(is_open & missing, unschedulable(NOT_INSTALLED.format(driver=driver)))
                is_open &= ~missing
        if isinstance(pod_volumes.with_csi_node, frozenset) and pod_volumes.with_csi_node:
            yield from self._full(pod_volumes.with_csi_node, csi_nodes, nodes, is_open)

    def _missing_drivers(
        self, pod_volumes: PodVolumes, csi_nodes: CSINodes, nodes: NodeColumns
    ) -> Iterator[tuple[str, BoolColumn]]:
        """The drivers that have to be installed, each with the rows where it is not.

        On nodes with a CSINode the pod's volumes may be of more drivers, because in-tree volumes are.
        """
        drivers = nodes.cluster.objects.of(CSIDriver)
        has_csi_node = nodes.of(csi_nodes.present)
        for wanted, rows in (
            (pod_volumes.with_csi_node, has_csi_node),
            (pod_volumes.without_csi_node, ~has_csi_node),
        ):
            if isinstance(wanted, VolumeProblem):
                continue
            for name in sorted({volume.driver for volume in wanted}):
                driver = drivers.get(name)
                if driver is not None and driver.spec.prevent_pod_scheduling_if_missing:
                    installed = csi_nodes.installed(name)
                    yield name, rows if installed is None else rows & ~nodes.of(installed)

    def _full(
        self, wanted: frozenset[VolumeId], csi_nodes: CSINodes, nodes: NodeColumns, is_open: BoolColumn
    ) -> Iterator[Reject]:
        """Rows among the open ones that can take no more volumes of some driver."""
        uses = derived(nodes.cluster, VolumeUses)
        full = np.zeros(len(nodes), dtype=np.bool_)
        by_driver = _by_driver(wanted)
        for driver, volumes in by_driver.items():
            limit, count = csi_nodes.limit(driver), uses.count(driver)
            if limit is None:
                continue
            limits = nodes.of(limit)
            further = np.full(len(nodes), len(volumes))
            for volume in volumes:
                further[nodes.positions_of(uses.rows_using(volume))] -= 1
            attached = 0 if count is None else nodes.of(count)
            full |= (limits != NO_LIMIT) & (further > 0) & (attached + further > limits)
        problems = {
            int(position): text
            for row, text in uses.problems.items()
            for position in nodes.positions_of((row,))
        }
        if isinstance(nodes, Hypothesis):
            for position, volumes_there in uses.in_hypothesis(nodes).items():
                limits_there = csi_nodes.limits_of(int(nodes.rows[position]))
                full[position] = any(
                    _exceeds(limits_there.get(driver), volumes_there, driver, volumes)
                    for driver, volumes in by_driver.items()
                )
                problems[position] = volumes_there.problem
        yield Reject(full & is_open, unschedulable(REASON))
        is_limited = nodes.of(csi_nodes.is_limited)
        for position, text in problems.items():
            if text and is_limited[position] and is_open[position]:
                yield _problem_reject(np.arange(len(nodes)) == position, VolumeProblem(text))


def _exceeds(limit: int | None, volumes_there: NodeVolumes, driver: str, volumes: list[VolumeId]) -> bool:
    """Whether a node with these volumes can take no more of the driver's."""
    further = sum(volume not in volumes_there.used for volume in volumes)
    return limit is not None and further > 0 and volumes_there.counts.get(driver, 0) + further > limit


def _by_driver(volumes: frozenset[VolumeId]) -> dict[str, list[VolumeId]]:
    found: dict[str, list[VolumeId]] = {}
    for volume in volumes:
        found.setdefault(volume.driver, []).append(volume)
    return found


def _problem_reject(mask: BoolColumn, problem: VolumeProblem) -> Reject:
    # A missing claim may be created later; everything else is a configuration error.
    missing = problem.is_missing_claim
    return Reject(mask, unresolvable(problem.text) if missing else failure(problem.text))


def _limits(csi_node: CSINode) -> dict[str, int]:
    """The number of volumes that each driver attaches; 0 if it has no limit."""
    return {
        driver.name: (driver.allocatable.count or 0) if driver.allocatable is not None else 0
        for driver in csi_node.spec.drivers
    }
