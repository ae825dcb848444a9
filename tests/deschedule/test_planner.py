"""Plans: pods move only where the scheduler really puts them, and only if that helps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.deschedule.memory import FIRST_PAUSE_SECONDS, Memory
from bayplan.deschedule.planner import Planner, make_table
from bayplan.deschedule.replacements import OPT_OUT, owner_of, place_replacement, template_of
from bayplan.deschedule.table import PodColumns
from bayplan.testing.builders import (
    make_expression,
    make_namespace,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_spread,
    make_toleration,
)
from tests.deschedule.situations import NOW, descheduler, moves, plan_of, reasons, replica

TAINTS: dict[str, Any] = {"RemovePodsViolatingNodeTaints": {}}
LOW: dict[str, Any] = {
    "LowNodeUtilization": {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 60}},
}
HIGH: dict[str, Any] = {"HighNodeUtilization": {"thresholds": {"cpu": 40}}}
AFFINITY: dict[str, Any] = {
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"],
    }
}
SPREAD: dict[str, Any] = {"RemovePodsViolatingTopologySpreadConstraint": {}}


def tainted(*names: str, **fields: Any) -> list[Node]:
    return [make_node(name, taints=["maintenance=true:NoSchedule"], **fields) for name in names]


def test_a_violated_rule_is_repaired_on_the_node_that_the_scheduler_chooses() -> None:
    plan = plan_of([*tainted("a"), make_node("b"), replica("p", "a")], TAINTS)
    assert moves(plan) == [("p", "a", "b")]
    assert plan.moves[0].why == (
        "it does not tolerate a taint of its node; a has maintenance=true:NoSchedule, "
        "and it tolerates all taints of b"
    )


def test_a_pod_that_would_come_right_back_stays() -> None:
    """descheduler#994, #655, #626: upstream evicts it in every cycle."""
    preferred: dict[str, Any] = {"cpu": "1", "node_selector": {"disk": "ssd"}}
    nodes = [make_node("a", cpu=4, labels={"disk": "ssd"}), make_node("b", cpu=4)]
    pods = [replica(f"p{i}", "a", **preferred) for i in range(4)]
    plan = plan_of([*nodes, *pods], LOW)
    assert (moves(plan), plan.upstream_evictions) == ([], 2)
    assert reasons(plan)["p0"] == "the scheduler would put it back on a"


def test_a_pod_leaves_the_pods_that_its_anti_affinity_excludes() -> None:
    """Only the pod with the term moves, and only to a domain without the others."""
    excludes = make_pod_affinity(anti_required=[make_pod_term("zone", {"app": "db"})])
    nodes = [make_node(name, labels={"zone": zone}) for name, zone in (("a", "1"), ("b", "1"), ("c", "2"))]
    objects = [*nodes, replica("p", "a", affinity=excludes), replica("q", "b", "db")]
    plan = plan_of(objects, {"RemovePodsViolatingInterPodAntiAffinity": {}})
    assert moves(plan) == [("p", "a", "c")]
    assert plan.moves[0].why == (
        "its anti-affinity excludes a pod in the same domain; no pod that its anti-affinity excludes is in "
        "the domain of c"
    )


def test_usage_that_is_not_measured_is_reported() -> None:
    args = {**LOW["LowNodeUtilization"], "metricsUtilization": {"source": "KubernetesMetrics"}}
    plan = plan_of([make_node("a"), make_node("b")], {"LowNodeUtilization": args})
    assert plan.errors == (
        'balance test: plugin "LowNodeUtilization" finished with error: error initializing usage client: '
        "metrics client not initialized",
    )


def test_room_is_used_once() -> None:
    """descheduler#1584: a dry run lists ten pods where one fits."""
    nodes = [*tainted("a", cpu=10), make_node("b", cpu=1)]
    plan = plan_of([*nodes, *(replica(f"p{i}", "a", cpu="1") for i in range(10))], TAINTS)
    assert moves(plan) == [("p0", "a", "b")]
    assert plan.upstream_evictions == 10
    assert reasons(plan)["p1"].startswith("its replacement fits no node: 0/2 nodes are available")


def test_what_upstream_does_not_check_keeps_a_pod() -> None:
    """descheduler#1279, #1050: node fit knows no host ports."""
    objects = [
        *tainted("a"),
        make_node("b"),
        replica("p", "a", host_ports=[80]),
        replica("q", "b", "other", host_ports=[80]),
    ]
    plan = plan_of(objects, {**TAINTS, "DefaultEvictor": {"nodeFit": True}})
    assert (moves(plan), plan.upstream_evictions) == ([], 1)
    assert "didn't have free ports" in reasons(plan)["p"]


def test_a_move_that_violates_another_constraint_is_not_made() -> None:
    """descheduler#839, PR#1918: hostname skew that the hard zone constraint keeps."""
    spread = [
        make_spread("kubernetes.io/hostname", labels={"app": "web"}),
        make_spread("topology.kubernetes.io/zone", labels={"app": "web"}),
    ]

    def node(name: str, zone: str, **fields: Any) -> Object:
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        return make_node(name, labels=labels, **fields)

    nodes = [node("a1", "a"), node("a2", "a", cpu=0), node("b1", "b"), node("b2", "b")]
    pods = [
        replica("p1", "a1", spread=spread, cpu="1"),
        replica("p2", "a1", spread=spread, cpu="1"),
        replica("p3", "b1", spread=spread, cpu="1"),
        replica("p4", "b2", spread=spread, cpu="1"),
    ]
    policy = {"RemovePodsViolatingTopologySpreadConstraint": {"topologyBalanceNodeFit": False}}
    plan = plan_of([*nodes, *pods], policy)
    assert (moves(plan), plan.upstream_evictions) == ([], 1)
    assert reasons(plan)["p2"].startswith(
        "its replacement fits no node: 0/4 nodes are available: 1 Insufficient cpu, "
        "3 node(s) didn't match pod topology spread constraints."
    )


def test_moves_come_after_the_move_that_makes_room() -> None:
    nodes = [
        *tainted("a"),
        make_node("b", cpu=1, labels={"disk": "ssd"}, taints=["old=1:NoSchedule"]),
        make_node("c", cpu=1),
    ]
    waits = replica(
        "p", "a", "one", cpu="1", node_selector={"disk": "ssd"}, tolerations=[make_toleration("old", "1")]
    )
    blocks = replica("z", "b", "two", cpu="1")
    plan = plan_of([*nodes, waits, blocks], TAINTS)
    assert moves(plan) == [("z", "b", "c"), ("p", "a", "b")]
    assert [one.after for one in plan.moves] == [(), (1,)]


def test_pods_that_need_each_other_s_room_stay() -> None:
    nodes = [
        make_node("a", cpu=1, labels={"pool": "x"}, taints=["one=1:NoSchedule"]),
        make_node("b", cpu=1, labels={"pool": "y"}, taints=["two=1:NoSchedule"]),
    ]
    pods = [
        replica("p", "a", "p", cpu="1", tolerations=[make_toleration("two", "1")]),
        replica("q", "b", "q", cpu="1", tolerations=[make_toleration("one", "1")]),
    ]
    plan = plan_of([*nodes, *pods], TAINTS)
    assert (moves(plan), plan.upstream_evictions) == ([], 2)
    assert reasons(plan)["q"].startswith("its replacement fits no node")


@pytest.mark.parametrize(
    ("taint", "why"),
    [
        ("karpenter.sh/disrupted:NoSchedule", "its replacement fits no node"),
        (
            "DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule",
            "the scheduler would put it on b, which is being removed (DeletionCandidateOfClusterAutoscaler)",
        ),
    ],
)
def test_nodes_that_an_autoscaler_removes_are_not_targets(taint: str, why: str) -> None:
    """karpenter-provider-aws#2936: descheduler fills the node that Karpenter is about to remove."""
    plan = plan_of([*tainted("a"), make_node("b", taints=[taint]), replica("p", "a")], TAINTS)
    assert moves(plan) == []
    assert reasons(plan)["p"].startswith(why)


def test_budgets_are_respected_and_named() -> None:
    objects = [
        *tainted("a"),
        make_node("b"),
        *(replica(f"p{i}", "a") for i in range(3)),
        make_pdb("web", {"app": "web"}, allowed=1),
    ]
    plan = plan_of(objects, TAINTS)
    assert moves(plan) == [("p0", "a", "b")]
    assert plan.moves[0].budget == "default/web"
    assert reasons(plan)["p1"] == "PodDisruptionBudget default/web allows 1 eviction now"


def test_two_budgets_keep_a_pod() -> None:
    budgets = [make_pdb("one", {"app": "web"}, allowed=9), make_pdb("two", {"app": "web"}, allowed=9)]
    plan = plan_of([*tainted("a"), make_node("b"), replica("p", "a"), *budgets], TAINTS)
    assert reasons(plan)["p"].startswith("several PodDisruptionBudgets select it")


@pytest.mark.parametrize(
    ("fields", "namespace", "why"),
    [
        ({"annotations": {OPT_OUT: "false"}}, {}, "bayplan.dev/deschedule is false"),
        ({}, {OPT_OUT: "false"}, "bayplan.dev/deschedule of namespace default is false"),
    ],
)
def test_pods_can_opt_out(fields: dict[str, Any], namespace: dict[str, str], why: str) -> None:
    objects = [*tainted("a"), make_node("b"), replica("p", "a", **fields)]
    plan = plan_of([*objects, make_namespace("default", labels=namespace)], TAINTS)
    assert (moves(plan), reasons(plan)) == ([], {"p": why})


def test_a_pod_without_controller_stays() -> None:
    evict = {"descheduler.alpha.kubernetes.io/evict": ""}
    plan = plan_of([*tainted("a"), make_node("b"), make_pod("p", node="a", annotations=evict)], TAINTS)
    assert reasons(plan) == {"p": "it has no controller that would create it again"}


def test_limits_of_the_policy_hold() -> None:
    objects = [*tainted("a"), make_node("b"), *(replica(f"p{i}", "a", f"o{i}") for i in range(4))]
    plan = plan_of(objects, TAINTS, maxNoOfPodsToEvictTotal=2)
    assert len(plan.moves) == 2


def test_balancing_needs_a_gain() -> None:
    nodes = [make_node("a", cpu=10), make_node("b", cpu=10), make_node("c", cpu=10)]
    pods = [replica(f"p{i}", "a", cpu="2") for i in range(4)]
    plan = plan_of([*nodes, *pods], LOW)
    assert [one.source for one in plan.moves] == ["a"]
    assert plan.moves[0].gain > 5
    assert plan.moves[0].why == "its node is overutilized; b would be used 20 %, a is used 80 %"


def test_nodes_are_emptied_completely_or_not_at_all() -> None:
    """Every pod of the node needs a proven place."""
    nodes = [make_node("a", cpu=10), make_node("b", cpu=10)]
    pods = [
        replica("big", "b", "x", cpu="6"),
        replica("p0", "a", "y", cpu="1", node_selector={"only": "a"}),
        replica("p1", "a", "y", cpu="1"),
    ]
    nodes[0] = make_node("a", cpu=10, labels={"only": "a"})
    plan = plan_of([*nodes, *pods], HIGH)
    assert (moves(plan), plan.emptied) == ([], ())
    assert reasons(plan)["p0"] == "a cannot be emptied: the scheduler would put it back on a"


def test_recreation_needs_no_other_node() -> None:
    plan = plan_of(
        [make_node("a"), make_node("b", unschedulable=True), replica("p", "a")],
        {"PodLifeTime": {"states": ["Running"]}},
    )
    assert moves(plan) == [("p", "a", "a")]
    assert plan.moves[0].why == "it has lived too long; its replacement stays on a"


def test_owners_that_came_back_are_left_alone_for_growing_pauses() -> None:
    """descheduler#424, #626."""
    memory, pod = Memory(), replica("p", "a")
    objects = [*tainted("a"), make_node("b"), pod]
    memory.set_nodes([*tainted("a"), make_node("b")])
    first = memory.came_back(owner_of(pod), template_of(pod), NOW)
    assert reasons(plan_of(objects, TAINTS, memory)) == {
        "p": "ReplicaSet default/web came back once: it is paused until 14:18:20 UTC"
    }
    assert first == FIRST_PAUSE_SECONDS
    assert memory.came_back(owner_of(pod), template_of(pod), NOW) == 2 * FIRST_PAUSE_SECONDS
    memory.set_nodes([make_node(name) for name in "abc"])
    assert moves(plan_of(objects, TAINTS, Memory())) == [("p", "a", "b")]
    assert not len(memory)


def test_a_pod_does_not_return_to_a_node_that_its_owner_left() -> None:
    """For balance; a rule that is violated is repaired."""
    memory, pod = Memory(), replica("p0", "a")
    nodes = [make_node("a"), make_node("b")]
    memory.set_nodes(nodes)
    memory.moved(owner_of(pod), template_of(pod), "b", NOW)
    plan = plan_of([*nodes, pod, replica("p1", "a")], {"RemoveDuplicates": {}}, memory)
    assert reasons(plan) == {"p1": "ReplicaSet default/web was moved away from b before"}
    memory.set_nodes(changed := [*tainted("a"), make_node("b")])
    memory.moved(owner_of(pod), template_of(pod), "b", NOW)
    assert moves(plan_of([*changed, pod], TAINTS, memory)) == [("p0", "a", "b")]


def test_a_node_that_has_changed_since_is_another_node() -> None:
    """b was cordoned when a pod left it."""
    memory, pod = Memory(), replica("p0", "a")
    memory.set_nodes([make_node("a"), make_node("b", unschedulable=True)])
    memory.moved(owner_of(pod), template_of(pod), "b", NOW)
    objects = [make_node("a"), make_node("b"), pod, replica("p1", "a")]
    assert moves(plan_of(objects, {"RemoveDuplicates": {}}, memory)) == [("p1", "a", "b")]


def test_pods_that_come_back_later_are_paused() -> None:
    """The replacement got its node, but something else brought the pod back: the pauses grow, too. Pods that
    were there before are not affected."""
    nodes = [*tainted("a"), make_node("b")]
    memory = Memory()
    memory.set_nodes(nodes)

    def pod(age: float) -> Pod:
        return replica("p", "a", created=datetime.fromtimestamp(NOW - age, UTC))

    memory.moved(owner_of(pod(0)), template_of(pod(0)), "a", NOW - 60)
    assert moves(plan_of([*nodes, pod(100)], TAINTS, memory)) == [("p", "a", "b")]
    for _ in range(2):
        assert reasons(plan_of([*nodes, pod(30)], TAINTS, memory)) == {
            "p": "ReplicaSet default/web came back once: it is paused until 14:18:20 UTC"
        }
    assert memory.pause(owner_of(pod(0)), template_of(pod(0)), NOW + FIRST_PAUSE_SECONDS) is None
    assert reasons(plan_of([*nodes, pod(-60)], TAINTS, memory)) == {
        "p": "ReplicaSet default/web came back 2 times: it is paused until 14:23:20 UTC"
    }


def test_the_memory_is_bounded_and_forgets_old_templates() -> None:
    memory = Memory(max_owners=2)
    for owner in ("a", "b", "c"):
        memory.moved(owner, 1, "n1", NOW)
    assert [memory.has_left(owner, 1, "n1") for owner in ("a", "b", "c")] == [False, True, True]
    assert not memory.has_left("b", 2, "n1")


def test_spreading_moves_a_pod_to_a_smaller_domain() -> None:
    def node(name: str, zone: str) -> Object:
        return make_node(name, labels={"kubernetes.io/hostname": name, "zone": zone})

    spread = [make_spread("zone", {"app": "web"})]
    pods = [replica(f"p{i}", "a", spread=spread, cpu="1") for i in range(3)]
    plan = plan_of([node("a", "x"), node("b", "y"), *pods], SPREAD)
    assert [(one.source, one.target, one.gain) for one in plan.moves] == [("a", "b", 2.0)]
    assert plan.moves[0].why.endswith("the skew of its constraints decreases on b")


def test_preferences_need_a_node_that_meets_them_better() -> None:
    preferred = make_node_affinity(preferred=[(10, make_node_term(make_expression("disk", "In", "ssd")))])
    nodes = [make_node("a"), make_node("b", labels={"disk": "ssd"})]
    affinity: dict[str, Any] = {
        "RemovePodsViolatingNodeAffinity": {
            "nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]
        }
    }
    plan = plan_of([*nodes, replica("p", "a", affinity=preferred)], affinity)
    assert moves(plan) == [("p", "a", "b")]
    assert plan.moves[0].gain == 10.0


def test_required_affinity_that_labels_no_longer_meet_is_repaired() -> None:
    required = make_node_affinity(make_node_term(make_expression("disk", "In", "ssd")))
    nodes = [make_node("a"), make_node("b", labels={"disk": "ssd"})]
    plan = plan_of([*nodes, replica("p", "a", affinity=required)], AFFINITY)
    assert plan.moves[0].why.endswith("b meets its required node affinity")


def test_an_underutilized_node_is_emptied_if_the_scheduler_packs() -> None:
    """With a cordoned source the replacement cannot come back, so the whole node is emptied."""
    nodes = [make_node("a", cpu=10, unschedulable=True), make_node("b", cpu=10)]
    pods = [replica("big", "b", "x", cpu="6"), replica("p0", "a", "y", cpu="1"), replica("p1", "a", "z")]
    plan = plan_of([*nodes, *pods], HIGH)
    assert (moves(plan), plan.emptied) == ([("p0", "a", "b"), ("p1", "a", "b")], ("a",))


def test_a_node_with_a_pod_that_may_not_be_evicted_is_not_emptied() -> None:
    nodes = [make_node("a", cpu=10, unschedulable=True), make_node("b", cpu=10)]
    pods = [replica("big", "b", "x", cpu="6"), replica("p0", "a", "y"), make_pod("bare", node="a")]
    plan = plan_of([*nodes, *pods], HIGH)
    assert reasons(plan)["bare"] == "a cannot be emptied: pod does not have any ownerRefs"


def test_a_finished_pod_is_removed_without_replacement() -> None:
    disabled = {"podProtections": {"defaultDisabled": ["FailedBarePods"]}}
    failed = make_pod("p", node="a", phase="Failed")
    policy: dict[str, Any] = {"DefaultEvictor": disabled, "RemoveFailedPods": {"minPodLifetimeSeconds": 0}}
    plan = plan_of([make_node("a"), make_node("b"), failed], policy)
    assert moves(plan) == [("p", "a", "")]


def test_nodes_are_emptied_although_the_scheduler_spreads_pods() -> None:
    """HighNodeUtilization with the default scheduler (descheduler#668, #1026): replacements are nominated."""
    nodes = [make_node(name, cpu="4") for name in ("a", "b", "c")]
    pods = [replica("a1", "a", "x", cpu="500m"), replica("b1", "b", "y", cpu="500m")]
    pods += [replica(f"c{i}", "c", f"z{i}", cpu="1") for i in range(2)]
    objects = [*nodes, *pods]
    alone = plan_of(objects, HIGH)
    assert alone.emptied == ()
    made = Planner(Cluster.from_objects(objects), descheduler(HIGH), NOW, nominates=True).plan()
    assert made.emptied == ("a", "b")
    assert [(one.pod, one.target, one.nominated) for one in made.moves] == [
        ("default/a1", "c", True),
        ("default/b1", "c", True),
    ]
    # With the nomination the scheduler really puts them there.
    cluster = Cluster.from_objects(objects)
    for move in made.moves:
        with cluster.branch() as trial:
            placed = place_replacement(trial, trial.pod(move.pod), nominated=move.target)
            assert placed == (move.target, "")
            trial.commit()


def test_if_all_nodes_are_underutilized_the_fuller_half_stays() -> None:
    """descheduler#725: "all nodes are underutilized, nothing to do here"."""
    objects: list[Object] = [make_node(f"n{i}", cpu="8") for i in range(4)]
    objects += [replica(f"p{i}", f"n{i}", f"o{i}", cpu=f"{500 + 100 * i}m") for i in range(4)]
    made = Planner(Cluster.from_objects(objects), descheduler(HIGH), NOW, nominates=True).plan()
    assert made.emptied == ("n0", "n1")
    assert {one.target for one in made.moves} <= {"n2", "n3"}
    assert made.upstream_evictions == 0


def full(*more: Object) -> list[Object]:
    """A full node with pods of five owners, and more."""
    pods = [replica(f"{owner}0", "a", owner, cpu="2") for owner in "vwxyz"]
    return [make_node("a", cpu=10), make_node("c", unschedulable=True), *pods, *more]


@pytest.mark.parametrize(
    ("objects", "policy", "why"),
    [
        pytest.param(
            full(make_node("b", cpu=3)),
            LOW,
            "b would be overutilized: 67 % of cpu",
            id="the target would be a candidate of the same strategy",
        ),
        pytest.param(
            full(make_node("b", cpu=10), replica("v1", "b", "v", cpu="2")),
            {**LOW, "RemoveDuplicates": {}},
            "b would have 2 pods of its owner",
            id="RemoveDuplicates would evict the replacement",
        ),
        pytest.param(
            [
                make_node("a", unschedulable=True),
                make_node("b", taints=["old=1:PreferNoSchedule"]),
                *(replica(name, "a") for name in ("u0", "v0")),
            ],
            {"RemoveDuplicates": {}, "RemovePodsViolatingNodeTaints": {"includePreferNoSchedule": True}},
            "b has a taint that it does not tolerate",
            id="RemovePodsViolatingNodeTaints would evict the replacement",
        ),
    ],
)
def test_moves_for_balance_that_the_policy_would_undo_are_not_made(
    objects: list[Object], policy: dict[str, Any], why: str
) -> None:
    """descheduler#668, #1026: strategies of one policy that work against each other."""
    plan = plan_of(objects, policy)
    assert plan.upstream_evictions > 0
    assert reasons(plan)["v0"] == f"the scheduler would put it on b: {why}"


def test_balance_does_not_make_domains_more_unequal() -> None:
    """LowNodeUtilization alone would move a pod into the larger domain of a soft constraint."""
    soft = [make_spread("zone", {"app": "web"}, hard=False)]
    zones = {name: {"zone": name} for name in "ab"}
    objects: list[Object] = [
        make_node("a", cpu=10, labels=zones["a"], unschedulable=True),
        make_node("b", cpu=40, labels=zones["b"]),
        replica("p", "a", cpu="2", spread=soft),
        replica("big", "a", "x", cpu="6", node_selector=zones["a"]),
        *(replica(f"q{i}", "b", cpu="1", spread=soft) for i in range(2)),
    ]
    policy = {"RemovePodsViolatingTopologySpreadConstraint": {"constraints": ["ScheduleAnyway"]}, **LOW}
    assert moves(plan_of(objects, LOW)) == [("p", "a", "b")]
    plan = plan_of(objects, policy)
    assert moves(plan) == []
    assert reasons(plan)["p"].endswith("b would have 3 pods of the constraint on zone, a has 1")


def test_columns_follow_pods_that_change_come_and_go() -> None:
    """Whichever way they are brought up to date, they are those of the pods that are there, in order. A later
    cycle does not change the table of an earlier one."""
    first = [replica("p", "a"), replica("q", "a"), replica("r", "b")]
    moved = [first[0], replica("q", "b"), first[2]]
    mixed = [replica("p", "b"), first[2], replica("s", "a")]
    nodes = [make_node("a"), make_node("b")]
    columns = PodColumns()
    all_pods: tuple[list[Pod], ...] = (first, moved, mixed, [], first, [replica("o", "b"), *reversed(first)])
    tables = [make_table(columns, [*nodes, *pods]) for pods in all_pods]
    for pods, table in zip(all_pods, tables, strict=True):
        found = [(pod.name, table.nodes[row].name) for pod, row in zip(table.pods, table.row, strict=True)]
        assert found == sorted((pod.name, pod.spec.node_name) for pod in pods)
