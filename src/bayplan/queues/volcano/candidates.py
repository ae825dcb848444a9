"""The assigned pods as victims see them: their jobs, what they ask for, and in which order they go.

An index that is brought up to date when it is used (`state/derived.py`): the first pod or gang that asks for
victims pays for all pods, and each later one for the nodes that have changed. `preemption.py` chooses among
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api import volcano
from bayplan.api.pod import Pod
from bayplan.queues.records import created_at
from bayplan.queues.volcano.objects import amounts_of, job_name
from bayplan.queues.volcano.resources import Resources
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, Interner, SharedIds, distinct_ids

CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_UID_LENGTH: Final = 36
"""Of most uids."""


class JobId:
    """The number of a job, as long as the index has a pod of it."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


class JobPods:
    """The assigned pods of a cluster, by slot."""

    def __init__(self, cluster: Cluster) -> None:
        self.freshness = cluster.changes.freshness(rows=(cluster.changes.usage,))
        self.ids: SharedIds[str, JobId] = SharedIds()
        """By name of the job (`job_name`)."""
        self.shapes: list[Resources] = []
        """What pods ask for."""
        self._shape_ids: Interner[tuple[tuple[str, int], ...]] = Interner()
        self._pods: list[Pod | None] = []
        """Which pod a slot was read from."""
        self._job_of: list[JobId | None] = []
        self.job: IdColumn = np.zeros(0, dtype=np.intp)
        self.shape: IdColumn = np.zeros(0, dtype=np.intp)
        self.created: NDArray[np.float64] = np.zeros(0)
        self.is_preemptable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.is_critical: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.uid: NDArray[np.bytes_] = np.zeros(0, dtype=f"S{_UID_LENGTH}")

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        """Reads the pods of these rows that it does not know (`derived` calls it)."""
        table = cluster.pods
        self._grow(len(table.pod))
        known = self._pods
        for row in rows:
            for slot in cluster.row_pods[row] if row < len(cluster.row_pods) else ():
                pod = table.pod[slot]
                if pod is not known[slot]:
                    assert pod is not None
                    self._read(slot, pod, amounts_of(table.info_of(slot).requests))

    def _grow(self, slots: int) -> None:
        if slots <= len(self.job):
            return
        more = max(slots, 2 * len(self.job)) - len(self.job)
        self._pods += [None] * more
        self._job_of += [None] * more
        for name in ("job", "shape", "created", "is_preemptable", "is_critical", "uid"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros(more, dtype=column.dtype))))

    def _read(self, slot: int, pod: Pod, amounts: dict[str, int]) -> None:
        number = self._job_of[slot] = self.ids.intern(job_name(pod), JobId)
        self.job[slot] = number.number
        self.shape[slot] = shape = self._shape_ids.intern(tuple(sorted(amounts.items())))
        if shape == len(self.shapes):
            self.shapes.append(amounts)
        self.created[slot] = created_at(pod)
        self.is_preemptable[slot] = is_preemptable(pod)
        self.is_critical[slot] = pod.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL
        uid = pod.metadata.uid.encode()
        if len(uid) > self.uid.dtype.itemsize:
            self.uid = self.uid.astype(f"S{len(uid)}")
        self.uid[slot] = uid
        self._pods[slot] = pod

    def in_order(self, slots: IdColumn, turn: Sequence[IdColumn], priority: NDArray[np.int64]) -> IdColumn:
        """The order of eviction: by `turn` (its last one first), then the least important, the youngest.

        The uid decides about pods of the same age.
        """
        keys = (-self.created.take(slots), priority, *turn)
        order = np.lexsort(keys)
        equal = np.zeros(len(slots), dtype=np.bool_)
        equal[1:] = True
        for key in keys:
            by_turn = key.take(order)
            equal[1:] &= by_turn[1:] == by_turn[:-1]
        if equal.any():
            # Names are compared only where nothing else decides: this takes longer than all the rest.
            number = (~equal).cumsum()
            equal[:-1] |= equal[1:]
            places = equal.nonzero()[0]
            tied = order.take(places)
            order[places] = tied.take(np.lexsort((self.uid.take(slots.take(tied)), number.take(places))))
        return order

    def shapes_of(self, slots: IdColumn) -> tuple[list[Resources], IdColumn]:
        """The shapes of these pods, and for each pod which of them it is."""
        shape = self.shape.take(slots)
        used = distinct_ids(shape) if len(slots) else shape
        number = np.zeros(len(self.shapes), dtype=np.intp)
        number[used] = np.arange(len(used))
        return [self.shapes[each] for each in used.tolist()], number.take(shape)


def is_preemptable(pod: Pod) -> bool:
    meta = pod.metadata
    value = meta.annotations.get(volcano.PREEMPTABLE) or meta.labels.get(volcano.PREEMPTABLE, "true")
    return value.lower() in ("1", "t", "true")
