"""Loads by row: equal to those of one node at a time, and computed only for rows that changed."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import pytest

from bayplan.framework.state import CycleState
from bayplan.plugins.library.load_aware import LoadVariationRiskBalancing, TargetLoadPacking
from bayplan.plugins.library.load_aware.measurements import (
    MAX_AGE_SECONDS,
    MAX_SAMPLES,
    WINDOW_SECONDS,
    LoadColumns,
    Sample,
    UsageHistory,
)
from bayplan.scheduler.core import CoreHandle
from bayplan.state.cluster import Cluster
from bayplan.state.view import NodeColumns
from bayplan.testing.builders import make_node, make_pod

CPU_MILLI = 10_000


def cluster_of(*names: str) -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.set_node(make_node(name, cpu="10", memory="10Gi"))
    return cluster


def columns_of(history: UsageHistory) -> LoadColumns:
    return LoadColumns(
        history, ("cpu", "memory"), lambda cluster, row, resource: CPU_MILLI if resource == "cpu" else 0
    )


def cpu_load(columns: LoadColumns, cluster: Cluster, now: float) -> dict[str, tuple[float, ...] | None]:
    """Latest, mean and deviation by node; None: unknown."""
    columns.update(cluster, now)
    nodes = NodeColumns(cluster, cluster.order)
    load, known = columns.load(nodes, "cpu"), columns.known(nodes, now)
    return {
        name: (load.latest[i], load.mean[i], load.deviation[i])
        if known[i] and not math.isnan(load.latest[i])
        else None
        for i, name in enumerate(nodes.names)
    }


def test_mean_and_deviation_of_the_samples() -> None:
    cluster, history = cluster_of("n", "unmeasured"), UsageHistory()
    columns = columns_of(history)
    history.add({"n": Sample(0, {"cpu": 1000, "memory": 1})})
    history.add({"n": Sample(30, {"cpu": 3000})})
    assert cpu_load(columns, cluster, 30) == {"n": pytest.approx((0.3, 0.2, 0.1)), "unmeasured": None}
    assert cpu_load(columns, cluster, 31 + MAX_AGE_SECONDS)["n"] is None
    memory = columns.load(NodeColumns(cluster), "memory")
    assert np.isnan(memory.latest).all()  # the nodes have no memory


def test_samples_leave_the_window() -> None:
    cluster, history = cluster_of("n"), UsageHistory()
    columns = columns_of(history)
    history.add({"n": Sample(0, {"cpu": 1000})})
    history.add({"n": Sample(WINDOW_SECONDS - 100, {"cpu": 3000})})
    assert cpu_load(columns, cluster, WINDOW_SECONDS)["n"] == pytest.approx((0.3, 0.2, 0.1))
    assert cpu_load(columns, cluster, WINDOW_SECONDS + 1)["n"] == pytest.approx((0.3, 0.3, 0))
    assert columns.rows_computed == 2


def test_only_rows_that_changed_are_computed() -> None:
    cluster, history = cluster_of(*(f"n{i}" for i in range(50))), UsageHistory()
    columns = columns_of(history)
    history.add({f"n{i}": Sample(0, {"cpu": 100.0 * i}) for i in range(50)})

    def computed(now: float) -> int:
        before = columns.rows_computed
        columns.update(cluster, now)
        return columns.rows_computed - before

    assert computed(1) == 50
    assert computed(2) == 0
    cluster.add_pod(make_pod("p", cpu="1"), "n3")
    assert computed(3) == 0
    cluster.set_node(make_node("n3", cpu="5"))
    assert computed(4) == 1
    cluster.set_node(make_node("new"))
    assert computed(5) == 1
    history.add({f"n{i}": Sample(30, {"cpu": 100.0 * i}) for i in range(40)})
    assert computed(31) == 51
    assert computed(32) == 0
    assert [name for name, load in cpu_load(columns, cluster, 32).items() if load is None] == [
        *(f"n{i}" for i in range(40, 50)),
        "new",
    ]


@pytest.mark.parametrize("kind", [TargetLoadPacking, LoadVariationRiskBalancing])
def test_attempts_on_an_unchanged_cluster_compute_nothing(
    kind: type[TargetLoadPacking] | type[LoadVariationRiskBalancing],
) -> None:
    cluster = cluster_of(*(f"n{i}" for i in range(50)))
    plugin = kind(None, CoreHandle(cluster))
    now = CoreHandle(cluster).now()
    plugin.usage.history.add({f"n{i}": Sample(now, {"cpu": i / 50}, are_shares=True) for i in range(50)})
    first = plugin.score(CycleState(), make_pod("p"), NodeColumns(cluster))
    computed = plugin._columns.rows_computed
    assert computed == 50
    for _ in range(3):
        assert (plugin.score(CycleState(), make_pod("p"), NodeColumns(cluster)) == first).all()
    some = np.array([7, 3])
    assert plugin.score(CycleState(), make_pod("p"), NodeColumns(cluster, some)).tolist() == [
        first[7],
        first[3],
    ]
    assert plugin._columns.rows_computed == computed


def test_a_row_that_another_node_took_over_has_its_load() -> None:
    cluster, history = cluster_of("old"), UsageHistory()
    columns = columns_of(history)
    history.add({"old": Sample(0, {"cpu": 1000}), "new": Sample(0, {"cpu": 5000})})
    assert cpu_load(columns, cluster, 1) == {"old": pytest.approx((0.1, 0.1, 0))}
    cluster.remove_node("old")
    cluster.set_node(make_node("new"))
    assert cpu_load(columns, cluster, 2) == {"new": pytest.approx((0.5, 0.5, 0))}


def test_what_was_assigned_to_the_node_before_does_not_count_for_the_next_of_the_row() -> None:
    cluster = cluster_of("old")
    plugin = TargetLoadPacking(None, CoreHandle(cluster))
    plugin.score(CycleState(), make_pod("p"), NodeColumns(cluster))
    plugin.reserve(CycleState(), make_pod("p", cpu="1"), "old")
    now = CoreHandle(cluster).now()
    assert plugin._recent.missing(plugin._columns, now).tolist() == [1500]
    cluster.remove_node("old")
    cluster.set_node(make_node("new"))
    plugin.score(CycleState(), make_pod("p"), NodeColumns(cluster))
    assert plugin._recent.missing(plugin._columns, now).tolist() == [0]


def test_history_is_bounded_and_follows_the_nodes() -> None:
    history = UsageHistory()
    for time in range(100):
        history.add({"n": Sample(time, {"cpu": 1.0}), f"short-{time}": Sample(time, {})})
    assert set(history.place_of) == {"n", "short-99"}
    assert history.times[:, history.place_of["n"]].tolist() == list(range(100 - MAX_SAMPLES, 100))
    history.add({f"many-{i}": Sample(100, {"cpu": i}) for i in range(300)})
    assert history.amounts["cpu"][-1, history.place_of["many-299"]] == 299


def plain_load(samples: list[Sample], capacity: float, now: float) -> tuple[float, ...] | None:
    """The rule for one node, sample by sample."""
    if not samples or now - samples[-1].time > MAX_AGE_SECONDS or capacity <= 0:
        return None
    shares = [
        sample.amounts["cpu"] / (1 if sample.are_shares else capacity)
        for sample in samples
        if "cpu" in sample.amounts and now - sample.time <= WINDOW_SECONDS
    ]
    if not shares:
        return None
    mean = sum(shares) / len(shares)
    return shares[-1], mean, math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))


@pytest.mark.parametrize("seed", range(10))
def test_columns_agree_with_the_rule_for_one_node(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(8)]
    cluster, history = cluster_of(*names[:4]), UsageHistory()
    columns = columns_of(history)
    kept: dict[str, list[Sample]] = {}
    now = 0.0
    for _ in range(120):
        now += rng.choice([1, 20, 40, 200])
        if rng.random() < 0.2:
            name = rng.choice(names)
            if name in cluster.nodes.row_of:
                cluster.remove_node(name)
            else:
                cluster.set_node(make_node(name))
        if rng.random() < 0.8:
            found: Mapping[str, Sample] = {
                name: Sample(
                    now - rng.choice([0, 10, 50]),
                    {"cpu": rng.randrange(10_000)} if rng.random() < 0.9 else {"memory": 1},
                )
                for name in names
                if rng.random() < 0.9
            }
            history.add(found)
            kept = {name: kept.get(name, []) for name in found}
            for name, sample in found.items():
                if not kept[name] or kept[name][-1].time < sample.time:
                    kept[name] = [*kept[name], sample][-MAX_SAMPLES:]
        expected = {
            name: None if (load := plain_load(kept.get(name, []), CPU_MILLI, now)) is None
            else pytest.approx(load)
            for name in cpu_load(columns, cluster, now)
        }  # fmt: skip
        assert cpu_load(columns, cluster, now) == expected
