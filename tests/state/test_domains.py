"""Sums over domains are updated as pods are added and removed, and agree with sums computed from scratch."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from bayplan.plugin import Cluster, Pod, PodQuery, PodSelector, compile_selector
from bayplan.plugin._internal import DomainSums
from bayplan.testing.builders import make_node, make_pod, make_selector

WEB = {"app": "web"}
QUERY = PodQuery((PodSelector(None, compile_selector(make_selector(WEB))),))


def cluster_of(nodes: int = 40) -> Cluster:
    """Nodes in zones 0, 1 and 2; every tenth has none."""
    cluster = Cluster()
    for number in range(nodes):
        labels = {} if number % 10 == 9 else {"zone": str(number % 3)}
        cluster.set_node(make_node(f"n{number}", labels=labels))
    return cluster


def sums_of(cluster: Cluster, eligible: NDArray[np.bool_] | None = None) -> DomainSums:
    count = cluster.count(QUERY)
    return DomainSums(cluster.nodes, cluster.changes, count, cluster.nodes.label("zone"), eligible)


def added_up(cluster: Cluster, eligible: NDArray[np.bool_] | None = None) -> dict[str, int]:
    result: dict[str, int] = {}
    for row, node in enumerate(cluster.nodes.node):
        if node is not None and "zone" in node.labels and (eligible is None or eligible[row]):
            here = sum(pod.labels == WEB for pod in cluster.pods_on(row))
            result[node.labels["zone"]] = result.get(node.labels["zone"], 0) + here
    return result


def named(cluster: Cluster, sums: DomainSums) -> dict[str, int]:
    values = cluster.nodes.label("zone").values.values
    assert sums.sums[-1] == 0
    assert sums.total == sums.sums.sum()
    return {value: int(sums.sums[index]) for index, value in enumerate(values) if sums.members[index]}


def web(name: object) -> Pod:
    return make_pod(f"w{name}", labels=WEB)


def test_pods_that_were_there_before() -> None:
    cluster = cluster_of()
    for number in range(20):
        cluster.add_pod(web(number), f"n{number}")
    assert named(cluster, sums_of(cluster)) == added_up(cluster)


def test_pods_that_are_added_and_removed() -> None:
    cluster = cluster_of()
    sums = sums_of(cluster)
    cluster.add_pod(web("a"), "n0")
    sums.refresh()
    assert named(cluster, sums) == {"0": 1, "1": 0, "2": 0}
    cluster.remove_pod(web("a").uid)
    sums.refresh()
    assert named(cluster, sums) == {"0": 0, "1": 0, "2": 0}


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        pytest.param(make_pod("other"), "n0", id="a pod that does not count"),
        pytest.param(web("a"), "n9", id="a node without the label"),
    ],
)
def test_what_changes_no_sum_is_no_change(pod: Pod, node: str) -> None:
    cluster = cluster_of()
    sums = sums_of(cluster)
    cluster.add_pod(pod, node)
    assert sums.refresh() == []
    assert sums.total == 0


def test_nothing_happened() -> None:
    cluster = cluster_of()
    sums = sums_of(cluster)
    assert sums.refresh() == []


def test_rows_whose_domain_gets_its_first_pod_or_loses_its_last() -> None:
    """They are listed if the domain is that node alone."""
    cluster = Cluster()
    for name, zone in (("n0", "alone"), ("n1", "shared"), ("n2", "shared"), ("n3", "empty")):
        cluster.set_node(make_node(name, labels={"zone": zone}))
    sums = sums_of(cluster)
    assert sums.occupied().tolist() == [False, False, False, False]
    cluster.add_pod(web("a"), "n0")
    assert sums.refresh() == [0]
    assert sums.occupied().tolist() == [True, False, False, False]
    cluster.add_pod(web("b"), "n0")
    assert sums.refresh() == []
    cluster.add_pod(web("c"), "n2")
    assert sums.refresh() is None
    assert sums.occupied().tolist() == [True, True, True, False]
    assert [sums.is_occupied(row) for row in range(4)] == [True, True, True, False]
    for name in "ab":
        cluster.remove_pod(web(name).uid)
    assert sums.refresh() == [0]
    assert sums.occupied().tolist() == [False, True, True, False]


def test_nodes_that_do_not_count() -> None:
    cluster = cluster_of()
    eligible = np.arange(cluster.nodes.high) % 2 == 0
    sums = sums_of(cluster, eligible)
    for number in range(20):
        cluster.add_pod(web(number), f"n{number}")
    sums.refresh()
    assert named(cluster, sums) == added_up(cluster, eligible)


def test_nodes_that_are_gone_do_not_count() -> None:
    cluster = cluster_of(3)
    cluster.add_pod(web("a"), "n0")
    cluster.remove_node("n0")
    sums = sums_of(cluster)
    assert named(cluster, sums) == {"1": 0, "2": 0}
    cluster.add_pod(web("b"), "n0")
    sums.refresh()
    assert sums.total == 0


def test_how_many_nodes_a_domain_has() -> None:
    cluster = cluster_of(10)
    values = cluster.nodes.label("zone").values
    sums = sums_of(cluster)
    assert [int(sums.members[values.find(zone)]) for zone in "012"] == [3, 3, 3]


@pytest.mark.parametrize("often", [1, 7, 60], ids=lambda often: f"refreshed every {often}")
def test_a_long_life(often: int) -> None:
    """Updated row by row, computed from scratch if much changed, and after the log was trimmed."""
    rng = np.random.default_rng(often)
    cluster = cluster_of()
    sums = sums_of(cluster)
    running: list[str] = []
    for step in range(240):
        if running and rng.random() < 0.4:
            cluster.remove_pod(running.pop(int(rng.integers(len(running)))))
        else:
            pod = web(step) if rng.random() < 0.7 else make_pod(f"p{step}")
            cluster.add_pod(pod, f"n{int(rng.integers(40))}")
            running.append(pod.uid)
        if step % 50 == 0:
            cluster.changes.usage.trim()
        if step % often == 0:
            sums.refresh()
            assert named(cluster, sums) == added_up(cluster)


def test_only_rows_where_the_count_changed_are_evaluated() -> None:
    """Pods that the query does not match leave the sums current, however many are added."""
    cluster = cluster_of()
    sums, count = sums_of(cluster), cluster.count(QUERY)
    before = count.changed.changed_at
    for number in range(10):
        cluster.add_pod(make_pod(f"other{number}", labels={"app": "db"}), f"n{number}")
    assert count.changed.changed_at == before
    assert sums.refresh() == []
    cluster.add_pod(web(1), "n1")
    assert list(count.changed.since(before) or ()) == [cluster.nodes.row_of["n1"]]
    assert sums.refresh() is None
    assert named(cluster, sums) == added_up(cluster)


@pytest.mark.parametrize("pods", [1, 400], ids=["some rows", "everything"])
def test_after_an_exception_the_sums_are_still_stale(pods: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of()
    sums = sums_of(cluster)
    for number in range(pods):
        cluster.add_pod(web(number), f"n{number % 10}")

    def fail(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(DomainSums, "_flip", fail)
        patched.setattr(np, "bincount", fail)
        with pytest.raises(ZeroDivisionError):
            sums.refresh()
    sums.refresh()
    assert named(cluster, sums) == added_up(cluster)
