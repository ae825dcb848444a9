"""What would let a group be scheduled that does not fit: more room, fewer members, another priority.

`groups.py` calls this with the decision of the scheduler's own cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bayplan.answers.explain.group_domains import best_of
from bayplan.api.pod import Pod
from bayplan.scheduler.group_cycle import RESOURCE_GAP, GroupDecision, PlacementResult
from bayplan.state.group_trees import GroupTree
from bayplan.state.pods import pod_signature

FREE_RESOURCES: Final = "free {gap} in the cluster, or add nodes that have it"
LOWER_MIN_RESOURCES: Final = "lower minResources of the PodGroup"
OF_JOB: Final = "minAvailable of Job {name}"
LOWER_MIN_AVAILABLE: Final = "lower {field}, from which minResources of the PodGroup is computed"
FEWER_GROUPS: Final = "create the CompositePodGroup again with minGroupCount {count} or less"
LOWER_MIN_COUNT: Final = "set {field} to {count} or less"
MAKE_ROOM: Final = "make room for {count} more such {pods}, or add nodes that have it"
MAKE_ROOM_FOR_SOME: Final = "make room for the members that fit nowhere, or add nodes that have it"
ADD_NODES: Final = "add nodes with room for {count} more such {pods}"
NOT_ENOUGH: Final = "; even without all other pods, there would be no room for {count} of them"
ADD_NODES_FOR_SOME: Final = (
    "add nodes for the members that fit nowhere: even without all other pods, the group would not fit"
)
NODES_IT_ACCEPTS: Final = (
    "room is not what is missing: {plugins} {reject} pod {pod} on every node, whatever runs there; "
    "bayplan explain pod {pod} shows what would change that"
)
IN_DOMAIN: Final = "make room for {count} more such {pods} on nodes with {domain}"
ADD_TO_DOMAIN: Final = "add nodes with {domain} and room for {count} more such {pods}"
NODES_FOR_DOMAIN: Final = (
    "add nodes with {domain} and room for {count} more such {pods}: even without all other pods, the "
    "group would "
    "not fit with any value of {key}"
)
SOME_IN_DOMAIN: Final = (
    "make room on the nodes with {domain} for the members that do not fit there, or add such nodes"
)
NO_DOMAIN: Final = (
    "no node has the label {key} of the topology constraint: give it to the nodes, or create the "
    "PodGroup again "
    "without the constraint"
)
RAISE_PRIORITY: Final = (
    "create group and pods again with a higher priority: only pods of lower priority are preempted"
)
ALLOW_PREEMPTION: Final = "its pods say preemptionPolicy: Never, so nothing is evicted for it"

OF_THE_NODE: Final = frozenset(
    {"NodeAffinity", "NodeDeclaredFeatures", "NodeName", "NodeUnschedulable", "TaintToleration", "VolumeZone"}
)
"""Plugins that reject a node for what it is: no other pod makes a difference."""


def remedies_for(
    tree: GroupTree, decision: GroupDecision, alone: GroupDecision | None, field: str
) -> list[str]:
    """What would let this group be scheduled, if its members were rejected by the nodes.

    Args:
        decision: that it does not fit.
        alone: the decision if there were no other pods; None if that is unknown.
        field: what sets the number of members that have to run together.
    """
    if not decision.status.is_rejection:
        return []
    if is_gap(decision):
        gap = decision.status.message.removeprefix(RESOURCE_GAP)
        lower = LOWER_MIN_AVAILABLE.format(field=field) if " of Job " in field else LOWER_MIN_RESOURCES
        return [FREE_RESOURCES.format(gap=gap), lower]
    without_others = None if alone is None or alone.final.is_success else alone
    unaccepted = None if tree.group.topology_key else _without_any_node(decision)
    if unaccepted is not None:
        return [unaccepted]
    group, waiting, scheduled = tree.group, tree.pods, tree.scheduled_count
    for_some = MAKE_ROOM_FOR_SOME if without_others is None else ADD_NODES_FOR_SOME
    if group.key.is_composite:
        children = {child.group.key for child in tree.children}
        fitting = sum(part.fits for part in decision.parts if part.group.key in children)
        fewer = [FEWER_GROUPS.format(count=fitting)] if group.is_gang and fitting else []
        return [for_some, *fewer]
    placed, need = _placed(decision), group.min_count - scheduled
    if group.topology_key and not decision.placements:
        return [NO_DOMAIN.format(key=group.topology_key)]
    if group.topology_key:
        return _remedies_in_domain(tree, decision, alone, need, field)
    if placed >= need:
        return [for_some]
    # Identical members that were not tried do not fit either.
    if not _are_identical(waiting):
        remedies = [for_some]
    elif without_others is not None:
        always = need - _placed(without_others)
        more = NOT_ENOUGH.format(count=always) if always < need - placed else ""
        remedies = [ADD_NODES.format(count=need - placed, pods=pods_text(need - placed)) + more]
    else:
        remedies = [MAKE_ROOM.format(count=need - placed, pods=pods_text(need - placed))]
    if placed:
        remedies.append(LOWER_MIN_COUNT.format(field=field, count=scheduled + placed))
    return remedies


def _remedies_in_domain(
    tree: GroupTree, decision: GroupDecision, alone: GroupDecision | None, need: int, field: str
) -> list[str]:
    """What would let a group fit in a domain: room where others take it, or nodes where most members fit."""
    key, results = tree.group.topology_key, decision.placements
    best = best_of(results) or results[0]
    fits_alone = (
        None if alone is None else {one.placement.name for one in alone.placements if one.status.is_success}
    )
    large = [one for one in results if fits_alone is None or one.placement.name in fits_alone]
    if need <= best.placed or not _are_identical(tree.pods):
        return [SOME_IN_DOMAIN.format(domain=f"{key}={best.placement.name}")]

    def filled(text: str, result: PlacementResult) -> str:
        count = need - result.placed
        domain = f"{key}={result.placement.name}"
        return text.format(domain=domain, count=count, pods=pods_text(count), key=key)

    if large:
        remedies = [filled(IN_DOMAIN, best_of(large) or large[0]), filled(ADD_TO_DOMAIN, best)]
    else:
        remedies = [filled(NODES_FOR_DOMAIN, best)]
    if best.placed:
        remedies.append(LOWER_MIN_COUNT.format(field=field, count=tree.scheduled_count + best.placed))
    return remedies


def _are_identical(pods: Sequence[Pod]) -> bool:
    return len({pod_signature(pod) for pod in pods}) == 1


def _without_any_node(decision: GroupDecision) -> str | None:
    """That a member cannot run on any node that exists; None if there is no such member."""
    for member in decision.decisions:
        diagnosis = None if member is None else member.diagnosis
        plugins = set() if diagnosis is None else diagnosis.rejecting_plugins
        if member is not None and plugins and plugins <= OF_THE_NODE:
            reject = "rejects" if len(plugins) == 1 else "reject"
            names = " and ".join(sorted(plugins))
            return NODES_IT_ACCEPTS.format(plugins=names, reject=reject, pod=member.pod.key)
    return None


def _placed(decision: GroupDecision) -> int:
    """The number of members that found a node."""
    return sum(one is not None and one.found is not None for one in decision.decisions)


def is_gap(decision: GroupDecision) -> bool:
    """Whether it was not tried because the cluster has too little for it."""
    return decision.status.message.startswith(RESOURCE_GAP)


def pods_text(count: int) -> str:
    return "pod" if count == 1 else "pods"
