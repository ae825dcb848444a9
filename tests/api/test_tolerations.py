"""Tolerations cover taints by key, value and effect."""

from __future__ import annotations

import random

import pytest

from bayplan.api.node import Taint
from bayplan.api.pod import (
    FEW_TOLERATIONS,
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Toleration,
    Tolerations,
    any_tolerates,
    count_untolerated_preferences,
    tolerates,
    untolerated_taint,
)
from bayplan.testing.builders import make_taint, make_toleration

TAINT = make_taint("dedicated=db:NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        pytest.param(
            Toleration(key="dedicated", value="db", effect="NoSchedule"), True, id="no operator is Equal"
        ),
        pytest.param(Toleration(key="dedicated", operator="Equal", value="db"), True, id="any effect"),
        pytest.param(Toleration(key="dedicated", operator="Equal", value="web"), False, id="another value"),
        pytest.param(Toleration(key="dedicated", operator="Equal"), False, id="no value is the empty value"),
        pytest.param(Toleration(key="dedicated", operator="Exists"), True, id="any value"),
        pytest.param(
            Toleration(key="dedicated", operator="Exists", value="web"), True, id="Exists ignores values"
        ),
        pytest.param(Toleration(key="gpu", operator="Exists"), False, id="another key"),
        pytest.param(
            Toleration(key="dedicated", operator="Exists", effect="NoExecute"), False, id="another effect"
        ),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(
            Toleration(operator="Exists", effect="NoSchedule"), True, id="everything with this effect"
        ),
        pytest.param(Toleration(operator="Equal", value="db"), True, id="no key compares the value alone"),
        pytest.param(Toleration(operator="Equal", value="web"), False, id="which then must be equal"),
        pytest.param(
            Toleration(key="dedicated", operator="Like", value="db"), False, id="an unknown operator"
        ),
    ],
)
def test_tolerates(toleration: Toleration, covered: bool) -> None:
    assert tolerates(toleration, TAINT) is covered


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_comparisons_are_off(operator: str) -> None:
    """The gate for numeric tolerations is off by default upstream, so they cover nothing."""
    taint = Taint(key="sla", value="5", effect="NoSchedule")
    assert not any(
        tolerates(Toleration(key="sla", operator=operator, value=v), taint) for v in ("4", "5", "6")
    )


def test_one_toleration_is_enough() -> None:
    tolerations = [make_toleration("gpu"), make_toleration("dedicated")]
    assert any_tolerates(tolerations, TAINT)
    assert not any_tolerates([], TAINT)


@pytest.mark.parametrize(
    ("taints", "found"),
    [
        pytest.param([], None, id="no taints"),
        pytest.param(["soft:PreferNoSchedule"], None, id="preferences keep no pod away"),
        pytest.param(["ok:NoSchedule"], None, id="a tolerated one"),
        pytest.param(
            ["ok:NoSchedule", "b:NoExecute", "c:NoSchedule"], "b:NoExecute", id="the first that counts"
        ),
        pytest.param(["c:NoSchedule", "b:NoExecute"], "c:NoSchedule", id="in the node's order"),
    ],
)
def test_untolerated_taint(taints: list[str], found: str | None) -> None:
    answer = untolerated_taint(
        map(make_taint, taints), iter([make_toleration("ok"), make_toleration("fine")])
    )
    assert answer == (None if found is None else make_taint(found))


@pytest.mark.parametrize(
    ("taints", "count"),
    [
        pytest.param(["a:NoSchedule", "b:NoExecute"], 0, id="only preferences count"),
        pytest.param(["a:PreferNoSchedule", "b:PreferNoSchedule"], 2, id="each counts"),
        pytest.param(["ok:PreferNoSchedule", "b:PreferNoSchedule"], 1, id="tolerated ones do not"),
        pytest.param(["hard:PreferNoSchedule"], 1, id="a toleration of another effect does not help"),
    ],
)
def test_count_untolerated_preferences(taints: list[str], count: int) -> None:
    tolerations = iter([make_toleration("ok"), make_toleration("hard", effect="NoSchedule")])
    assert count_untolerated_preferences(map(make_taint, taints), tolerations) == count


@pytest.mark.parametrize("seed", range(20))
def test_many_tolerations_are_looked_up_and_the_answer_is_the_same(seed: int) -> None:
    rng = random.Random(seed)

    def one_of(*texts: str) -> str:
        return rng.choice(texts)

    many = [
        Toleration(
            key=one_of("", "a", "b", "c"),
            operator=one_of("", "Equal", "Exists", "Gt"),
            value=one_of("", "x", "y", "z"),
            effect=one_of("", NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE),
        )
        for _ in range(FEW_TOLERATIONS + 1)
    ]
    # Such as cover few taints: otherwise all are tolerated.
    few = [one for one in many if one.key and one.value] * FEW_TOLERATIONS
    taints = [
        Taint(key=key, value=value, effect=effect)
        for key in ("a", "b", "d")
        for value in ("", "x", "w")
        for effect in (NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE)
    ]
    for tolerations in (many, few):
        known = Tolerations(tolerations)
        assert [known.cover(taint) for taint in taints] == [any_tolerates(tolerations, t) for t in taints]
