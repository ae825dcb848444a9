"""TaintToleration: a tainted node takes only pods that tolerate its taints.

Taints with the effects NoSchedule and NoExecute exclude a pod; each PreferNoSchedule taint that it does not
tolerate lowers a node's score. Nodes share few distinct lists of taints, so tolerations are compared once for
each list.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
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
    IntColumn,
    Lookup,
    Node,
    NodeColumns,
    NormalizePlugin,
    Plugin,
    Pod,
    PreFilterPlugin,
    PreScorePlugin,
    Reject,
    Resource,
    ScorePlugin,
    Taint,
    event_with_hint,
    normalize_default,
    unresolvable,
)
from bayplan.plugin.objects import (
    PREFER_NO_SCHEDULE,
    Tolerations,
    count_untolerated_preferences,
    untolerated_taint,
)

REASON: Final = "node(s) had untolerated taint(s)"

UNTOLERATED: Final = ("TaintToleration", "untolerated")
UNTOLERATED_PREFERENCES: Final = ("TaintToleration", "untolerated preferences")


class TaintToleration(Plugin, PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, NormalizePlugin):
    """Rejects nodes with taints that the pod does not tolerate, and prefers those without."""

    depends_on = Dependencies.of("tolerations")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, self.node_change_helps),
            event_with_hint(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, self.is_itself),
        ]

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """A node was added that the pod tolerates, or one that excluded it no longer does."""
        tolerations = pod.spec.tolerations
        if untolerated_taint(new.spec.taints, tolerations) is not None:
            return False
        return old is None or untolerated_taint(old.spec.taints, tolerations) is not None

    def is_itself(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        return new.uid == pod.uid

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        """An extension point of this plugin from v1.37 on, for pods that are being resized in place."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        tolerations = Tolerations(pod.spec.tolerations)

        def is_untolerated(taints: tuple[Taint, ...]) -> bool:
            return untolerated_taint(taints, tolerations) is not None

        lookup = state.memo(UNTOLERATED, lambda: nodes.taint_lookup(is_untolerated))
        # Evicting pods does not remove a taint.
        yield Reject(nodes.taints(lookup) != 0, unresolvable(REASON))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        tolerations = Tolerations(t for t in pod.spec.tolerations if t.effect in ("", PREFER_NO_SCHEDULE))

        def count_untolerated(taints: tuple[Taint, ...]) -> int:
            return count_untolerated_preferences(taints, tolerations)

        state.write(UNTOLERATED_PREFERENCES, nodes.taint_lookup(count_untolerated))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        lookup: Lookup[tuple[Taint, ...]] = state.read(UNTOLERATED_PREFERENCES)
        return nodes.taints(lookup)

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores, reverse=True)
