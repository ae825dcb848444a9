"""What `kubectl drain` would not do without being asked: warnings of a hypothetical drain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bayplan.answers.explain.remedies import counted
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif.controllers import violated_budgets
from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget

_NO_CONTROLLER: Final = (
    "draining {node} deletes {key}, which has no controller: kubectl drain does so only with --force"
)
_EMPTY_DIRS: Final = (
    "draining {node} deletes the emptyDir volumes of {pods}: kubectl drain does so only with "
    "--delete-emptydir-data"
)
_BUDGET: Final = (
    "draining {node} evicts {pods} of PodDisruptionBudget {key}, which allows {allowed}: "
    "kubectl drain waits until it allows more"
)
NO_BUDGETS: Final = "evictions by a drain are evaluated as if all were allowed"


def drain_warnings(
    node: str, evicted: Sequence[Pod], budgets: Iterable[PodDisruptionBudget]
) -> dict[tuple[str, str], Warning]:
    """Warnings about pods that a drain of the node evicts, by node and by the object that each is about."""
    found: dict[tuple[str, str], Warning] = {}
    for pod in evicted:
        if pod.metadata.controller() is None:
            text = _NO_CONTROLLER.format(node=node, key=pod.key)
            found[node, pod.key] = Warning(text, reason=Reason.NOT_RUN, object=f"Pod {pod.key}")
    local = [pod.key for pod in evicted if any(one.empty_dir is not None for one in pod.spec.volumes)]
    if local:
        shown = ", ".join(local[:3]) + (f" and {len(local) - 3:,} more pods" if len(local) > 3 else "")
        text = _EMPTY_DIRS.format(node=node, pods=shown)
        found[node, ""] = Warning(text, reason=Reason.NOT_RUN, object=f"Node {node}")
    for budget, count in violated_budgets(budgets, evicted):
        allowed = budget.status.disruptions_allowed
        text = _BUDGET.format(key=budget.key, node=node, pods=counted(count, "pod"), allowed=allowed)
        # With some allowed, the evictions are only delayed.
        reason = Reason.NOT_RUN if allowed else Reason.EVICTION_BLOCKED
        found[node, budget.key] = Warning(text, reason=reason, object=budget.key)
    return found
