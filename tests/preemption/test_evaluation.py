"""Eligibility to preempt, candidate nodes, and the status without candidates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from bayplan.api.meta import Condition
from bayplan.framework.outcome import PASS, Diagnosis, FilterOutcome, FilterRow, NodeStatuses, Reasons
from bayplan.framework.state import SignatureMemory
from bayplan.framework.status import Code, Status
from bayplan.plugin import Cluster, Pod, Reject, unschedulable
from bayplan.preemption import choice
from bayplan.preemption.evaluation import CachedDryRun, Sampling, evaluate, preemption_errors, why_not
from bayplan.preemption.victims import FilterHypothesis
from bayplan.state.hypothesis import Changes, Hypothesis
from bayplan.testing.builders import make_node, make_pdb, make_pod

from .clusters import crowded, low, room_for

EVICTED = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def outcome(
    cluster: Cluster,
    cpu: int = 4,
    *,
    unresolvable: Sequence[str] = (),
    unseen: Sequence[str] = (),
    absent: Status | None = None,
    broken: Sequence[str] = (),
) -> FilterOutcome:
    """A search that found no node: all were rejected with "Insufficient cpu", some of them for good."""
    reasons = {0: Reasons("Cpu")}
    for_now = reasons[0].with_reason(0, Reject(True, unschedulable("Insufficient cpu")))
    for_good = reasons[0].with_reason(0, Reject(True, Status(Code.UNRESOLVABLE, ("Insufficient cpu",))))
    high, row_of = cluster.nodes.high, cluster.nodes.row_of
    node_statuses = NodeStatuses(
        np.zeros(high, dtype=np.int8), np.full(high, for_now, dtype=np.int64), reasons
    )
    node_statuses.reason_id[[row_of[name] for name in unresolvable]] = for_good
    evaluated = np.array(
        [row for row in cluster.order if cluster.nodes.name[row] not in unseen], dtype=np.intp
    )
    assert PASS not in node_statuses.rejecting_plugin
    diagnosis = Diagnosis(cluster, cluster.node_count, evaluated, node_statuses)
    if absent is not None:
        diagnosis.absent_nodes_status = absent
    return FilterOutcome(
        cluster, diagnosis, room_for(cpu, broken), SignatureMemory(), (), set(), is_local=True
    )


def preemptor(**more: str) -> Pod:
    return make_pod("high", priority=100, cpu=4, **more)  # type: ignore[arg-type]  # by name


# Eligible?


def test_a_pod_that_never_preempts() -> None:
    cluster = crowded(n=[low("a", cpu=4)])
    found = evaluate(preemptor(preemption_policy="Never"), outcome(cluster))
    assert found.ineligible == "not eligible due to preemptionPolicy=Never."
    assert (found.found, found.eviction(cluster)) == (None, None)


def leaving(
    name: str, priority: int = 0, *, conditions: Sequence[Condition] = (EVICTED,), deleted: bool = True
) -> Pod:
    when = NOW if deleted else None
    return make_pod(name, priority=priority, cpu=4, conditions=conditions, deleted=when)


WAITS = "not eligible due to a terminating pod on the nominated node."


@pytest.mark.parametrize(
    ("pod", "there", "unresolvable", "expected"),
    [
        pytest.param(
            preemptor(nominated_node="n"), leaving("a"), (), WAITS, id="its victims are on their way out"
        ),
        pytest.param(preemptor(), leaving("a"), (), "", id="it has no nomination"),
        pytest.param(
            preemptor(nominated_node="n"), leaving("a"), ("n",), "", id="nothing helps on that node any more"
        ),
        pytest.param(preemptor(nominated_node="gone"), leaving("a"), (), "", id="that node is deleted"),
        pytest.param(
            preemptor(nominated_node="n"),
            leaving("a", deleted=False),
            (),
            "",
            id="no pod is terminating there",
        ),
        pytest.param(
            preemptor(nominated_node="n"),
            leaving("a", conditions=()),
            (),
            "",
            id="the terminating pod was not preempted",
        ),
        pytest.param(
            preemptor(nominated_node="n"),
            leaving(
                "a",
                conditions=[
                    Condition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
                ],
            ),
            (),
            "",
            id="or not by a scheduler",
        ),
        pytest.param(
            preemptor(nominated_node="n"),
            leaving(
                "a",
                conditions=[
                    Condition(type="DisruptionTarget", status="False", reason="PreemptionByScheduler")
                ],
            ),
            (),
            "",
            id="or is no longer to be",
        ),
        pytest.param(
            preemptor(nominated_node="n"),
            leaving("a", 100),
            (),
            "",
            id="the terminating pod has equal priority",
        ),
    ],
)
def test_a_pod_that_waits_for_its_victims(
    pod: Pod, there: Pod, unresolvable: Sequence[str], expected: str
) -> None:
    cluster = crowded(n=[there])
    assert evaluate(pod, outcome(cluster, unresolvable=unresolvable)).ineligible == expected


def test_a_nominated_node_that_was_not_evaluated() -> None:
    """It counts as one where nothing helps, unless PreFilter's status is that evicting may help."""
    cluster = crowded(n=[leaving("a")], m=[])
    pod = preemptor(nominated_node="n")
    assert evaluate(pod, outcome(cluster, unseen=["n", "m"])).ineligible == ""
    everywhere = Status(Code.UNSCHEDULABLE, ("claimed",), "P")
    assert evaluate(pod, outcome(cluster, unseen=["n", "m"], absent=everywhere)).ineligible == WAITS


# Candidates


def test_only_nodes_where_it_may_help_are_evaluated() -> None:
    cluster = crowded(a=[low("a", cpu=4)], b=[low("b", cpu=4)], c=[low("c", cpu=4)])
    found = evaluate(preemptor(), outcome(cluster, unresolvable=["a"], unseen=["b"]))
    assert [eviction.node_name for eviction in found.all_evictions(cluster)] == ["c"]


def test_where_prefilter_rejected_all_nodes_all_are_evaluated() -> None:
    cluster = crowded(a=[low("a", cpu=4)], b=[low("b", cpu=4)])
    absent = Status(Code.UNSCHEDULABLE, ("claimed",), "P")
    found = evaluate(preemptor(), outcome(cluster, unseen=["a", "b"], absent=absent))
    assert [eviction.node_name for eviction in found.all_evictions(cluster)] == ["a", "b"]


def test_the_best_node_and_its_victims() -> None:
    cluster = crowded(a=[low("a", 9, cpu=4)], b=[low("b", 3, cpu=2), low("c", 5, cpu=2)])
    eviction = evaluate(preemptor(), outcome(cluster)).eviction(cluster)
    assert eviction is not None
    assert eviction.node_name == "b"
    assert [victim.name for victim in eviction.victims] == ["c", "b"]


def test_the_status_without_candidates() -> None:
    """Nodes that were not evaluated are those where it does not help."""
    cluster = crowded(a=[], b=[low("b", 200, cpu=1), low("c")], c=[low("d", cpu=4)], d=[])
    found = outcome(cluster, unresolvable=["c", "d"])
    evaluation = evaluate(preemptor(), found)
    assert evaluation.eviction(cluster) is None
    assert why_not(evaluation, found) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_an_error_is_reported_once() -> None:
    cluster = crowded(a=[low("a", cpu=4)], b=[low("b", cpu=4)], c=[low("c", cpu=4)])
    evaluation = evaluate(preemptor(), outcome(cluster, broken=["a", "b", "c"]))
    assert preemption_errors(evaluation) == ['running "Cpu" filter plugin: broke']


def test_an_error_on_one_node_does_not_affect_others() -> None:
    cluster = crowded(a=[low("a", cpu=4)], b=[low("b", cpu=4)])
    eviction = evaluate(preemptor(), outcome(cluster, broken=["a"])).eviction(cluster)
    assert eviction is not None
    assert eviction.node_name == "b"


# Sampling, if configured


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        pytest.param(Sampling(0, 1, 0.0), "n0", id="the first that helps"),
        pytest.param(Sampling(0, 1, 0.5), "n4", id="the first from the middle on"),
        pytest.param(Sampling(0, 3, 0.0), "n2", id="the best of the first three"),
        pytest.param(Sampling(50, 1, 0.0), "n3", id="the best of the first half"),
        pytest.param(Sampling(100, 0, 0.0), "n7", id="the best of all"),
        pytest.param(Sampling(0, 99, 0.9), "n7", id="never more than there are"),
    ],
)
def test_looking_no_further_than_needed(sampling: Sampling, expected: str) -> None:
    """Eight nodes, the later the better."""
    cluster = crowded(**{f"n{number}": [low(f"p{number}", 50 - number, cpu=4)] for number in range(8)})
    eviction = evaluate(preemptor(), outcome(cluster), sampling).eviction(cluster)
    assert eviction is not None
    assert eviction.node_name == expected


def test_looking_on_until_a_node_violates_no_budget() -> None:
    web = {"app": "web"}
    pods = {
        f"n{number}": [low(f"p{number}", cpu=4, labels=web if number < 5 else None)] for number in range(8)
    }
    cluster = crowded(**pods)
    cluster.objects.put(make_pdb("web", web))
    eviction = evaluate(preemptor(), outcome(cluster), Sampling(0, 1, 0.0)).eviction(cluster)
    assert eviction is not None
    assert (eviction.node_name, eviction.pdb_violations) == ("n5", 0)


def test_where_all_violate_budgets_only_as_many_as_requested_are_kept() -> None:
    web = {"app": "web"}
    cluster = crowded(
        **{f"n{number}": [low(f"p{number}", 50 - number, cpu=4, labels=web)] for number in range(8)}
    )
    cluster.objects.put(make_pdb("web", web))
    eviction = evaluate(preemptor(), outcome(cluster), Sampling(0, 3, 0.0)).eviction(cluster)
    assert eviction is not None
    assert (eviction.node_name, eviction.pdb_violations) == ("n2", 1)


# What is kept


class TestKept:
    """For pods that are identical only rows that changed are evaluated again."""

    def evaluated_rows(self, cluster: Cluster, found: FilterOutcome, pod: Pod) -> int:
        """How many rows were evaluated for the pod, at least once."""
        seen: set[int] = set()
        original = found.filter_hypothesis

        def counting(view):  # type: ignore[no-untyped-def]  # wraps the filter for this test
            seen.update(view.rows.tolist())
            return original(view)

        found.filter_hypothesis = counting
        evaluate(pod, found)
        found.filter_hypothesis = original
        return len(seen)

    def test_nothing_changed(self) -> None:
        cluster = crowded(**{f"n{number}": [low(f"p{number}", cpu=4)] for number in range(6)})
        found = outcome(cluster)
        assert self.evaluated_rows(cluster, found, preemptor()) == 6
        assert self.evaluated_rows(cluster, found, preemptor()) == 0

    @pytest.mark.parametrize(
        ("change", "evaluated"),
        [
            pytest.param(lambda cluster: cluster.add_pod(low("new"), "n3"), 1, id="a pod was added"),
            pytest.param(
                lambda cluster: cluster.remove_pod(low("p2").uid),
                0,
                id="a pod was deleted, and no pod is left to evict",
            ),
            pytest.param(lambda cluster: cluster.set_node(make_node("n4", cpu=8)), 1, id="a node changed"),
            pytest.param(lambda cluster: cluster.nominate(low("new", 500), "n5"), 1, id="a pod is expected"),
            pytest.param(
                lambda cluster: cluster.objects.put(make_pdb("b", {"app": "web"})), 6, id="a budget changed"
            ),
            pytest.param(lambda cluster: cluster.add_pod(low("new"), "unseen"), 6, id="the table grew"),
        ],
    )
    def test_what_changed(self, change, evaluated: int) -> None:  # type: ignore[no-untyped-def]  # any change
        cluster = crowded(**{f"n{number}": [low(f"p{number}", cpu=4)] for number in range(6)})
        found = outcome(cluster)
        evaluate(preemptor(), found)
        change(cluster)
        assert self.evaluated_rows(cluster, found, preemptor()) == evaluated

    def test_other_priorities_have_other_victims(self) -> None:
        cluster = crowded(a=[low("a", 50, cpu=4)], b=[low("b", 5, cpu=4)])
        found = outcome(cluster)
        names = []
        for priority in (100, 10, 100, 10, 1):
            eviction = evaluate(make_pod("p", priority=priority), found).eviction(cluster)
            names.append(
                eviction
                and [
                    e.node_name
                    for e in evaluate(make_pod("p", priority=priority), found).all_evictions(cluster)
                ]
            )
        assert names == [["a", "b"], ["b"], ["a", "b"], ["b"], None]

    def test_pods_that_were_nominated_leave_nothing_behind(self) -> None:
        """Each is evaluated without its own nomination, and the result is not valid for others."""
        cluster = crowded(**{f"n{number}": [low(f"p{number}", cpu=4)] for number in range(6)})
        found = outcome(cluster)
        for number in range(20):
            pod = make_pod(f"high-{number}", priority=100, cpu=4)
            cluster.nominate(pod, "n0")
            evaluate(pod, found)
            cluster.remove_nomination(pod.uid)
        assert found.memory.get(CachedDryRun, 100) is not None

    def test_victims_stay_in_order_when_a_pod_is_only_updated(self) -> None:
        """An update that no rule can see moves a pod to the end of its node's list, kept or not."""
        pods = [low(name, cpu=1) for name in "abcd"]
        cluster = crowded(n=pods)
        kept = outcome(cluster, 2)
        evaluate(preemptor(), kept)
        cluster.update_pod(
            make_pod("a", cpu=1, priority=0, started=pods[0].status.start_time, annotations={"x": "y"})
        )
        results = []
        for found in (kept, outcome(cluster, 2)):
            eviction = evaluate(preemptor(), found).eviction(cluster)
            assert eviction is not None
            results.append([victim.name for victim in eviction.victims])
        assert results[0] == results[1]

    @pytest.mark.parametrize("pods_before", [0, 1, 3])
    def test_a_plugin_that_fails_leaves_nothing_wrong(self, pods_before: int) -> None:
        """Neither in the first dry run, nor when the rows are known or ranked."""
        nodes = [f"n{number}" for number in range(6)]
        cluster = crowded(**{name: [low(name, cpu=4)] for name in nodes})
        kept = outcome(cluster)
        for _ in range(pods_before):
            evaluate(preemptor(), kept)
        working, kept.filter_hypothesis = kept.filter_hypothesis, failing
        cluster.remove_pod(low("n0").uid)
        cluster.add_pod(low("better", -1, cpu=4), "n3")
        with pytest.raises(ZeroDivisionError):
            evaluate(preemptor(), kept)
        kept.filter_hypothesis = working
        for found in (evaluate(preemptor(), kept), evaluate(preemptor(), kept)):
            assert found.eviction(cluster) == evaluate(preemptor(), outcome(cluster)).eviction(cluster)

    @pytest.mark.parametrize("seed", range(20))
    def test_the_ranking_agrees_with_a_comparison_of_all_rows(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever changes between two pods, the node, its victims and the reasons are those of an evaluation
        from scratch. Rows where evicting does not help are found with plain numbers, too."""
        monkeypatch.setattr(choice, "MAX_CHANGED", 30)
        rng = random.Random(seed)
        nodes = [f"n{number}" for number in range(12)]
        cluster = crowded(
            **{name: [low(f"{name}-{i}", rng.randrange(3), cpu=1) for i in range(3)] for name in nodes}
        )
        kept = outcome(cluster, 2)
        kept.filter_row = one_row(cluster, kept.filter_hypothesis) if seed % 2 else None
        for step in range(40):
            for _ in range(rng.choice((0, 1, 1, 2, 9))):
                name = rng.choice(nodes)
                here = [pod.uid for pod in cluster.pods_on(cluster.nodes.row_of[name])]
                if here and rng.random() < 0.5:
                    cluster.remove_pod(rng.choice(here))
                else:
                    priority = rng.choice((0, 1, 2, 500))
                    cluster.add_pod(
                        low(f"new-{step}-{rng.random()}", priority, cpu=rng.randrange(1, 4)), name
                    )
            pod = make_pod(f"high-{step}", priority=100, cpu=2)
            if rng.random() < 0.2:
                cluster.nominate(pod, rng.choice(nodes))
            found, expected = evaluate(pod, kept), evaluate(pod, outcome(cluster, 2))
            assert found.eviction(cluster) == expected.eviction(cluster)
            assert found.found is not None
            assert expected.found is not None
            assert set(found.found.status_counts()) == set(expected.found.status_counts())
            cluster.remove_nomination(pod.uid)


def one_row(cluster: Cluster, filter_hypothesis: FilterHypothesis) -> FilterRow:
    """The same filter for one row."""

    def filter_row(row: int, changes: Changes) -> Status | None:
        return filter_hypothesis(Hypothesis.on_few_rows(cluster, [row], [changes])).status(0)

    return filter_row


def failing(view: Hypothesis) -> NodeStatuses:
    raise ZeroDivisionError
