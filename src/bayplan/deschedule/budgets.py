"""PodDisruptionBudgets while pods are evicted: which one an eviction uses up, and what is left of it.

The API server decides by the status of a budget, which a controller brings up to date later. So a plan, or a
simulated cycle, counts by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector, compile_selector
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.errors import SelectorError


@dataclass(slots=True)
class Budget:
    budget: PodDisruptionBudget
    selector: Selector
    left: int

    @property
    def key(self) -> str:
        return self.budget.key


@dataclass(slots=True)
class Budgets:
    """All budgets, with what is left of them."""

    found: list[Budget] = field(default_factory=list)

    @classmethod
    def of(cls, budgets: Iterable[PodDisruptionBudget]) -> Budgets:
        """Budgets whose selector is not valid select no pods."""
        found = []
        for one in budgets:
            try:
                selector = compile_selector(one.spec.selector)
            except SelectorError:
                continue
            found.append(Budget(one, selector, one.status.disruptions_allowed))
        return cls(found)

    def of_pod(self, pod: Pod) -> Budget | str | None:
        """The budget that an eviction uses up; a text if it allows none; None if it has no budget."""
        found = [
            one
            for one in self.found
            if one.budget.namespace == pod.namespace and one.selector.matches(pod.labels)
        ]
        if not found:
            return None
        if len(found) > 1:
            return "several PodDisruptionBudgets select it, and the API server then rejects evictions"
        (one,) = found
        if one.left <= 0:
            allowed = one.budget.status.disruptions_allowed
            return f"PodDisruptionBudget {one.key} allows {allowed} eviction{'' if allowed == 1 else 's'} now"
        return one

    def left(self) -> list[int]:
        """What is left of each, for `restore`."""
        return [one.left for one in self.found]

    def restore(self, left: Iterable[int]) -> None:
        for one, count in zip(self.found, left, strict=True):
            one.left = count
