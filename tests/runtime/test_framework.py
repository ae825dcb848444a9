"""Which nodes a search evaluates, where it begins, and what it chooses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bayplan.framework.points import TieBreak
from bayplan.plugin import (
    SKIP,
    Code,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodeNames,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    Status,
    failure,
    normalize_default,
    unschedulable,
)
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.search import SearchStart
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import FakeHandle, make_plugin
from tests.locations import without_location

from .profiles import found, make_framework, not_found, statuses


class Score(Plugin):
    """Gives nodes the given scores, 0 to all others."""

    def __init__(self, **scores: int) -> None:
        super().__init__(None, FakeHandle())
        self.scores = scores
        self.shown: list[str] = []

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        self.shown = nodes.names
        return np.array([self.scores.get(name, 0) for name in nodes.names], dtype=np.int64)


class CachedScore(Score):
    depends_on = Dependencies.of()


class Other(Score):
    pass


class Rejects(Plugin):
    """Rejects the given nodes."""

    def __init__(self, *names: str, reason: str = "no", error: bool = False) -> None:
        super().__init__(None, FakeHandle())
        self.rejected = names
        self.reason = reason
        self.error = error

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        for name in self.rejected:
            yield Reject(
                nodes.is_named(name), failure(self.reason) if self.error else unschedulable(self.reason)
            )


class CachedRejects(Rejects):
    depends_on = Dependencies.of()


# Choosing


@pytest.mark.parametrize("kind", [Score, CachedScore], ids=["uncached", "cached"])
class TestChoosing:
    def test_the_highest_score_wins(self, kind: type[Score]) -> None:
        assert found(make_framework(kind(n1=7, n2=3)), make_pod()).node_name == "n1"

    def test_ties_are_broken_as_the_heap_breaks_them(self, kind: type[Score]) -> None:
        framework = make_framework(kind(n4=9, n5=9, n6=9), nodes=7)
        assert found(framework, make_pod()).node_name == "n4"

    def test_the_first_of_equal_nodes_is_taken_with_first_node(self, kind: type[Score]) -> None:
        framework = make_framework(kind(n2=9, n4=9, n5=9), nodes=7, tie_break=TieBreak.FIRST_NODE)
        assert found(framework, make_pod("a")).node_name == "n2"
        framework.cluster.add_pod(make_pod("x"), "n2")
        assert found(framework, make_pod("b")).node_name == "n2"
        framework.cluster.remove_node("n2")
        assert found(framework, make_pod("c")).node_name == "n4"

    def test_scores_are_weighted_and_added(self, kind: type[Score]) -> None:
        framework = make_framework(kind(n0=10, n1=7), Other(n1=20), weights={kind.__name__: 8, "Other": 1})
        assert found(framework, make_pod()).node_name == "n0"

    def test_a_weight_of_zero_counts_as_one(self, kind: type[Score]) -> None:
        framework = make_framework(kind(n2=1), weights={kind.__name__: 0})
        assert found(framework, make_pod()).node_name == "n2"

    def test_one_node_that_fits_is_taken_without_scoring(self, kind: type[Score]) -> None:
        class Unexpected(kind):  # type: ignore[misc,valid-type]  # either of the two
            def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
                raise AssertionError("not expected")

        framework = make_framework(Rejects("n0", "n1"), Unexpected(), nodes=3)
        assert found(framework, make_pod()).node_name == "n2"


def test_only_nodes_that_fit_are_scored() -> None:
    score = Score()
    found(make_framework(Rejects("n1"), score, nodes=4), make_pod())
    assert score.shown == ["n0", "n2", "n3"]


def test_without_score_plugins_the_first_node_that_fits_is_taken() -> None:
    framework = make_framework(Rejects("n0"), nodes=5)
    result = found(framework, make_pod())
    assert (result.node_name, result.feasible, result.evaluated) == ("n1", 1, 2)


def test_a_plugin_that_skips_pre_score_does_not_score() -> None:
    class NeverScores(Score):
        def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
            return SKIP

    assert found(make_framework(NeverScores(n2=100), Other(n1=1)), make_pod()).node_name == "n1"


def test_scores_are_normalised_over_the_nodes_that_fit() -> None:
    class Normal(Score):
        def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
            return normalize_default(scores)

    framework = make_framework(Rejects("n0"), Normal(n0=1000, n1=10, n2=5), Other(n2=51), nodes=3)
    assert found(framework, make_pod()).node_name == "n2"


# Statuses


def test_every_node_has_the_reasons_of_the_first_plugin_that_rejects_it() -> None:
    class Later(Rejects):
        pass

    framework = make_framework(Rejects("n0", "n1"), Later("n0", "n1", "n2", reason="later"))
    assert {name: status.plugin for name, status in statuses(framework, make_pod()).items()} == {
        "n0": "Rejects",
        "n1": "Rejects",
        "n2": "Later",
    }


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (CachedRejects, Rejects, "CachedRejects"),
        (Rejects, CachedRejects, "Rejects"),
    ],
)
def test_order_decides_whichever_is_cached(
    first: type[Rejects], second: type[Rejects], expected: str
) -> None:
    framework = make_framework(first("n0", "n1", "n2"), second("n0", "n1", "n2"))
    assert {status.plugin for status in statuses(framework, make_pod()).values()} == {expected}


def test_a_plugin_with_a_new_reason_every_time() -> None:
    """Earlier reasons are dropped in time, but not from earlier results."""

    class Load(Plugin):
        load = 0

        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
            self.load += 1
            yield Reject(True, unschedulable(f"load is {self.load}"))

    framework = make_framework(make_plugin(Load))
    first = not_found(framework, make_pod("first")).diagnosis
    for number in range(2500):
        latest = not_found(framework, make_pod(f"p{number}")).diagnosis
    assert (first.status(0).message, latest.status(0).message) == ("load is 1", "load is 2501")
    assert len(framework.begin(make_pod("next")).results.reasons[0]) < 2000


@pytest.mark.parametrize("kept", [False, True], ids=["uncached", "cached"])
def test_every_node_may_have_a_reason_of_its_own(kept: bool) -> None:
    class Personal(NodePlugin):
        depends_on = Dependencies.of() if kept else None

        def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
            return unschedulable(f"{node.name} has had enough")

    found_statuses = statuses(make_framework(make_plugin(Personal), nodes=100), make_pod())
    assert {name: status.message for name, status in found_statuses.items()} == {
        f"n{number}": f"n{number} has had enough" for number in range(100)
    }


def test_an_error_on_a_node_fails_the_attempt_and_the_next_search_starts_there() -> None:
    start = SearchStart()
    framework = make_framework(Rejects("n1", reason="broke", error=True), Score(), nodes=3, start=start)
    with pytest.raises(AttemptError) as raised:
        framework.find(make_pod())
    assert str(raised.value) == 'running "Rejects" filter plugin: broke'
    assert (raised.value.plugin, start.index) == ("Rejects", 1)


def test_a_diagnosis_does_not_change_with_the_cluster() -> None:
    framework = make_framework(CachedRejects("n0", "n1", "n2"), CachedScore())
    diagnosis = not_found(framework, make_pod("a")).diagnosis
    for name in ("n0", "n1", "n2"):
        framework.cluster.remove_node(name)
    framework.cluster.set_node(make_node("other"))
    found(framework, make_pod("b"))
    assert diagnosis.status(0) == Status(Code.UNSCHEDULABLE, ("no",), "CachedRejects")


# Errors of Score


class Scripted(Plugin):
    def __init__(self, answer: Any) -> None:
        super().__init__(None, FakeHandle())
        self.answer = answer

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class CachedScripted(Scripted):
    depends_on = Dependencies.of()


FAILED = 'running Score plugins: plugin "{}" failed with: '
INTEGERS = "return one integer for each row, for example np.rint(x).astype(np.int64)"
INVALID = (
    'applying score defaultWeights on Score plugins: plugin "{}" returns an invalid score {}, '
    "it should in the range of [0, 100] after normalizing"
)


@pytest.mark.parametrize("kind", [Scripted, CachedScripted], ids=["uncached", "cached"])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(RuntimeError("oops"), FAILED + "RuntimeError: oops", id="an exception"),
        pytest.param(KeyError(), FAILED + "KeyError", id="one without a text"),
        pytest.param(
            np.zeros(2, dtype=np.int64),
            FAILED + "score returned an array of shape (2,) for 3 rows; " + INTEGERS,
            id="too short",
        ),
        pytest.param(
            np.zeros(3), FAILED + "score returned an array of float64; " + INTEGERS, id="no whole numbers"
        ),
        pytest.param(np.array([0, 101, 0]), INVALID.replace("score {}", "score 101"), id="too high"),
        pytest.param(np.array([0, 5, -1]), INVALID.replace("score {}", "score -1"), id="too low"),
    ],
)
def test_what_a_score_must_not_be(kind: type[Scripted], answer: Any, text: str) -> None:
    framework = make_framework(kind(answer), nodes=3)
    for _ in range(2):
        with pytest.raises(AttemptError) as raised:
            framework.find(make_pod())
        given = str(raised.value)
        if not text.startswith("applying"):
            given = without_location(given)
        assert given == text.replace("{}", kind.__name__)
        assert raised.value.plugin == kind.__name__


class Normalizes(Scripted):
    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        if isinstance(self.answer, Exception):
            raise self.answer
        result: IntColumn = self.answer
        return result

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.arange(len(nodes), dtype=np.int64)


class CachedNormalizes(Normalizes):
    depends_on = Dependencies.of()


@pytest.mark.parametrize("kind", [Normalizes, CachedNormalizes], ids=["uncached", "cached"])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(
            RuntimeError("oops"),
            'running Normalize on Score plugins: plugin "{}" failed with: RuntimeError: oops',
            id="an exception",
        ),
        pytest.param(
            np.zeros(2, dtype=np.int64),
            'running Normalize on Score plugins: plugin "{}" failed with: '
            f"normalize returned an array of shape (2,) for 3 rows; {INTEGERS}",
            id="too short",
        ),
        pytest.param(np.array([0, 101, 7]), INVALID.replace("score {}", "score 101"), id="too high"),
    ],
)
def test_what_normalised_scores_must_not_be(kind: type[Normalizes], answer: Any, text: str) -> None:
    with pytest.raises(AttemptError) as raised:
        make_framework(kind(answer), nodes=3).find(make_pod())
    given = str(raised.value)
    if not text.startswith("applying"):
        given = without_location(given)
    assert given == text.replace("{}", kind.__name__)


class PreScores(Score):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class CachedPreScores(PreScores):
    depends_on = Dependencies.of()


@pytest.mark.parametrize("kind", [PreScores, CachedPreScores], ids=["uncached", "cached"])
@pytest.mark.parametrize(
    "answer", [RuntimeError("oops"), failure("oops"), Status(Code.UNSCHEDULABLE, ("oops",))]
)
def test_a_pre_score_that_fails(kind: type[PreScores], answer: Any) -> None:
    with pytest.raises(AttemptError) as raised:
        make_framework(kind(answer), nodes=3).find(make_pod())
    given = str(raised.value)
    if isinstance(answer, RuntimeError):
        given = without_location(given).replace("RuntimeError: ", "")
    assert given == f'running PreScore plugin "{kind.__name__}": oops'


@pytest.mark.parametrize("kept", [False, True], ids=["uncached", "cached"])
def test_a_filter_that_raises(kept: bool) -> None:
    class Raises(Plugin):
        depends_on = Dependencies.of() if kept else None

        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
            yield Reject(False, unschedulable("nothing yet"))
            raise ZeroDivisionError("division by zero")

    framework = make_framework(make_plugin(Raises), nodes=3)
    for _ in range(2):
        with pytest.raises(AttemptError) as raised:
            framework.find(make_pod())
        text = 'running "Raises" filter plugin: ZeroDivisionError: division by zero'
        assert without_location(str(raised.value)) == text
        assert "test_framework.py" in str(raised.value)
        assert 'raise ZeroDivisionError("division by zero")' in raised.value.traceback
        assert isinstance(raised.value.__cause__, ZeroDivisionError)


# Sampling


def many(*plugins: Plugin, percentage: int, nodes: int = 300, start: SearchStart | None = None) -> Any:
    return make_framework(*plugins, nodes=nodes, percentage=percentage, start=start)


@pytest.mark.parametrize(
    ("nodes", "percentage", "evaluated"),
    [
        pytest.param(99, 10, 99, id="fewer than a hundred: all"),
        pytest.param(100, 10, 100, id="a hundred at least"),
        pytest.param(300, 10, 100, id="however small the share"),
        pytest.param(300, 40, 120, id="the share, where it is more"),
        pytest.param(250, 50, 125, id="rounded down"),
        pytest.param(300, 99, 297, id="nearly all"),
        pytest.param(300, 100, 300, id="all"),
        pytest.param(300, 0, 300, id="nothing set: all, unlike upstream"),
    ],
)
def test_how_many_nodes_are_found_before_a_search_stops(nodes: int, percentage: int, evaluated: int) -> None:
    score = Score()
    result = found(many(score, percentage=percentage, nodes=nodes), make_pod())
    assert (result.feasible, result.evaluated, len(score.shown)) == (evaluated, evaluated, evaluated)


def test_searches_start_where_the_last_one_stopped() -> None:
    """Each begins where the one before it stopped."""
    score = Score()
    framework = many(score, percentage=40)
    first_shown = []
    for number in range(4):
        found(framework, make_pod(f"p{number}"))
        first_shown.append(score.shown[0])
        assert len(score.shown) == 120
    assert first_shown == ["n0", "n120", "n240", "n60"]


def test_nodes_that_do_not_fit_are_passed_over_and_counted() -> None:
    """120 feasible nodes are enough; the one after them is evaluated but not counted."""
    start = SearchStart()
    rejected = [f"n{number}" for number in range(0, 300, 3)]
    framework = many(Rejects(*rejected), Score(), percentage=40, start=start)
    result = found(framework, make_pod())
    assert (result.feasible, result.evaluated, start.index) == (120, 181, 181)


def test_too_few_that_fit_means_all_were_evaluated() -> None:
    start = SearchStart(7)
    rejected = [f"n{number}" for number in range(250)]
    result = found(many(Rejects(*rejected), Score(), percentage=40, start=start), make_pod())
    assert (result.feasible, result.evaluated, start.index) == (50, 300, 7)


def test_the_start_is_shared_by_profiles() -> None:
    start = SearchStart()
    one = many(Score(), percentage=40, start=start)
    two = make_framework(Score(), cluster=one.cluster, percentage=40, start=start)
    found(one, make_pod("a"))
    found(two, make_pod("b"))
    assert start.index == 240


def test_without_scores_a_search_stops_at_the_first_node_and_continues_from_there() -> None:
    framework = make_framework(Rejects("n1"), nodes=4)
    names = [found(framework, make_pod(f"p{number}")).node_name for number in range(5)]
    assert names == ["n0", "n2", "n3", "n0", "n2"]


def test_a_search_that_would_begin_behind_the_end_begins_where_upstream_does() -> None:
    """Nodes were deleted since the last one: the start counts modulo those that are left."""
    framework = make_framework(Rejects(), Score(), nodes=5, start=SearchStart(7))
    assert found(framework, make_pod()).node_name == "n2"
    kept = make_framework(CachedScore(), nodes=5, start=SearchStart(7))
    assert found(kept, make_pod()).node_name == "n2"


def test_a_search_among_named_nodes_moves_the_start_by_as_many() -> None:
    """Their order is undefined: upstream iterates over a set."""

    class Names(Plugin):
        def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> NodeNames:
            return NodeNames(frozenset(("n1", "n3", "n4")))

    start = SearchStart(4)
    score = Score()
    found(make_framework(make_plugin(Names), score, nodes=5, start=start), make_pod())
    assert sorted(score.shown) == ["n1", "n3", "n4"]
    assert start.index == (4 + 3) % 5


def test_a_search_that_prefilter_ends_moves_nothing() -> None:
    class Nothing(Plugin):
        def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> NodeNames:
            return NodeNames(frozenset())

    start = SearchStart(2)
    not_found(make_framework(make_plugin(Nothing), nodes=5, start=start), make_pod())
    assert start.index == 2
