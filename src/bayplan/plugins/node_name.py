"""NodeName: a pod with spec.nodeName runs only on that node.

Such a pod is usually bound already and not scheduled. It is evaluated here if an extender or a hypothesis
concerns a pod with a node name.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    NodeColumns,
    NodeNames,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    event_with_hint,
    unresolvable,
)

REASON: Final = "node(s) didn't match the requested node name"


class NodeName(Plugin, PreFilterPlugin, FilterPlugin):
    """Rejects all nodes but the one that the pod names."""

    depends_on = Dependencies.of("node_name")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [event_with_hint(Resource.NODE, Action.ADD)]

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> NodeNames | None:
        """An extension point of this plugin from v1.37 on."""
        return NodeNames(frozenset({pod.spec.node_name})) if pod.spec.node_name else None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        if pod.spec.node_name:
            yield Reject(~nodes.is_named(pod.spec.node_name), unresolvable(REASON))
