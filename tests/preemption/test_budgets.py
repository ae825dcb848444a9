"""Whose eviction would violate a PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pytest

from bayplan.api.selectors import Selector
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.plugin import Cluster, Pod
from bayplan.plugin.preemption import Hypothesis
from bayplan.preemption.victims import violating
from bayplan.testing.builders import make_expression, make_pdb, make_selector

from .clusters import crowded, low

WEB = {"app": "web"}


def all_gone(cluster: Cluster) -> Hypothesis:
    """Every pod gone from its node, in the order in which it came."""
    slots = [slot for row in cluster.order for slot in cluster.row_pods[row]]
    starts = np.cumsum([0, *(len(cluster.row_pods[row]) for row in cluster.order)])
    signs = np.full(len(slots), -1, dtype=np.int64)
    return Hypothesis(cluster, cluster.order, np.array(slots, dtype=np.intp), starts, signs)


def disrupting(budget: PodDisruptionBudget, *pods: str) -> PodDisruptionBudget:
    """The budget while these pods are being evicted already."""
    status = msgspec.structs.replace(
        budget.status, disrupted_pods=dict.fromkeys(pods, "2026-01-01T00:00:00Z")
    )
    return msgspec.structs.replace(budget, status=status)


def webs(count: int, **more: str) -> list[Pod]:
    return [low(f"w{number}", labels=WEB, **more) for number in range(count)]  # type: ignore[arg-type]  # namespace


@pytest.mark.parametrize(
    ("budgets", "pods", "expected"),
    [
        pytest.param([], webs(2), [False, False], id="no budget"),
        pytest.param(
            [make_pdb("b", WEB, allowed=1)],
            webs(3),
            [False, True, True],
            id="as many as it allows, then no more",
        ),
        pytest.param([make_pdb("b", WEB, allowed=0)], webs(2), [True, True], id="it allows none"),
        pytest.param([make_pdb("b", WEB, allowed=-1)], webs(1), [True], id="it is overdrawn"),
        pytest.param([make_pdb("b", WEB)], [low("x", labels={"app": "db"})], [False], id="of other pods"),
        pytest.param([make_pdb("b", WEB)], webs(1, namespace="other"), [False], id="of another namespace"),
        pytest.param(
            [make_pdb("b", make_selector())], webs(1), [False], id="the empty selector protects no pod"
        ),
        pytest.param([make_pdb("b")], webs(1), [False], id="no selector protects no pod"),
        pytest.param(
            [make_pdb("b", make_selector({}, make_expression("app", "In")))],
            webs(1),
            [False],
            id="nor does a malformed one",
        ),
        pytest.param(
            [make_pdb("b", make_selector({}, make_expression("app", "NotIn", "db")))],
            [low("x")],
            [False],
            id="a pod without labels is never protected",
        ),
        pytest.param(
            [make_pdb("b", make_selector({}, make_expression("app", "NotIn", "db")))],
            [low("x", labels={"a": "b"})],
            [True],
            id="one with other labels is",
        ),
        pytest.param(
            [disrupting(make_pdb("b", WEB, allowed=1), "w0")],
            webs(3),
            [False, False, True],
            id="a terminating victim costs nothing",
        ),
        pytest.param(
            [make_pdb("b", WEB, allowed=1), make_pdb("c", WEB, allowed=2)],
            webs(3),
            [False, True, True],
            id="the strictest of several counts",
        ),
        pytest.param(
            [make_pdb("b", WEB, allowed=0), make_pdb("c", {"tier": "front"}, allowed=1)],
            [low("x", labels={**WEB, "tier": "front"}), low("y", labels={"tier": "front"})],
            [True, False],
            id="a pod that violates one uses no disruption of those after it",
        ),
    ],
)
def test_in_order_of_importance(
    budgets: Sequence[PodDisruptionBudget], pods: Sequence[Pod], expected: list[bool]
) -> None:
    cluster = crowded(n=pods)
    for budget in budgets:
        cluster.objects.put(budget)
    assert violating(all_gone(cluster)).tolist() == expected


def test_each_node_is_evaluated_alone() -> None:
    """Only one node's pods would be evicted, so each has the whole budget."""
    cluster = crowded(a=webs(2), b=[low("x", labels=WEB), low("y", labels=WEB)])
    cluster.objects.put(make_pdb("b", WEB, allowed=1))
    assert violating(all_gone(cluster)).tolist() == [False, True, False, True]


def test_no_pod_to_evict() -> None:
    cluster = crowded(n=[])
    cluster.objects.put(make_pdb("b", WEB))
    assert violating(all_gone(cluster)).tolist() == []


def test_many_budgets_are_compared_with_their_own_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget for each pod: not every selector is compared with every pod."""
    count = 50
    cluster = crowded(n=[low(f"p{i}", labels={"app": f"a{i}"}) for i in range(count)])
    for i in range(count):
        cluster.objects.put(make_pdb(f"b{i}", {"app": f"a{i}"}, allowed=i % 2))
    compared, matches = 0, Selector.matches

    def counting(selector: Selector, labels: Mapping[str, str]) -> bool:
        nonlocal compared
        compared += 1
        return matches(selector, labels)

    monkeypatch.setattr(Selector, "matches", counting)
    assert violating(all_gone(cluster)).tolist() == [i % 2 == 0 for i in range(count)]
    assert compared == count
