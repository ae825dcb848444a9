"""Which of the nodes where evicting helps is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bayplan.plugin import Cluster, Pod
from bayplan.preemption.choice import VictimTable, equally_good, pick_node, ranked
from bayplan.testing.builders import make_pdb

from .clusters import crowded, low, room_for, run

WEB = {"app": "web"}


def table_of(cluster: Cluster, cpu: int = 4, priority: int = 100) -> VictimTable:
    table = VictimTable(cluster.nodes.high)
    table.put(run(cluster, priority, room_for(cpu)))
    return table


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param(
            {"a": [low("a", 1, cpu=4, labels=WEB)], "b": [low("b", 50, cpu=2), low("c", 50, cpu=2)]},
            "b",
            id="fewest budgets violated",
        ),
        pytest.param(
            {"a": [low("a", 9, cpu=4)], "b": [low("b", 8, cpu=2), low("c", 8, cpu=2)]},
            "b",
            id="then the least important first victim",
        ),
        pytest.param(
            {"a": [low("a", 9, cpu=2), low("b", 8, cpu=2)], "b": [low("c", 9, cpu=2), low("d", 7, cpu=2)]},
            "b",
            id="then the smallest sum of priorities",
        ),
        pytest.param(
            {"a": [low("a", 9, cpu=2), low("b", -2147483648, cpu=2)], "b": [low("c", 9, cpu=4)]},
            "b",
            id="where even the lowest priority adds up, or else fewest victims",
        ),
        pytest.param(
            {"a": [low("a", 9, cpu=4, started=1)], "b": [low("b", 9, cpu=4, started=2)]},
            "b",
            id="then the latest start",
        ),
        pytest.param(
            {
                "a": [low("a", 9, cpu=2, started=5), low("b", 8, cpu=2, started=0)],
                "b": [low("c", 9, cpu=2, started=4), low("d", 8, cpu=2, started=9)],
            },
            "a",
            id="of the most important victims only",
        ),
        pytest.param(
            {
                "a": [low("a", 9, cpu=2, started=1), low("b", 9, cpu=2, started=9)],
                "b": [low("c", 9, cpu=2, started=2), low("d", 9, cpu=2, started=3)],
            },
            "b",
            id="of the one among them that started first",
        ),
        pytest.param(
            {"a": [low("a", 9, cpu=4, started=1.0)], "b": [low("b", 9, cpu=4, started=1.0000001)]},
            "b",
            id="to the microsecond",
        ),
        pytest.param({"a": [low("a", 9, cpu=4)], "b": [low("b", 9, cpu=4)]}, "a", id="or else the first"),
    ],
)
def test_least_is_lost(pods: Mapping[str, Sequence[Pod]], expected: str) -> None:
    cluster = crowded(**pods)
    cluster.objects.put(make_pdb("web", WEB))
    chosen = pick_node(table_of(cluster), cluster.order)
    assert chosen is not None
    assert cluster.nodes.name[chosen] == expected


def test_nothing_to_choose_from() -> None:
    cluster = crowded(a=[low("a", cpu=4)])
    assert pick_node(table_of(cluster), cluster.order[:0]) is None


def test_nodes_among_which_only_chance_decides() -> None:
    cluster = crowded(a=[low("a", cpu=4)], b=[low("b", 3, cpu=4)], c=[low("c", cpu=4)])
    table = table_of(cluster)
    names = cluster.nodes.name
    assert [names[row] for row in equally_good(table, cluster.order)] == ["a", "c"]
    assert [names[row] for row in ranked(table, cluster.order)] == ["a", "c", "b"]
