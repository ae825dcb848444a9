"""What an upgrade of Kubernetes would change: the pending pods that two releases decide differently, and the
rules behind it.

Each pod is decided as both releases. For those that differ, every rule that changed is applied on its own to
the older release: the rules that change the decision are named. If there are several, only those are named
without which the newer release would decide differently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.release import RuleChange, rule_changes
from bayplan.api.releases import Release

PLACED: Final = "placed"
REJECTED: Final = "rejected"
SCORED: Final = "scored"
WORDED: Final = "worded"
KINDS: Final = (PLACED, REJECTED, SCORED, WORDED)
"""What can differ, the most important first."""

LoadAs = Callable[[Release], LoadedCluster]
"""The cluster to evaluate, with its configuration as a release reads it."""


@dataclass(frozen=True, slots=True)
class PodDifference:
    """A pod that two releases decide differently."""

    pod: str
    kinds: tuple[str, ...]
    """What differs: PLACED (the node, or whether there is one), REJECTED (which nodes are feasible), SCORED
    (the total scores of feasible nodes), WORDED (messages)."""
    before: Explanation
    after: Explanation
    rules: tuple[RuleChange, ...]
    """The rules that change this decision on their own; empty: only several together do."""

    def as_json(self) -> dict[str, Any]:
        return {
            "pod": self.pod,
            "changes": list(self.kinds),
            "before": _outcome(self.before),
            "after": _outcome(self.after),
            "rules": [{"name": rule.name, "title": rule.title} for rule in self.rules],
        }


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The result of a comparison."""

    name: str
    old: Release
    new: Release
    pods: int
    """Pods that were compared."""
    differences: tuple[PodDifference, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "from": self.old.version,
            "to": self.new.version,
            "pods": self.pods,
            "differences": [difference.as_json() for difference in self.differences],
        }


def compare_releases(
    load: LoadAs, old: Release, new: Release, *, only: Collection[str] = ()
) -> UpgradeReport:
    """Decides the pending pods of a cluster as both releases. `only`: the pods to compare, or all."""
    before, after = _explanations(load(old), only), _explanations(load(new), only)
    kinds = {
        pod: found
        for pod, after_ in after.items()
        if pod in before and (found := _kinds(before[pod], after_))
    }
    causes: dict[str, list[RuleChange]] = {pod: [] for pod in kinds}
    for rule in rule_changes(old, new) if kinds else ():
        alone = _explanations(load(rule.applied(old, new)), kinds)
        for pod in kinds:
            if pod in alone and _kinds(before[pod], alone[pod]):
                causes[pod].append(rule)
    for pod, needed in _needed(load, old, new, causes, after).items():
        causes[pod] = needed or causes[pod]
    differences = tuple(
        PodDifference(pod, found, before[pod], after[pod], tuple(causes[pod])) for pod, found in kinds.items()
    )
    return UpgradeReport(load(new).name, old, new, len(after), differences)


def _needed(
    load: LoadAs,
    old: Release,
    new: Release,
    causes: Mapping[str, list[RuleChange]],
    after: Mapping[str, Explanation],
) -> dict[str, list[RuleChange]]:
    """Of several causes, those that the newer decision depends on. A rule that only changes a message is not
    one of them if the pod is then scheduled. Empty where each cause is enough by itself."""
    needed: dict[str, list[RuleChange]] = {pod: [] for pod, rules in causes.items() if len(rules) > 1}
    for rule in rule_changes(old, new):
        pods = [pod for pod in needed if rule in causes[pod]]
        if pods:
            without = _explanations(load(rule.applied(new, old)), pods)
            for pod in pods:
                if pod in without and _kinds(without[pod], after[pod]):
                    needed[pod].append(rule)
    return needed


def _explanations(cluster: LoadedCluster, only: Collection[str]) -> Mapping[str, Explanation]:
    core = cluster.core()
    return {
        pod.key: explain(core.frameworks[pod.spec.scheduler_name], pod)
        for pod in cluster.pending(core)
        if not only or pod.key in only
    }


def _kinds(before: Explanation, after: Explanation) -> tuple[str, ...]:
    return tuple(_differing(before, after))


def _differing(before: Explanation, after: Explanation) -> Iterator[str]:
    if before.chosen != after.chosen or _nominated(before) != _nominated(after):
        yield PLACED
    if set(before.feasible) != set(after.feasible) or bool(before.error) != bool(after.error):
        yield REJECTED
    elif before.total != after.total:
        yield SCORED
    texts = ((one.fit_error_full, one.error, _reasons(one)) for one in (before, after))
    if len(set(texts)) > 1:
        yield WORDED


def _nominated(explanation: Explanation) -> tuple[str, tuple[str, ...]]:
    """Node and victims of the preemption."""
    preemption = explanation.preemption
    if preemption is None or not preemption.nominated_node:
        return "", ()
    candidate = preemption.candidates.get(preemption.nominated_node)
    return preemption.nominated_node, () if candidate is None else candidate.victims


def _reasons(explanation: Explanation) -> frozenset[tuple[str, tuple[str, ...]]]:
    return frozenset((node, status.reasons) for node, status in explanation.node_status.items())


def _outcome(explanation: Explanation) -> dict[str, Any]:
    """The decision in short."""
    if explanation.error:
        return {"error": explanation.error}
    if explanation.feasible:
        return {"node": explanation.chosen, "total": explanation.total}
    node, victims = _nominated(explanation)
    nominated = {"nominatedNode": node, "victims": list(victims)} if node else {}
    return {"node": None, "message": explanation.fit_error_full, **nominated}
