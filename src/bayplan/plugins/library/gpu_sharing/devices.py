"""The devices of all nodes: how much of each is free, and which kinds of pods run there.

Which devices a pod uses is known from the annotation that is written with its binding; until the API server
has confirmed that, from what Reserve decided. Pods without either (bound by another scheduler) are counted
where best fit would put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayplan.plugin import Amounts, Node, NodeAmounts, NodeColumns, Pod
from bayplan.plugin.objects import value
from bayplan.plugins.library.gpu_sharing.fragmentation import IntArray
from bayplan.plugins.library.gpu_sharing.policies import best_fit_devices
from bayplan.plugins.library.gpu_sharing.request import (
    DEVICE_MILLI,
    GPU_COUNT,
    MAX_DEVICES,
    Devices,
    GpuRequest,
    annotated_devices,
    valid_request,
)


def device_count(node: Node) -> int:
    return min(max(value(node.status.allocatable.get(GPU_COUNT)), 0), MAX_DEVICES)


class PodDevices(NamedTuple):
    """What a pod requests, and the devices in its annotation; empty if it has none."""

    request: GpuRequest
    annotated: Devices


class GpuDevices(NodeAmounts[PodDevices]):
    """Thousandths of each device of each node."""

    def capacity(self, node: Node) -> Sequence[int]:
        return [DEVICE_MILLI] * device_count(node)

    def request(self, pod: Pod) -> PodDevices | None:
        request = valid_request(pod)
        return PodDevices(request, annotated_devices(pod, request)) if request.count else None

    def place(self, request: PodDevices, free: Amounts) -> Sequence[int]:
        wanted, devices = request
        if not devices or devices[-1] >= len(free):
            devices = best_fit_devices(free, wanted)
        return amounts_of(devices, wanted)

    def free_milli(self, nodes: NodeColumns) -> IntArray:
        """What is free of each device of these rows. 0 for devices that a node does not have, or that are
        overcommitted."""
        free: IntArray = np.maximum(self.free(nodes), 0)
        return free

    def count(self, nodes: NodeColumns) -> IntArray:
        """The number of devices of these rows."""
        count: IntArray = (self.capacity_of(nodes) > 0).sum(axis=1)
        return count

    def free_for(self, pod: Pod, nodes: NodeColumns) -> IntArray:
        """`free_milli` of the one row that a pod is assumed on, as if it were not there."""
        taken = self.taken_by(pod)
        free = self.free(nodes)
        found: IntArray = np.maximum(free if taken is None else free + taken, 0)
        return found


def amounts_of(devices: Devices, request: GpuRequest) -> list[int]:
    """What a pod takes of each device, up to the last one it has."""
    amounts = [0] * (devices[-1] + 1 if devices else 0)
    for device in devices:
        amounts[device] = request.milli
    return amounts


class GpuKinds(NodeAmounts[int]):
    """The number of pods of each kind (`GpuRequest.kind`) on each node.

    Nodes have none of these kinds, so what is left of them is the number of pods, negated.
    """

    def capacity(self, node: Node) -> Sequence[int]:
        return [0] * (device_count(node) + 1)

    def request(self, pod: Pod) -> int | None:
        request = valid_request(pod)
        return request.kind if request.count else None

    def place(self, request: int, free: Amounts) -> Sequence[int]:
        kind = min(request, len(free) - 1)
        return [0] * kind + [1]

    def pods(self, nodes: NodeColumns) -> IntArray:
        """One column for each kind."""
        pods: IntArray = -self.free(nodes)
        return pods
