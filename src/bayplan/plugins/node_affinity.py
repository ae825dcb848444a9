"""NodeAffinity: a pod runs only on nodes whose labels (or name) it requires, and prefers some of them.

Requirements are in nodeSelector and in the required node affinity; a profile can add an affinity to every pod
(`addedAffinity`). A term of a pod that does not parse matches no node and has no other effect; in the
profile's own terms, and among preferences, it is an error.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar, Final

from bayplan.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    IntColumn,
    Node,
    NodeColumns,
    NodeNames,
    NormalizePlugin,
    Plugin,
    Pod,
    PreFilterPlugin,
    PreScorePlugin,
    Reject,
    Resource,
    ScorePlugin,
    SelectorError,
    Status,
    event_with_hint,
    failure,
    normalize_default,
    unresolvable,
)
from bayplan.plugin.args import NodeAffinityArgs
from bayplan.plugin.objects import (
    NAME_FIELD,
    CompiledTerm,
    NodeSelectorTerm,
    Operator,
    PreferredTerm,
    RequiredNodeAffinity,
    compile_preferred,
    compile_terms_strict,
    preference_of_rows,
    required_node_affinity,
    rows_matching,
    rows_matching_terms,
    terms_match,
)

REASON_POD: Final = "node(s) didn't match Pod's node affinity/selector"
REASON_ADDED: Final = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT: Final = "pod affinity terms conflict"

REQUIRED: Final = ("NodeAffinity", "required")
PREFERRED: Final = ("NodeAffinity", "preferred")


class NodeAffinity(Plugin, PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, NormalizePlugin):
    """Rejects nodes that the pod, or the profile, does not select; scores by preferences."""

    args_type: ClassVar = NodeAffinityArgs
    depends_on = Dependencies.of("node_selector", "node_affinity")

    args: NodeAffinityArgs

    @cached_property
    def _added_terms(self) -> tuple[CompiledTerm, ...] | None:
        """The requirements of the profile, or None."""
        required = None if self.args.added is None else self.args.added.node_affinity.required
        return None if required is None else compile_terms_strict(required.node_selector_terms)

    @cached_property
    def _added_preferences(self) -> tuple[PreferredTerm, ...]:
        added = self.args.added
        return () if added is None else compile_preferred(added.node_affinity.preferred)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self.node_change_helps)]

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """A matching node was added, or one that did not match the pod does now."""
        if self._added_terms is not None and not terms_match(self._added_terms, new.labels, new.name):
            return False
        required = required_node_affinity(pod)
        if not required.matches(new.labels, new.name):
            return _is_undecided(required, new)
        return old is None or not required.matches(old.labels, old.name)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames | None:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        if required is None and pod.spec.node_selector is None and self._added_terms is None:
            return SKIP
        state.write(REQUIRED, required_node_affinity(pod))
        if required is None:
            return None
        names = _selected_names(required.node_selector_terms)
        if names is None:
            return None
        return NodeNames(names) if names else unresolvable(REASON_CONFLICT)

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        matching = rows_matching(nodes, state.read(REQUIRED))
        # Evicting pods does not change the labels of a node.
        if self._added_terms is None:
            yield Reject(~matching, unresolvable(REASON_POD))
        else:
            enforced = rows_matching_terms(nodes, self._added_terms)
            yield Reject(~enforced, unresolvable(REASON_ADDED))
            yield Reject(enforced & ~matching, unresolvable(REASON_POD))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        preferred = affinity.preferred if affinity is not None else ()
        if not preferred and (self.args.added is None or not self.args.added.preferred):
            return SKIP
        try:
            preferences = compile_preferred(preferred)
        except SelectorError as error:
            return failure(error.problem)
        state.write(PREFERRED, (*self._added_preferences, *preferences))
        return None

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return preference_of_rows(nodes, state.read(PREFERRED))

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores)


def _selected_names(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """The nodes that the terms select by name, or None if a node of another name may match.

    The terms are used as written: one that does not parse can still narrow the search.
    """
    if not terms:
        return None
    names: frozenset[str] = frozenset()
    for term in terms:
        selected = [
            frozenset(field.values)
            for field in term.match_fields
            if field.key == NAME_FIELD and field.operator == Operator.IN
        ]
        if not selected:
            return None
        names |= frozenset.intersection(*selected)
    return names


def _is_undecided(required: RequiredNodeAffinity, node: Node) -> bool:
    """Whether a node that matches no term was not compared with some of them, because they do not parse."""
    if required.selector is not None and not required.selector.matches(node.labels):
        return False
    return any(term.error is not None for term in required.terms or ())
