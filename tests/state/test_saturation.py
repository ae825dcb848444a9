"""Requests that do not fit into a column: their node has no room, and sums stay exact."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.quantity import LARGE_REQUEST, MAX_ALLOCATABLE, MAX_REQUEST
from bayplan.plugin import Cluster, NodeColumns
from bayplan.plugin.preemption import Hypothesis
from bayplan.state.pods import NOT_STARTED
from bayplan.testing.builders import make_node, make_pod
from tests.effort import examples


def requested(cluster: Cluster, resource: str = "memory") -> list[int]:
    return [int(amount) for amount in NodeColumns(cluster).requested(resource)]


def test_two_pods_that_request_7ei_leave_no_room_on_their_node() -> None:
    cluster = Cluster()
    cluster.set_node(make_node("a", memory="8Ei"))
    cluster.add_pod(make_pod("small", memory=1000), "a")
    for name in ("one", "other"):
        cluster.add_pod(make_pod(name, memory="7Ei"), "a")
    assert requested(cluster) == [MAX_REQUEST]
    assert NodeColumns(cluster).pod_count.tolist() == [3]
    cluster.remove_pod(make_pod("one").uid)
    assert requested(cluster) == [MAX_REQUEST]
    cluster.remove_pod(make_pod("other").uid)
    assert requested(cluster) == [1000]
    assert not cluster.recounted_rows
    assert not cluster.pods.large


AMOUNTS = st.sampled_from([0, 1, 1000, LARGE_REQUEST - 1, LARGE_REQUEST, 2**61, 2**62, 2**63 - 1])


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=6),
    st.lists(st.tuples(AMOUNTS, AMOUNTS), max_size=3),
    st.data(),
)
def test_sums_are_those_of_the_pods_that_are_there(
    pods: list[tuple[int, int]], nominated: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Whatever is added and deleted, in the cluster and in hypotheses, in columns and in plain numbers."""
    cluster = Cluster()
    for name in "ab":
        cluster.set_node(make_node(name))
    amount = {}
    for index, (memory, gpu) in enumerate(pods):
        pod = make_pod(f"p{index}", memory=memory, requests={"example.com/gpu": gpu})
        amount[cluster.add_pod(pod, "a")] = memory, gpu
    for index, (memory, gpu) in enumerate(nominated):
        pod = make_pod(f"n{index}", memory=memory, requests={"example.com/gpu": gpu})
        cluster.nominate(pod, "a")
        amount[cluster.nominated_slot(pod.uid)] = memory, gpu
    here = cluster.row_pods[0]
    gone = data.draw(st.sets(st.sampled_from(here)))
    added = [slot for slot in amount if slot not in here]
    changes = [*((slot, -1) for slot in gone), *((slot, 1) for slot in added)]
    view = Hypothesis.on_few_rows(cluster, [0, 1], [changes, []])
    for resource, which in (("memory", 0), ("example.com/gpu", 1)):
        there = sum(min(amount[slot][which], MAX_REQUEST) for slot in (set(here) - gone) | set(added))
        assert view.requested(resource).tolist() == [min(there, MAX_REQUEST), 0]
        assert min(view.one(0).requested(resource), MAX_REQUEST) == min(there, MAX_REQUEST)
    assert view.subset(np.array([1], dtype=np.intp)).requested("memory").tolist() == [0]
    for slot in gone:
        leaving = cluster.pods.pod[slot]
        assert leaving is not None
        cluster.remove_pod(leaving.uid)
    left = sum(min(amount[slot][0], MAX_REQUEST) for slot in set(here) - gone)
    assert requested(cluster)[0] == min(left, MAX_REQUEST)


def test_sums_over_very_many_pods_saturate() -> None:
    """32,769 pods, none of which is large by itself."""
    cluster = Cluster()
    cluster.set_node(make_node("a"))
    pod = make_pod("p", memory=LARGE_REQUEST - 1)
    info = cluster.pod_infos.of(pod)
    for index in range(2**15 + 1):
        cluster.add_pod(make_pod(f"p{index}"), "a", info)
    assert requested(cluster) == [MAX_REQUEST]
    assert NodeColumns(cluster).pod_count.tolist() == [2**15 + 1]
    cluster.remove_pod(make_pod("p0").uid)
    assert requested(cluster) == [MAX_REQUEST]


@pytest.mark.parametrize(
    ("written", "counted"), [("8Ei", MAX_ALLOCATABLE), ("1e40", MAX_ALLOCATABLE), ("-5", 0), ("5", 5)]
)
def test_what_a_node_offers_saturates(written: str, counted: int) -> None:
    cluster = Cluster()
    cluster.set_node(make_node("a", memory=written, pods=written))
    nodes = NodeColumns(cluster)
    assert nodes.allocatable("memory").tolist() == nodes.allowed_pods.tolist() == [counted]


@pytest.mark.parametrize("year", [1, 1600, 2300, 9999])
def test_a_pod_may_have_started_in_any_year(year: int) -> None:
    cluster = Cluster()
    pod = make_pod("p", started=datetime(year, 1, 1, tzinfo=UTC))
    slot = cluster.add_pod(pod, "a")
    started = cluster.pods.start.cell[slot]
    assert (started < 0) == (year < 1970)
    assert -NOT_STARTED < started < NOT_STARTED
