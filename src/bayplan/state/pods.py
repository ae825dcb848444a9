"""Pods as columns: one slot for each pod that is on a node or nominated to one.

What preemption and other hypotheses need of many pods at once is in columns; everything else is read from the
pod itself. A nominated pod has a slot too (`assigned` is False), so that a hypothesis is always "these slots
removed, those added".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.api.saturation import MAX_NANOS, saturated_nanos
from bayplan.state.interning import IdColumn
from bayplan.state.pod_info import PodInfo
from bayplan.state.table import Column, Table

NOT_STARTED: Final = MAX_NANOS + 1
"""Start time of a pod without one: it counts as started later than any other."""


def start_nanos(pod: Pod) -> int:
    """When the pod started, in nanoseconds since the epoch."""
    started = pod.status.start_time
    return NOT_STARTED if started is None else saturated_nanos(started)


class PodTable(Table):
    """Columns over slots.

    | column | unit | meaning |
    |---|---|---|
    | assigned | bool | on its row |
    | nominated | bool | nominated to its row, not assigned yet |
    | row | node row | where it is, or would be |
    | position | index | its place in the row's list of pods |
    | priority | | spec.priority |
    | start | ns | when it started |
    | label_set | id | its labels and namespace |
    | terms | id | which (anti-)affinity terms it carries |
    | terminating | bool | being deleted |
    | requests(r) | as the resource | its request of a resource |
    """

    def __init__(self) -> None:
        super().__init__()
        self.assigned = self.column(np.bool_, False)
        self.nominated = self.column(np.bool_, False)
        self.row = self.column(np.intp, 0)
        self.position = self.column(np.int64, 0)
        self.priority = self.column(np.int64, 0)
        self.start = self.column(np.int64, NOT_STARTED)
        self.label_set = self.column(np.intp, 0)
        self.terms = self.column(np.intp, 0)
        self.terminating = self.column(np.bool_, False)
        self.pod: list[Pod | None] = []
        self.info: list[PodInfo | None] = []
        self.large: set[int] = set()
        """Slots of pods with a large request: sums that include them may not fit into a column."""
        self._requests: dict[str, Column] = {}
        for resource in ("cpu", "memory", "ephemeral-storage"):
            self.requests(resource)

    def requests(self, resource: str) -> Column:
        column = self._requests.get(resource)
        if column is None:
            column = self._requests[resource] = self.column(np.int64, 0)
        return column

    def add(self, pod: Pod, info: PodInfo, row: int, assigned: bool, position: int) -> int:
        slot = self.take_row()
        if slot == len(self.pod):
            self.pod.append(pod)
            self.info.append(info)
        else:
            self.pod[slot] = pod
            self.info[slot] = info
        (self.assigned if assigned else self.nominated).cell[slot] = True
        self.row.cell[slot] = row
        self.position.cell[slot] = position
        self.label_set.cell[slot] = info.label_set.id
        self.terms.cell[slot] = info.terms.id
        # A free slot has the values of most new pods.
        if pod.spec.priority:
            self.priority.cell[slot] = pod.spec.priority
        if pod.status.start_time is not None:
            self.start.cell[slot] = start_nanos(pod)
        if pod.is_terminating:
            self.terminating.cell[slot] = True
        for _, requests, amount in info.counted:
            requests.cell[slot] = amount
        if info.is_large:
            self.large.add(slot)
        return slot

    def add_all(
        self, pods: Sequence[Pod], infos: Sequence[PodInfo], rows: IdColumn, positions: Sequence[int]
    ) -> range:
        """The same for many assigned pods, with every column written once."""
        slots = self.take_rows(len(pods))
        self.pod += pods
        self.info += infos
        here = slice(slots.start, slots.stop)
        self.assigned.array[here] = True
        self.row.array[here] = rows
        self.position.array[here] = positions
        self.label_set.array[here] = [info.label_set.id for info in infos]
        self.terms.array[here] = [info.terms.id for info in infos]
        self.priority.array[here] = [pod.spec.priority or 0 for pod in pods]
        self.start.array[here] = [start_nanos(pod) for pod in pods]
        self.terminating.array[here] = [pod.is_terminating for pod in pods]
        for slot, info in zip(slots, infos, strict=True):
            for _, requests, amount in info.counted:
                requests.cell[slot] = amount
            if info.is_large:
                self.large.add(slot)
        return slots

    def info_of(self, slot: int) -> PodInfo:
        """The PodInfo of a slot in use."""
        info = self.info[slot]
        assert info is not None
        return info

    def remove(self, slot: int) -> None:
        self.pod[slot] = None
        self.info[slot] = None
        self.large.discard(slot)
        self.free_row(slot)
