"""The nodes with what is requested on them, at one point of a history.

`Overview` moves along the history in both directions and counts only what changed, so that watching a live
cluster and dragging a time slider cost the same. `cluster` is the whole of it in columns, `row` a single
node: both are parts of the API (docs/ui-api.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.quantity import CPU, MEMORY, resource_amounts
from bayplan.process.history import Change, History

PODS: Final = "pods"
_FIRST: Final = (CPU, MEMORY, PODS)
_HIDDEN: Final = ("hugepages-", "attachable-volumes-")
MAX_LABEL_VALUES: Final = 200
"""Labels with more different values are not offered for groups: hostnames, for example."""
MAX_SHAPES: Final = 50
"""Kinds of pods for which it is computed what is stranded."""

READY, CORDONED, PRESSURE, TAINTED = 1, 2, 4, 8
"""Bits of a node's state."""
_PRESSURES: Final = frozenset(("MemoryPressure", "DiskPressure", "PIDPressure"))

Requests = Callable[[Pod], dict[str, int]]
"""What a pod uses on its node: `Release.accounting.assigned_requests`."""


class NodeRow:
    """One node, and the sums of its pods. A row without a node has the pods of a deleted node."""

    __slots__ = ("allocatable", "node", "pods", "requested", "state")

    def __init__(self) -> None:
        self.node: Node | None = None
        self.allocatable: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        self.pods = 0
        self.state = 0

    def set_node(self, node: Node | None) -> None:
        self.node = node
        self.allocatable = {} if node is None else resource_amounts(node.status.allocatable)
        self.state = 0 if node is None else _state(node)

    def add(self, requests: dict[str, int], sign: int) -> None:
        self.pods += sign
        for name, amount in requests.items():
            self.requested[name] = self.requested.get(name, 0) + sign * amount


class Overview:
    """All nodes at one number of a history: the latest if none is given."""

    def __init__(self, history: History, requests: Requests, seq: int | None = None) -> None:
        self._history = history
        self._requests = requests
        self._start(history.clamp(seq))

    def _start(self, seq: int) -> None:
        self.seq = seq
        self.rows: dict[str, NodeRow] = {}
        self.pending = 0
        self.assigned = 0
        self._shapes: Counter[tuple[tuple[str, int], ...]] = Counter()
        history = self._history
        objects = history.objects if seq == history.last else history.objects_at(seq)
        for item in objects.values():
            self._apply(None, item)

    def move(self, seq: int) -> set[str]:
        """Moves to another number. Returns the names of the nodes that are different there."""
        history, touched = self._history, set[str]()
        if self.seq < history.dropped:
            self._start(seq)
            return set(self.rows)
        if seq >= self.seq:
            for entry in history.entries(self.seq, seq):
                if isinstance(entry, Change):
                    touched.update(self._apply(entry.before, entry.after))
        else:
            for entry in reversed(list(history.entries(seq, self.seq))):
                if isinstance(entry, Change):
                    touched.update(self._apply(entry.after, entry.before))
        self.seq = seq
        return touched

    def _apply(self, before: Object | None, after: Object | None) -> Iterable[str]:
        if isinstance(before, Node) or isinstance(after, Node):
            return self._apply_node(before, after)
        if isinstance(before, Pod) or isinstance(after, Pod):
            return [*self._count(before, -1), *self._count(after, 1)]
        return ()

    def _apply_node(self, before: Object | None, after: Object | None) -> Iterable[str]:
        node = after if isinstance(after, Node) else None
        known = after or before
        assert known is not None
        row = self.rows.get(known.name)
        if row is None:
            row = self.rows[known.name] = NodeRow()
        if node is None and not row.pods:
            del self.rows[known.name]
        else:
            row.set_node(node)
        return (known.name,)

    def _count(self, pod: Object | None, sign: int) -> Iterable[str]:
        if not isinstance(pod, Pod) or pod.is_finished:
            return ()
        name = pod.spec.node_name
        if not name:
            self.pending += sign
            return ()
        self.assigned += sign
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = NodeRow()
        requests = self._requests(pod)
        self._shapes[tuple(sorted(requests.items()))] += sign
        row.add(requests, sign)
        if row.node is None and not row.pods:
            del self.rows[name]
        return (name,)

    # Writing

    def names(self) -> list[str]:
        return [name for name, row in self.rows.items() if row.node is not None]

    def resources(self) -> list[str]:
        """The resources that some node has, the usual ones first."""
        found = {name for row in self.rows.values() for name in row.allocatable}
        others = sorted(name for name in found if name not in _FIRST and not name.startswith(_HIDDEN))
        return [*(name for name in _FIRST if name in found), *others]

    def row(self, name: str, resources: list[str]) -> dict[str, Any] | None:
        """One node for a viewer that has the columns; None if it is gone."""
        row = self.rows.get(name)
        if row is None or row.node is None:
            return None
        return {
            "name": name,
            "allocatable": [row.allocatable.get(one, 0) for one in resources],
            "requested": _requested(row, resources),
            "pods": row.pods,
            "state": row.state,
        }

    def totals(self) -> dict[str, Any]:
        """Sums over all nodes."""
        rows = [row for row in self.rows.values() if row.node is not None]
        resources = self.resources()
        return {
            "nodes": len(rows),
            "ready": sum(bool(row.state & READY) for row in rows),
            "pending": self.pending,
            "assigned": self.assigned,
            "resources": {
                name: {
                    "allocatable": sum(row.allocatable.get(name, 0) for row in rows),
                    "requested": sum(
                        row.pods if name == PODS else row.requested.get(name, 0) for row in rows
                    ),
                }
                for name in resources
            },
        }

    def cluster(self) -> dict[str, Any]:
        """All nodes in columns."""
        names, resources = self.names(), self.resources()
        rows = [self.rows[name] for name in names]
        nodes = [row.node for row in rows if row.node is not None]
        return {
            "seq": self.seq,
            "time": self._history.time_of(self.seq),
            "resources": resources,
            "nodes": {
                "name": names,
                "allocatable": [[row.allocatable.get(one, 0) for row in rows] for one in resources],
                "requested": [
                    [row.pods if one == PODS else row.requested.get(one, 0) for row in rows]
                    for one in resources
                ],
                "pods": [row.pods for row in rows],
                "state": [row.state for row in rows],
                "stranded": self._stranded(rows).tolist(),
            },
            "taints": _coded([", ".join(map(str, node.spec.taints)) for node in nodes]),
            "labels": _labels(nodes),
            "totals": self.totals(),
        }

    def _stranded(self, rows: list[NodeRow]) -> NDArray[np.float64]:
        """For each node: the share of the cluster's pods, by kind of request, for which it has no room.

        Where it is 1, no pod like the running ones fits on the node.
        """
        shapes = [(dict(shape), count) for shape, count in self._shapes.most_common(MAX_SHAPES) if count > 0]
        stranded = np.zeros(len(rows))
        total = sum(count for _, count in shapes)
        if not total:
            return stranded
        wanted = {name for shape, _ in shapes for name in shape}
        free = {
            name: np.array([row.allocatable.get(name, 0) - row.requested.get(name, 0) for row in rows])
            for name in wanted
        }
        has_slot = np.array([row.pods < row.allocatable.get(PODS, 0) for row in rows])
        for shape, count in shapes:
            fits = has_slot
            for name, amount in shape.items():
                if amount > 0:
                    fits = fits & (free[name] >= amount)
            stranded[~fits] += count / total
        return np.round(stranded, 4)


def _requested(row: NodeRow, resources: list[str]) -> list[int]:
    return [row.pods if one == PODS else row.requested.get(one, 0) for one in resources]


def _state(node: Node) -> int:
    state = 0
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            state |= READY
        elif condition.type in _PRESSURES and condition.status == "True":
            state |= PRESSURE
    if not node.status.conditions:
        state |= READY  # a manifest: nothing is known to be wrong
    if node.spec.unschedulable:
        state |= CORDONED
    if any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints):
        state |= TAINTED
    return state


def _coded(texts: list[str]) -> dict[str, Any]:
    """A column of texts: the different ones, and for each node the index of its own; -1: none."""
    values: dict[str, int] = {}
    index = [values.setdefault(text, len(values)) if text else -1 for text in texts]
    return {"values": list(values), "index": index}


def _labels(nodes: list[Node]) -> dict[str, Any]:
    keys = {key for node in nodes for key in node.labels}
    columns = {key: _coded([node.labels.get(key, "") for node in nodes]) for key in sorted(keys)}
    return {
        key: column
        for key, column in columns.items()
        if len(column["values"]) <= MAX_LABEL_VALUES
        and (len(column["values"]) < len(nodes) or len(nodes) == 1)
    }
