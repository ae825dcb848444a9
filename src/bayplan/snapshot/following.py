"""Follows whatever can happen to a row: for results about rows that depend on all of it.

A reader of one log keeps a cursor itself (`changes.py`). What if questions depend on the Node object, on the
pods there and on those that are expected there, so their answers follow all three logs.
"""

from __future__ import annotations

from bayplan.snapshot.cluster import Cluster


class RowFollower:
    """One reader of all logs of a cluster."""

    __slots__ = ("_cluster", "_cursors", "_high")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cursors = (-1, -1, -1)
        self._high = 0

    def changed(self) -> set[int] | None:
        """The rows to which something happened since the last call.

        None: to any of them, or there are more rows than before. So it is the first time.
        """
        cluster = self._cluster
        logs = (cluster.usage_log, cluster.node_log, cluster.nomination_log)
        changes = [log.since(cursor) for log, cursor in zip(logs, self._cursors, strict=True)]
        before, self._high = self._high, cluster.nodes.high
        self._cursors = (cluster.usage_log.end, cluster.node_log.end, cluster.nomination_log.end)
        rows: set[int] = set()
        for changed in changes:
            if changed is None or before != self._high:
                return None
            rows.update(changed)
        return rows
