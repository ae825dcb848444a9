"""GpuSharing: pods that use a part of a GPU, or several whole ones.

Filter rejects nodes without enough free devices, Reserve chooses the devices, and the binding writes them
into an annotation of the pod, from which a device plugin (or bayplan, after a restart) reads them. This class
scores nothing; its subclasses are the policies, of which a profile enables one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np

from bayplan.plugin import (
    CPU,
    SKIP,
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    Node,
    NodeColumns,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    ReservePlugin,
    Resource,
    Status,
    annotate_binding,
    event_with_hint,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.objects import fit_requests
from bayplan.plugins.library.gpu_sharing.devices import GpuDevices, amounts_of, device_count
from bayplan.plugins.library.gpu_sharing.fragmentation import IntArray
from bayplan.plugins.library.gpu_sharing.policies import best_fit_devices, enough_devices
from bayplan.plugins.library.gpu_sharing.request import (
    GPU_INDEX,
    GPU_MODEL,
    NO_GPU,
    Devices,
    GpuRequest,
    InvalidRequestError,
    gpu_request,
    index_text,
    valid_request,
)

TOO_FEW: Final = "node(s) had too few GPUs"
NOT_FREE: Final = "node(s) didn't have enough free GPUs"
OTHER_MODEL: Final = "node(s) had other GPU models"
TAKEN: Final = "the GPUs of node {node} were taken meanwhile"

REQUEST: Final = "GpuSharing request"
"""The key of the request in the state."""


class GpuDemand(NamedTuple):
    """What the results for a pod depend on."""

    cpu_milli: int
    gpus: GpuRequest
    problem: str = ""
    """Why the request is invalid."""


def gpu_demand(pod: Pod) -> GpuDemand:
    """A function for `Dependencies`: pods that request the same cpu and GPUs share results."""
    cpu_milli = fit_requests(pod).get(CPU, 0)
    try:
        return GpuDemand(cpu_milli, gpu_request(pod))
    except InvalidRequestError as error:
        return GpuDemand(cpu_milli, NO_GPU, str(error))


class GpuSharing(Plugin, PreFilterPlugin, FilterPlugin, ReservePlugin):
    """Filters by devices, and assigns them by best fit."""

    name: ClassVar = "GpuSharing"
    depends_on: Dependencies | None = Dependencies.of(gpu_demand, usage=True)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changes = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL
        return (
            event_with_hint(Resource.POD, Action.DELETE, self.pod_change_helps),
            event_with_hint(Resource.NODE, changes, self.node_change_helps),
        )

    def pod_change_helps(self, pod: Pod, old: Pod, new: Pod | None) -> bool:
        """A pod with GPUs was deleted that was assigned or nominated to a node."""
        has_node = bool(old.spec.node_name or old.status.nominated_node_name)
        return has_node and valid_request(old).count > 0

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """The node has enough devices of a suitable model, which it did not have before."""
        request = valid_request(pod)
        return _suits(new, request) and (
            old is None or not _suits(old, request) or device_count(new) > device_count(old)
        )

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        demand = gpu_demand(pod)
        if demand.problem:
            return unresolvable(demand.problem)
        if not demand.gpus.count:
            return SKIP
        state.write(REQUEST, demand.gpus)
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        request: GpuRequest = state.read(REQUEST)
        table = GpuDevices.of(nodes)
        has_devices = table.count(nodes) >= request.count
        # A mask without a row costs as much as any other, and most are.
        if not has_devices.all():
            yield Reject(~has_devices, unresolvable(TOO_FEW))
        if request.models:
            other = has_devices & ~nodes.label(GPU_MODEL).isin(request.models)
            yield Reject(other, unresolvable(OTHER_MODEL))
        occupied = has_devices & ~enough_devices(table.free(nodes), request)
        if occupied.any():
            yield Reject(occupied, unschedulable(NOT_FREE))

    # Devices

    def choose_devices(self, pod: Pod, request: GpuRequest, node: NodeColumns, free: IntArray) -> Devices:
        """The devices for a pod on its node (one row) with this much free; none if it is not enough."""
        return best_fit_devices(free[0], request)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        request = gpu_request(pod)
        if not request.count:
            return None
        cluster = self.handle.cluster
        node = NodeColumns(cluster, np.array([cluster.nodes.row_of[node_name]], dtype=np.intp))
        table = GpuDevices.of(cluster)
        devices = self.choose_devices(pod, request, node, table.free_for(pod, node))
        if not devices:
            return unschedulable(TAKEN.format(node=node_name))
        table.reserve(pod, amounts_of(devices, request))
        annotate_binding(state, {GPU_INDEX: index_text(devices)})
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        if valid_request(pod).count:
            GpuDevices.of(self.handle.cluster).unreserve(pod)


def _suits(node: Node, request: GpuRequest) -> bool:
    model = node.labels.get(GPU_MODEL)
    return device_count(node) >= request.count and (not request.models or model in request.models)
