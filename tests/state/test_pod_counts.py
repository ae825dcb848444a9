"""How many pods on each node match a query."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from bayplan.api.meta import LabelSelector
from bayplan.plugin import Cluster, Pod, PodQuery, PodSelector, compile_selector
from bayplan.state import counts as module
from bayplan.testing.builders import make_expression, make_node, make_pod, make_selector

WEB = {"app": "web"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def query(
    selector: LabelSelector | None = None, *namespaces: str, alive: bool = False, everything: bool = False
) -> PodQuery:
    compiled = compile_selector(make_selector() if everything else selector)
    return PodQuery((PodSelector(frozenset(namespaces) if namespaces else None, compiled),), alive)


def cluster_of(nodes: int = 3) -> Cluster:
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_node(make_node(f"n{number}"))
    return cluster


def counts(cluster: Cluster, queried: PodQuery) -> list[int]:
    found: list[int] = cluster.count(queried).column.read.tolist()
    return found


def web(name: str, *, deleted: bool = False, namespace: str = "default") -> Pod:
    return make_pod(name, labels=WEB, namespace=namespace, deleted=NOW if deleted else None)


@pytest.mark.parametrize(
    "queried_first", [True, False], ids=["queried before the pods came", "queried afterwards"]
)
@pytest.mark.parametrize(
    ("queried", "expected"),
    [
        pytest.param(query(make_selector(WEB)), [2, 1, 1], id="by label, in all namespaces"),
        pytest.param(query(make_selector(WEB), "default"), [2, 0, 1], id="in one namespace"),
        pytest.param(query(make_selector(WEB), alive=True), [1, 1, 1], id="without those being deleted"),
        pytest.param(
            query(make_selector({}, make_expression("app", "NotIn", "web"))),
            [0, 1, 0],
            id="by what they lack",
        ),
        pytest.param(query(everything=True), [2, 2, 1], id="all pods"),
        pytest.param(query(None), [0, 0, 0], id="none"),
        pytest.param(PodQuery(()), [2, 2, 1], id="no condition at all"),
    ],
)
def test_counting(queried: PodQuery, expected: list[int], queried_first: bool) -> None:
    cluster = cluster_of()
    if queried_first:
        assert counts(cluster, queried) == [0, 0, 0]
    for pod, node in (
        (web("a"), "n0"),
        (web("b", deleted=True), "n0"),
        (web("c", namespace="other"), "n1"),
        (make_pod("d"), "n1"),
        (web("e"), "n2"),
    ):
        cluster.add_pod(pod, node)
    cluster.nominate(web("expected"), "n2")
    assert counts(cluster, queried) == expected


def test_removed_pods_are_not_counted() -> None:
    cluster = cluster_of(1)
    queried = query(make_selector(WEB))
    for name in "abc":
        cluster.add_pod(web(name), "n0")
    assert counts(cluster, queried) == [3]
    cluster.remove_pod(web("b").uid)
    assert counts(cluster, queried) == [2]


def test_a_pod_that_starts_to_be_deleted_no_longer_counts_as_alive() -> None:
    cluster = cluster_of(1)
    alive, all_of_them = query(make_selector(WEB), alive=True), query(make_selector(WEB))
    cluster.add_pod(web("a"), "n0")
    assert (counts(cluster, alive), counts(cluster, all_of_them)) == ([1], [1])
    cluster.update_pod(web("a", deleted=True))
    assert (counts(cluster, alive), counts(cluster, all_of_them)) == ([0], [1])
    cluster.remove_pod(web("a").uid)
    assert (counts(cluster, alive), counts(cluster, all_of_them)) == ([0], [0])


def test_labels_that_are_new_are_counted_where_they_match() -> None:
    cluster = cluster_of(1)
    exists = query(make_selector({}, make_expression("tier", "Exists")))
    one_of = query(make_selector({}, make_expression("tier", "In", "front", "back")))
    assert (counts(cluster, exists), counts(cluster, one_of)) == ([0], [0])
    cluster.add_pod(make_pod("a", labels={"tier": "front"}), "n0")
    cluster.add_pod(make_pod("b", labels={"tier": "middle"}), "n0")
    assert (counts(cluster, exists), counts(cluster, one_of)) == ([2], [1])


def test_equal_queries_share_a_column() -> None:
    cluster = cluster_of(1)
    one = query(make_selector({"a": "1", "b": "2"}))
    other = query(make_selector({"b": "2"}, make_expression("a", "In", "1")))
    assert cluster.count(one) is cluster.count(other)


def test_columns_grow_with_the_table() -> None:
    cluster = cluster_of(1)
    queried = query(make_selector(WEB))
    counts(cluster, queried)
    for number in range(1, 100):
        cluster.set_node(make_node(f"n{number}"))
    cluster.add_pod(web("a"), "n99")
    assert counts(cluster, queried)[99] == 1


def test_which_sets_of_labels_match() -> None:
    """A table by id; it has sets that came after it was made."""
    cluster = cluster_of(1)
    cluster.add_pod(make_pod("a"), "n0")
    count = cluster.count(query(make_selector(WEB)))
    assert count.matches_set(len(cluster.label_sets)).tolist() == [False]
    cluster.add_pod(web("b"), "n0")
    cluster.add_pod(make_pod("c", labels={"app": "db"}), "n0")
    cluster.count(count.query)
    assert count.matches_set(len(cluster.label_sets)).tolist() == [False, True, False]


class TestForgetting:
    """Queries that are no longer used are dropped."""

    def test_those_used_last_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_QUERIES", 4)
        cluster = cluster_of(1)
        cluster.add_pod(web("w"), "n0")
        kept = cluster.count(query(make_selector(WEB)))
        for number in range(20):
            cluster.count(query(make_selector({"app": str(number)})))
            cluster.counts.touch(kept)
        assert len(cluster.counts) <= 4
        assert cluster.count(query(make_selector(WEB))) is kept
        cluster.add_pod(web("v"), "n0")
        assert kept.column.read.tolist() == [2]

    def test_dropping_is_a_change(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_QUERIES", 4)
        cluster = cluster_of(1)
        queried = query(make_selector(WEB))
        old, before = cluster.count(queried), cluster.changes.queries.changed_at
        for number in range(20):
            cluster.count(query(make_selector({"app": str(number)})))
        assert cluster.changes.queries.changed_at > before
        cluster.add_pod(web("w"), "n0")
        assert cluster.count(queried) is not old
        assert counts(cluster, queried) == [1]
        cluster.remove_pod(web("w").uid)
        assert counts(cluster, queried) == [0]

    def test_their_columns_are_given_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_QUERIES", 4)
        cluster = cluster_of(1)
        for number in range(50):
            cluster.count(query(make_selector({"app": str(number)})))
        assert len(cluster.nodes._columns) < 30


def test_counts_agree_with_counting() -> None:
    """A long random life, checked against going through all pods."""
    rng = np.random.default_rng(7)
    cluster = cluster_of(4)
    queries = [
        query(make_selector(WEB)),
        query(make_selector(WEB), "default", alive=True),
        query(make_selector({}, make_expression("tier", "DoesNotExist"))),
    ]
    running: dict[str, tuple[Pod, int]] = {}
    for step in range(400):
        if running and rng.random() < 0.45:
            uid = list(running)[int(rng.integers(len(running)))]
            cluster.remove_pod(uid)
            del running[uid]
        else:
            labels = {
                **(WEB if rng.random() < 0.5 else {}),
                **({"tier": str(step % 7)} if rng.random() < 0.3 else {}),
            }
            node = int(rng.integers(4))
            pod = make_pod(
                f"p{step}",
                labels=labels,
                namespace="default" if rng.random() < 0.7 else "other",
                deleted=NOW if rng.random() < 0.2 else None,
            )
            cluster.add_pod(pod, f"n{node}")
            running[pod.uid] = (pod, node)
        if step % 20 == 0:
            for queried in queries[: 1 + step // 150]:
                expected = [0] * 4
                for pod, node in running.values():
                    if queried.matches(pod.namespace, pod.labels) and not (
                        queried.alive and pod.is_terminating
                    ):
                        expected[node] += 1
                assert counts(cluster, queried) == expected
