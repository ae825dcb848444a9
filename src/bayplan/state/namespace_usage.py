"""The sum of the requests of the assigned pods of each namespace.

It is updated for the nodes whose pods changed. It includes assumed pods, so plugins need not update it in
Reserve and Unreserve.
"""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.state.cluster import Cluster
from bayplan.state.derived import changed_rows

_NOTHING: Mapping[str, int] = {}

_Sums = dict[str, dict[str, int]]
"""By namespace and resource: cpu in milli, everything else in whole units."""


class NamespaceUsage:
    """An index for `derived`."""

    def __init__(self, cluster: Cluster) -> None:
        self._freshness = cluster.changes.freshness(rows=(cluster.changes.usage,))
        self._rows: dict[int, _Sums] = {}
        self._total: _Sums = {}

    def update(self, cluster: Cluster) -> None:
        with self._freshness as stale:
            for row in changed_rows(stale, cluster):
                self._add(self._rows.pop(row, {}), -1)
                sums: _Sums = {}
                for slot in cluster.row_pods[row] if row < len(cluster.row_pods) else ():
                    pod = cluster.pods.pod[slot]
                    assert pod is not None
                    here = sums.setdefault(pod.namespace, {})
                    for resource, amount in cluster.pods.info_of(slot).requests.items():
                        here[resource] = here.get(resource, 0) + amount
                if sums:
                    self._rows[row] = sums
                    self._add(sums, 1)

    def _add(self, sums: _Sums, sign: int) -> None:
        for namespace, amounts in sums.items():
            total = self._total.setdefault(namespace, {})
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + sign * amount
                if not total[resource]:
                    del total[resource]
            if not total:
                del self._total[namespace]

    def of(self, namespace: str) -> Mapping[str, int]:
        """What the pods of a namespace request on all nodes."""
        return self._total.get(namespace, _NOTHING)
