"""One rule in four ways, for comparing costs: `bayplan bench --by-plugin` (docs/plugin-performance.md)."""

from __future__ import annotations

from bayplan.plugin import CycleState, Dependencies, IntColumn, NodeColumns, NodeInfo, NodePlugin, Plugin, Pod


class SpreadLoad(NodePlugin):
    """Prefers nodes with few pods: one node at a time, for every node and pod."""

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return max(0, 100 - len(node.pods))


class SpreadLoadCached(SpreadLoad):
    """The same, with what it depends on: the pods of the node, and nothing of the pod."""

    depends_on = Dependencies.of(usage=True)


class SpreadLoadColumns(Plugin):
    """The same for all nodes at once."""

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        scores: IntColumn = nodes.maximum(0, 100 - nodes.pod_count)
        return scores


class SpreadLoadColumnsCached(SpreadLoadColumns):
    """The same for all nodes at once, and with plain numbers for the one node that changed."""

    depends_on = Dependencies.of(usage=True)
    elementwise = True
