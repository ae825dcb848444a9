"""PreFilter: skipped plugins, the remaining nodes, and the message if there are none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bayplan.plugin import (
    SKIP,
    SUCCESS,
    Code,
    CycleState,
    Dependencies,
    NodeColumns,
    NodeNames,
    Plugin,
    Pod,
    Reject,
    Status,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.runtime.calls import AttemptError
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import FakeHandle
from tests.locations import without_location

from .profiles import found, make_framework, not_found

Answer = Status | NodeNames | None


class Answers(Plugin):
    """Returns the given PreFilter result, rejects nothing, and records its calls."""

    def __init__(self, answer: Answer | Exception = None, rejects: bool = False) -> None:
        super().__init__(None, FakeHandle())
        self.answer = answer
        self.rejects = rejects
        self.calls: list[str] = []

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Answer:
        self.calls.append("PreFilter")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        self.calls.append("Filter")
        yield Reject(self.rejects, unschedulable(f"rejected by {self.name}"))


class First(Answers):
    pass


class Second(Answers):
    pass


class Third(Answers):
    pass


class Cached(Answers):
    depends_on = Dependencies.of("labels")


class AlsoCached(Answers):
    depends_on = Dependencies.of("labels")


def only(*names: str) -> NodeNames:
    return NodeNames(frozenset(names))


class TestSkip:
    @pytest.mark.parametrize("kind", [First, Cached], ids=["uncached", "cached"])
    def test_the_filter_of_a_plugin_that_skips_is_not_run(self, kind: type[Answers]) -> None:
        plugin = kind(SKIP, rejects=True)
        assert found(make_framework(plugin), make_pod()).evaluated == 1
        assert plugin.calls == ["PreFilter"]

    def test_it_is_run_again_for_each_attempt(self) -> None:
        plugin = First(SKIP, rejects=True)
        framework = make_framework(plugin)
        found(framework, make_pod("a"))
        plugin.answer = None
        assert not_found(framework, make_pod("b")).diagnosis.rejecting_plugins == {"First"}


class TestNodeSets:
    def test_only_these_nodes_are_evaluated(self) -> None:
        framework = make_framework(First(only("n2")), nodes=4)
        assert found(framework, make_pod()).node_name == "n2"

    @pytest.mark.parametrize("kind", [Second, Cached], ids=["uncached", "cached"])
    def test_sets_of_several_plugins_are_intersected(self, kind: type[Answers]) -> None:
        framework = make_framework(First(only("n1", "n2")), kind(only("n2", "n3")), nodes=4)
        for name in ("a", "b"):
            assert found(framework, make_pod(name)).node_name == "n2"

    def test_all_others_get_the_reason(self) -> None:
        framework = make_framework(Second(only("n1", "n2")), First(only("n2", "n3"), rejects=True), nodes=4)
        diagnosis = not_found(framework, make_pod()).diagnosis
        absent = Status(Code.UNRESOLVABLE, ("node(s) didn't satisfy plugin(s) [First Second]",))
        assert diagnosis.absent_nodes_status == absent
        assert [diagnosis.status(row) == absent for row in range(4)] == [True, True, False, True]
        assert diagnosis.rejecting_plugins == {"First", "Second"}

    def test_nodes_that_do_not_exist_leave_no_candidate(self) -> None:
        framework = make_framework(First(only("nowhere")), nodes=2)
        diagnosis = not_found(framework, make_pod()).diagnosis
        assert diagnosis.absent_nodes_status.reasons == ("node(s) didn't satisfy plugin(s) [First]",)
        assert diagnosis.pre_filter_message == ""

    def test_a_node_that_is_gone_but_still_has_pods_is_none(self) -> None:
        framework = make_framework(First(only("n1")), nodes=3)
        framework.cluster.add_pod(make_pod("stays"), "n1")
        framework.cluster.remove_node("n1")
        assert len(not_found(framework, make_pod()).diagnosis.evaluated) == 0

    def test_an_empty_set_of_one_plugin(self) -> None:
        second = Second()
        diagnosis = not_found(make_framework(First(only()), second), make_pod()).diagnosis
        assert diagnosis.pre_filter_message == "node(s) didn't satisfy plugin First"
        assert diagnosis.absent_nodes_status == Status(
            Code.UNRESOLVABLE, ("node(s) didn't satisfy plugin First",)
        )
        assert diagnosis.rejecting_plugins == {"First"}
        assert second.calls == []

    def test_an_empty_intersection(self) -> None:
        """The names are sorted, and the run stops there."""
        third = Third()
        framework = make_framework(Second(only("n1")), First(only("n2")), third)
        diagnosis = not_found(framework, make_pod()).diagnosis
        text = "node(s) didn't satisfy plugin(s) [First Second] simultaneously"
        assert diagnosis.pre_filter_message == text
        assert diagnosis.rejecting_plugins == {"First", "Second"}
        assert third.calls == []

    def test_a_kept_set_is_used_again(self) -> None:
        plugin = Cached(only("n2"))
        framework = make_framework(plugin, nodes=4)
        for name in "abc":
            assert found(framework, make_pod(name)).node_name == "n2"
        assert plugin.calls.count("PreFilter") == 1


class TestRejections:
    @pytest.mark.parametrize("kind", [First, Cached], ids=["uncached", "cached"])
    def test_unresolvable_stops_the_run(self, kind: type[Answers]) -> None:
        second = Second(only("n1"))
        framework = make_framework(kind(unresolvable("a", "b")), second)
        for name in ("a", "b"):
            diagnosis = not_found(framework, make_pod(name)).diagnosis
            assert diagnosis.absent_nodes_status == Status(Code.UNRESOLVABLE, ("a", "b"), kind.__name__)
            assert diagnosis.pre_filter_message == "a, b"
            assert diagnosis.rejecting_plugins == {kind.__name__}
        assert second.calls == []

    def test_an_unresolvable_rejection_names_only_its_plugin(self) -> None:
        """Though others had narrowed the nodes down before."""
        framework = make_framework(First(only("n1")), Second(unresolvable("a")))
        assert not_found(framework, make_pod()).diagnosis.rejecting_plugins == {"Second"}

    def test_after_an_unschedulable_rejection_the_others_are_run(self) -> None:
        """They write the state that preemption will read."""
        second, third = Second(unschedulable("b")), Third(only("n1"))
        result = not_found(make_framework(First(unschedulable("a")), second, third), make_pod())
        assert result.diagnosis.absent_nodes_status == Status(Code.UNSCHEDULABLE, ("b",), "Second")
        assert result.diagnosis.rejecting_plugins == {"Second", "Third"}
        assert (second.calls, third.calls) == (["PreFilter"], ["PreFilter"])
        assert result.search.pre_filtered == {"First", "Second", "Third"}

    def test_unresolvable_after_unschedulable_wins(self) -> None:
        framework = make_framework(First(unschedulable("a")), Second(unresolvable("b")))
        assert not_found(framework, make_pod()).diagnosis.absent_nodes_status.code is Code.UNRESOLVABLE

    def test_a_kept_rejection_holds_for_the_next_pod(self) -> None:
        plugin = Cached(unschedulable("claimed"))
        framework = make_framework(plugin, AlsoCached())
        for name in "abc":
            assert not_found(framework, make_pod(name)).diagnosis.pre_filter_message == "claimed"
        assert plugin.calls == ["PreFilter"]

    def test_success_is_the_same_as_none(self) -> None:
        assert found(make_framework(First(SUCCESS)), make_pod())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(failure("disk full"), "disk full", id="an error"),
        pytest.param(Status(Code.PENDING, ("later",)), "later", id="pending"),
        pytest.param(Status(Code.WAIT, ("wait",)), "wait", id="wait"),
        pytest.param(RuntimeError("oops"), "RuntimeError: oops", id="an exception"),
        pytest.param(ValueError(), "ValueError", id="an exception without a text"),
        pytest.param(
            "yes",
            "pre_filter returned 'yes'; return None, SKIP, NodeNames(...), unschedulable(\"reason\") or "
            'unresolvable("reason")',
            id="no status at all",
        ),
    ],
)
@pytest.mark.parametrize("kind", [First, Cached], ids=["uncached", "cached"])
def test_anything_else_fails_the_attempt(kind: type[Answers], answer: Answer, text: str) -> None:
    framework = make_framework(kind(answer))
    for _ in range(2):
        with pytest.raises(AttemptError) as raised:
            framework.find(make_pod())
        given = str(raised.value)
        if not isinstance(answer, Status):
            given = without_location(given)
        assert given == f'running PreFilter plugin "{kind.__name__}": {text}'
        assert raised.value.plugin == kind.__name__


def test_all_plugins_count_as_evaluated_when_results_are_cached() -> None:
    """A PostFilter that checks whether its PreFilter was run gets the same every time."""
    framework = make_framework(Cached(), Second(rejects=True))
    for name in ("a", "b"):
        assert not_found(framework, make_pod(name)).search.pre_filtered == {"Cached", "Second"}


def test_those_behind_a_rejection_do_not_count_as_evaluated() -> None:
    framework = make_framework(First(unresolvable("no")), Cached(), Second())
    assert not_found(framework, make_pod()).search.pre_filtered == {"First"}


def test_those_before_a_rejection_count_as_evaluated_when_results_are_cached() -> None:
    """They ran for an earlier identical pod; those after the one that rejects it did not."""
    second = Second(rejects=True)
    framework = make_framework(Cached(), second, AlsoCached())
    not_found(framework, make_pod("a"))
    second.answer = unresolvable("no")
    assert not_found(framework, make_pod("b")).search.pre_filtered == {"Cached", "Second"}
