"""The domains of a topology constraint, compared: how many members fit in each, and what stops the others.

A group with such a constraint is placed in one domain: all nodes with the same value of a label. The cycle
evaluates them one after the other (`GroupDecision.placements`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.scheduler.group_cycle import GroupDecision, PlacementResult

MAX_REASONS: Final = 2
CHOSEN: Final = "would be chosen{score}"
FITS: Final = "fits{score}"
SCORE: Final = " (score {total})"


@dataclass(frozen=True, slots=True)
class DomainAnswer:
    """What one domain would do for the group."""

    value: str
    """Of the label."""
    nodes: int
    members: int
    """How many of the waiting members find a node there."""
    fits: bool
    """Whether they are enough."""
    is_best: bool
    """Whether it would be chosen; if none fits, whether no other has room for as many members."""
    result: str


def compare_domains(decision: GroupDecision) -> tuple[DomainAnswer, ...]:
    """The domains that were evaluated for a group, in the order of the node list; else none."""
    results = decision.placements
    best = best_of(results)
    return tuple(_domain(one, is_best=one is best) for one in results)


def best_of(results: Sequence[PlacementResult]) -> PlacementResult | None:
    """The placement that would be chosen; if none fits, the first of those where most members find a node."""
    fitting = [one for one in results if one.status.is_success]
    if fitting:
        return max(fitting, key=lambda one: one.total or 0)
    return max((one for one in results if one.placed), key=lambda one: one.placed, default=None)


def _domain(result: PlacementResult, *, is_best: bool) -> DomainAnswer:
    rows, fits = result.placement.rows, result.status.is_success
    reasons = list(dict.fromkeys(one.message for one in result.decisions if one.found is None))
    score = "" if result.total is None else SCORE.format(total=result.total)
    if fits:
        text = (CHOSEN if is_best else FITS).format(score=score)
        if reasons:
            text += f"; the others: {_some(reasons)}"
    else:
        text = _some(reasons or [result.status.message])
    return DomainAnswer(
        result.placement.name, 0 if rows is None else len(rows), result.placed, fits, is_best, text
    )


def _some(texts: Sequence[str]) -> str:
    left = len(texts) - MAX_REASONS
    return "; ".join(texts[:MAX_REASONS]) + (f"; and {left} more" if left > 0 else "")
