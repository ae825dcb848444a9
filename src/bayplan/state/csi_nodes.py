"""CSINode objects as columns: which node has which drivers, and how many volumes each attaches.

A CSINode has the name of its node. It is read for all rows at once, like the other columns of nodes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bayplan.api.in_tree_volumes import migrated_plugins
from bayplan.api.storage import CSINode
from bayplan.state.cluster import Cluster
from bayplan.state.derived import ObjectReader, changed_rows
from bayplan.state.interning import ABSENT, Interner
from bayplan.state.table import Column

NO_LIMIT: Final = -1


class CSINodes:
    """Columns over node rows.

    | column | dtype | meaning |
    |---|---|---|
    | present | bool | the node has a CSINode |
    | is_limited | bool | some driver takes a limited number of volumes there |
    | installed(driver) | bool | the driver is installed there |
    | limit(driver) | int64 | that number, or NO_LIMIT |
    | migrated | id | which in-tree plugins have moved to CSI, of `plugin_sets` |
    """

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        changes = cluster.changes
        self._freshness = changes.freshness(rows=(changes.nodes,), objects=(changes.kind(CSINode),))
        self._objects: ObjectReader[CSINode] = ObjectReader(self._freshness)
        self._limits: dict[str, Column] = {}
        self._installed: dict[str, Column] = {}
        self.plugin_sets: Interner[frozenset[str]] = Interner()
        self.present = cluster.nodes.column(np.bool_, False)
        self.is_limited = cluster.nodes.column(np.bool_, False)
        self.migrated = cluster.nodes.column(np.intp, ABSENT)

    def limit(self, driver: str) -> Column | None:
        """The maximum number of volumes of a driver on each node; None if no node ever limited it."""
        return self._limits.get(driver)

    def installed(self, driver: str) -> Column | None:
        """Whether each node has the driver; None if no node ever had it."""
        return self._installed.get(driver)

    def limits_of(self, row: int) -> dict[str, int]:
        """The limits of one row, by driver."""
        limits = ((driver, column.cell[row]) for driver, column in self._limits.items())
        return {driver: limit for driver, limit in limits if limit != NO_LIMIT}

    def update(self, cluster: Cluster) -> None:
        if self._freshness.is_current:
            return
        nodes, csi_nodes = cluster.nodes, cluster.objects.of(CSINode)
        with self._freshness as stale:
            rows = changed_rows(stale, cluster)
            for changed in self._objects.changed(csi_nodes):
                rows.update(nodes.row_of[item.name] for item in changed if item.name in nodes.row_of)
            for row in rows:
                self._write(row, csi_nodes.get(nodes.name[row]))

    def _write(self, row: int, csi_node: CSINode | None) -> None:
        for column in self._limits.values():
            column.cell[row] = NO_LIMIT
        for column in self._installed.values():
            column.cell[row] = False
        self.present.cell[row] = csi_node is not None
        self.migrated.cell[row] = ABSENT
        is_limited = False
        if csi_node is not None:
            self.migrated.cell[row] = self.plugin_sets.intern(migrated_plugins(csi_node))
            for driver in csi_node.spec.drivers:
                self._installed_column(driver.name).cell[row] = True
                if driver.allocatable is not None and driver.allocatable.count is not None:
                    is_limited = True
                    self._limit_column(driver.name).cell[row] = driver.allocatable.count
        self.is_limited.cell[row] = is_limited

    def _installed_column(self, driver: str) -> Column:
        column = self._installed.get(driver)
        if column is None:
            column = self._installed[driver] = self._nodes.column(np.bool_, False)
        return column

    def _limit_column(self, driver: str) -> Column:
        column = self._limits.get(driver)
        if column is None:
            column = self._limits[driver] = self._nodes.column(np.int64, NO_LIMIT)
        return column
