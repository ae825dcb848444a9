"""DynamicResources: searches that take too long, on a node and in an attempt."""

from __future__ import annotations

import time
from itertools import count

import pytest

from bayplan.framework.args import Duration
from bayplan.plugin import Code, CycleState, NodeColumns
from bayplan.plugin.args import DynamicResourcesArgs
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.results import NOT_EVALUATED, TIMED_OUT
from bayplan.scheduler.core import CoreHandle
from bayplan.state.cluster import Cluster
from tests.dra.hard import hard_claim, hard_slices

from .clusters import claiming, cluster_with

NODES = ("a", "b", "c")
UNEVALUATED = NOT_EVALUATED.format(claim="default/c")


def hard_cluster() -> Cluster:
    slices = (item for name in NODES for item in hard_slices(name))
    return cluster_with(hard_claim("c"), *slices, nodes=NODES)


def limited(cluster: Cluster) -> DynamicResources:
    """An attempt may take 20,000 steps."""
    return DynamicResources(DynamicResourcesArgs(filter_timeout=Duration.of(0.2)), CoreHandle(cluster))


def attempt(plugin: DynamicResources, cluster: Cluster, state: CycleState) -> list[str]:
    """The errors in one attempt, in the order of their nodes."""
    nodes = NodeColumns(cluster)
    assert plugin.pre_filter(state, claiming, nodes) is None
    errors = [""] * len(nodes)
    for reject in plugin.filter(state, claiming, nodes):
        assert reject.status.code is Code.ERROR
        for row in nodes.rows[reject.mask]:
            errors[row] = str(reject.status.message)
    return errors


def timed_out(name: str) -> str:
    return TIMED_OUT.format(node=name)


def test_an_attempt_ends_with_its_budget_and_the_next_one_goes_on() -> None:
    cluster = hard_cluster()
    plugin, state = limited(cluster), CycleState()
    assert attempt(plugin, cluster, state) == [timed_out("a"), UNEVALUATED, UNEVALUATED]
    assert attempt(plugin, cluster, state) == [timed_out("a"), timed_out("b"), UNEVALUATED]
    assert attempt(plugin, cluster, state) == [timed_out("a"), timed_out("b"), timed_out("c")]


def test_filtering_again_in_the_same_attempt_searches_nothing() -> None:
    cluster = hard_cluster()
    plugin, state, nodes = limited(cluster), CycleState(), NodeColumns(cluster)
    assert attempt(plugin, cluster, state)[1:] == [UNEVALUATED, UNEVALUATED]
    reasons = {reject.status.message for reject in plugin.filter(state, claiming, nodes)}
    assert reasons == {timed_out("a"), UNEVALUATED}


def test_the_answer_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = hard_cluster()
    expected = attempt(limited(cluster), cluster, CycleState())
    seconds = count(step=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(time, "time", lambda: next(seconds))
    found = attempt(limited(cluster), cluster, CycleState())
    monkeypatch.undo()
    assert found == expected
