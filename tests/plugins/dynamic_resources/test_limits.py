"""DynamicResources: searches that take too long, on a node and in an attempt."""

from __future__ import annotations

import time
from itertools import count

import pytest

from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.dra.budget import ElapsedTime
from bayplan.framework.args import Duration
from bayplan.framework.state import is_cut_off
from bayplan.plugin import Code, CycleState, NodeColumns
from bayplan.plugin.args import DynamicResourcesArgs
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.results import NOT_EVALUATED, TIMED_OUT
from bayplan.scheduler.core import CoreHandle
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_pod
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


def attempt(plugin: DynamicResources, cluster: Cluster, state: CycleState, pod: Pod = claiming) -> list[str]:
    """The errors in one attempt, in the order of their nodes."""
    nodes = NodeColumns(cluster)
    assert plugin.pre_filter(state, pod, nodes) is None
    errors = [""] * len(nodes)
    for reject in plugin.filter(state, pod, nodes):
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


def test_another_claim_of_the_same_content_is_not_searched_again() -> None:
    cluster = hard_cluster()
    plugin, state = limited(cluster), CycleState()
    attempt(plugin, cluster, state)
    assert is_cut_off(state)
    cluster.objects.put(hard_claim("other"))
    pod = make_pod("other", resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="other"),))
    other = CycleState.of(state.signature)
    assert attempt(plugin, cluster, other, pod)[:2] == [timed_out("a"), timed_out("b")]


def test_a_live_scheduler_searches_again_but_other_nodes_first() -> None:
    cluster, tenths = hard_cluster(), count()
    handle = CoreHandle(cluster)
    handle.search_clock = ElapsedTime(lambda: next(tenths) / 10)
    plugin, state = DynamicResources(DynamicResourcesArgs(), handle), CycleState()
    assert attempt(plugin, cluster, state) == [timed_out("a"), UNEVALUATED, UNEVALUATED]
    assert attempt(plugin, cluster, state) == [timed_out("a"), timed_out("b"), UNEVALUATED]
    for _ in range(2):
        before = next(tenths)
        assert attempt(plugin, cluster, state) == [timed_out("a"), timed_out("b"), timed_out("c")]
        assert next(tenths) > before + 2, "one node was searched in each attempt"


def test_the_answer_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = hard_cluster()
    expected = attempt(limited(cluster), cluster, CycleState())
    seconds = count(step=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(time, "time", lambda: next(seconds))
    found = attempt(limited(cluster), cluster, CycleState())
    monkeypatch.undo()
    assert found == expected
