"""One attempt from beginning to end: the decision about a pod that fits nowhere."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from bayplan.extender.steps import CycleExtenders
from bayplan.framework.points import Point
from bayplan.plugin import (
    SUCCESS,
    Cluster,
    Code,
    CycleState,
    FilterOutcome,
    NodeColumns,
    Plugin,
    Pod,
    PostFilterResult,
    Reject,
    Status,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.preemption import Eviction, Nomination
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import Profile
from bayplan.runtime.search import FilterRequest, FilterResponse
from bayplan.scheduler.cycle import Decision, decide, scheduling_cycle
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import FakeHandle, make_plugin
from tests.locations import without_location


class No(Plugin):
    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(True, unschedulable("no"))


class Answers(Plugin):
    """A PostFilter that returns the given result."""

    def __init__(self, answer: PostFilterResult | Exception) -> None:
        super().__init__(None, FakeHandle())
        self.answer = answer
        self.calls = 0

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class First(Answers):
    pass


class Second(Answers):
    pass


def attempt(*post_filters: Plugin, nodes: int = 2) -> Decision:
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_node(make_node(f"n{number}"))
    profile = Profile("test", {Point.FILTER: [make_plugin(No)], Point.POST_FILTER: post_filters}, {})
    return decide(Framework(profile, cluster), make_pod())


TEXT = "0/2 nodes are available: 2 no."


def test_without_nodes_there_is_nothing_to_evaluate() -> None:
    decision = attempt(First(PostFilterResult(SUCCESS)), nodes=0)
    assert decision.message == "no nodes available to schedule pods"
    assert decision.status == Status(Code.UNRESOLVABLE, (decision.message,))
    assert (decision.nomination, decision.diagnosis, decision.post_filter) == (Nomination(""), None, None)


def test_without_post_filter_plugins_the_nomination_is_cleared() -> None:
    decision = attempt()
    assert (decision.message, decision.nomination) == (TEXT, Nomination(""))
    assert decision.status == Status(Code.UNSCHEDULABLE, (TEXT,))


KEEP, CLEAR, N1 = None, Nomination(""), Nomination("n1")


@pytest.mark.parametrize(
    ("first", "second", "message", "nomination", "calls"),
    [
        pytest.param(
            PostFilterResult(unschedulable("a")),
            PostFilterResult(unschedulable("b", "c")),
            f"{TEXT} a, b, c",
            KEEP,
            1,
            id="reasons of all are reported",
        ),
        pytest.param(
            PostFilterResult(unschedulable("a"), CLEAR),
            PostFilterResult(unschedulable("b")),
            f"{TEXT} a, b",
            CLEAR,
            1,
            id="a result without a nomination leaves the one before",
        ),
        pytest.param(
            PostFilterResult(unschedulable("a"), CLEAR),
            PostFilterResult(unschedulable("b"), N1),
            f"{TEXT} a, b",
            N1,
            1,
            id="the last word on the nomination counts",
        ),
        pytest.param(
            PostFilterResult(SUCCESS, N1),
            PostFilterResult(unschedulable("b")),
            TEXT,
            N1,
            0,
            id="success ends it",
        ),
        pytest.param(
            PostFilterResult(unschedulable("a")),
            PostFilterResult(SUCCESS, N1),
            TEXT,
            N1,
            1,
            id="a later success hides reasons",
        ),
        pytest.param(
            PostFilterResult(unresolvable("a"), CLEAR),
            PostFilterResult(SUCCESS, N1),
            f"{TEXT} a",
            CLEAR,
            0,
            id="unresolvable ends it",
        ),
        pytest.param(
            PostFilterResult(failure("a"), CLEAR),
            PostFilterResult(SUCCESS, N1),
            f"{TEXT} a",
            KEEP,
            0,
            id="an error ends it and leaves the nomination alone",
        ),
        pytest.param(
            PostFilterResult(unschedulable("a"), CLEAR),
            PostFilterResult(failure("b"), N1),
            f"{TEXT} b",
            KEEP,
            1,
            id="an error hides the reasons of others",
        ),
        pytest.param(
            PostFilterResult(Status(Code.PENDING, ("a",))),
            PostFilterResult(unschedulable("b")),
            f"{TEXT} a, b",
            KEEP,
            1,
            id="pending counts as a rejection",
        ),
        pytest.param(
            PostFilterResult(Status(Code.SKIP, ("a",))),
            PostFilterResult(unschedulable("b")),
            f"{TEXT} a",
            KEEP,
            0,
            id="any other answer is an error",
        ),
        pytest.param(
            RuntimeError("oops"),
            PostFilterResult(SUCCESS, N1),
            f'{TEXT} running PostFilter plugin "First": RuntimeError: oops',
            KEEP,
            0,
            id="so is an exception",
        ),
        pytest.param(
            KeyError(),
            PostFilterResult(SUCCESS, N1),
            f'{TEXT} running PostFilter plugin "First": KeyError',
            KEEP,
            0,
            id="one without a text is named",
        ),
    ],
)
def test_post_filter_answers(
    first: PostFilterResult | Exception,
    second: PostFilterResult,
    message: str,
    nomination: Nomination | None,
    calls: int,
) -> None:
    plugins = First(first), Second(second)
    decision = attempt(*plugins)
    given = without_location(decision.message) if isinstance(first, Exception) else decision.message
    assert (given, decision.nomination, plugins[1].calls) == (message, nomination, calls)
    assert decision.status == Status(Code.UNSCHEDULABLE, (decision.message,))
    assert bool(decision.traceback) == isinstance(first, Exception)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (PostFilterResult(unschedulable("a")), Status(Code.UNSCHEDULABLE, ("a",), "First")),
        (PostFilterResult(unresolvable("a")), Status(Code.UNRESOLVABLE, ("a",), "First")),
        (PostFilterResult(failure("a")), Status(Code.ERROR, ("a",), "First")),
        (
            RuntimeError("a"),
            Status(Code.ERROR, ('running PostFilter plugin "First": RuntimeError: a',), "First"),
        ),
    ],
    ids=["unschedulable", "unresolvable", "error", "exception"],
)
def test_the_plugin_is_named(answer: PostFilterResult | Exception, status: Status) -> None:
    decision = attempt(First(answer))
    assert decision.post_filter is not None
    given = decision.post_filter.status
    if isinstance(answer, Exception):
        given = Status(given.code, tuple(map(without_location, given.reasons)), given.plugin)
    assert given == status


def test_an_eviction_is_handed_on() -> None:
    eviction = Eviction("n1", (make_pod("victim"),), 1)
    decision = attempt(
        First(PostFilterResult(unschedulable("a"))), Second(PostFilterResult(SUCCESS, N1, eviction))
    )
    assert decision.post_filter is not None
    assert decision.post_filter.eviction is eviction


def test_with_extenders_the_cycle_is_resumed_with_their_answer() -> None:
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.set_node(make_node(name))
    framework = Framework(Profile("test", {}, {}), cluster)
    framework.extenders = CycleExtenders(framework, random.Random(0), needs_all_feasible=True)
    pod = make_pod()
    cycle = scheduling_cycle(framework, pod)
    assert next(cycle) == FilterRequest(pod, ["a", "b", "c"])
    with pytest.raises(StopIteration) as end:
        cycle.send(FilterResponse(("b",), removed=True))
    assert end.value.value.node_name == "b"


def test_without_an_answer_a_question_is_an_error() -> None:
    cluster = Cluster()
    cluster.set_node(make_node("a"))
    framework = Framework(Profile("test", {}, {}), cluster)
    framework.extenders = CycleExtenders(framework, random.Random(0), needs_all_feasible=True)
    with pytest.raises(RuntimeError, match="no extenders to answer FilterRequest"):
        decide(framework, make_pod())
