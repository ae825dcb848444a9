"""`explain group`: what is said of groups that fit, do not fit, preempt, or are not complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.answers.explain.group_answer import GroupAnswer
from bayplan.answers.explain.groups import explain_group, next_attempt
from bayplan.answers.explain.printing import print_group_parts
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api import volcano
from bayplan.api.groups import PodGroupStatus
from bayplan.api.meta import Condition, Object, ObjectMeta, OwnerReference, ResourceList
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.releases import V1_36, V1_37
from bayplan.api.workloads import POD_GROUP_LABEL
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.api.workloads import PodGroupSpec as CoschedulingSpec
from bayplan.cli.output import make_console
from bayplan.errors import InputError
from bayplan.framework.outcome import FilterOutcome
from bayplan.framework.state import CycleState
from bayplan.plugin import FilterPlugin, NodeColumns, Plugin, Reject
from bayplan.preemption.plugin import PreemptionPlugin
from bayplan.preemption.victims import MayEvict
from bayplan.testing import make_node, make_pod
from bayplan.testing.builders import make_resource_claim
from tests.commands import bayplan
from tests.scheduler.behaviour.devices import CLASS, REQUEST, claiming, gpus
from tests.scheduler.behaviour.test_composite_groups import make_composite, part
from tests.scheduler.behaviour.test_group_claims import allocated
from tests.scheduler.behaviour.test_groups import make_group, members, nodes

TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
DELETED = datetime(2026, 1, 1, tzinfo=UTC)
ALONE = "0/1 nodes are available: 1 Insufficient cpu."


class OwnRule(PreemptionPlugin):
    """Preempts by another rule than priority."""

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        return lambda row, pods: ()


def asked(*objects: Object, **fields: Any) -> GroupAnswer:
    loaded = LoadedCluster(objects=objects, name="here", release=V1_37, **fields)
    return explain_group(loaded, "default", "g")


@pytest.mark.parametrize(
    ("objects", "verdict", "waiting"),
    [
        pytest.param(
            [*nodes(1), make_group(min_count=2), *members(2)],
            "would be scheduled: 2 of 2 waiting members find a node",
            ["n0", "n0"],
            id="it fits",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=2), *members(3)],
            "would be scheduled: 2 of 3 waiting members find a node",
            ["n0", "n0", ALONE],
            id="more members than fit",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=3), *members(3)],
            "cannot be scheduled: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, pod group "
            "preemption: No preemption victims found for incoming preemptor",
            ["fits on n0, and waits for the others", "fits on n0, and waits for the others", ALONE],
            id="one member too many",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=3), *members(3, cpu="4")],
            "cannot be scheduled: minCount (3) cannot be satisfied: 0 scheduled, 2 remaining, pod group "
            "preemption: No preemption victims found for incoming preemptor",
            [ALONE, *["not tried: there cannot be enough members"] * 2],
            id="no member fits",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=3), *members(2)],
            "waiting for more members: 3 must exist and 2 do, so 1 more must be created",
            [f"it is gated by GangScheduling ({TOO_FEW})"] * 2,
            id="too few members",
        ),
        pytest.param(
            [*nodes(1), *members(1)],
            "there is no PodGroup default/g: its members wait until it is created",
            ["waits for its PodGroup"],
            id="no PodGroup",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=2), *members(1), *members(1, first=1, gates=["later"])],
            "waiting: a member may not be scheduled yet, which holds the whole group",
            ["", "it is gated by SchedulingGates (waiting for scheduling gates: [later])"],
            id="a gated member",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=1, priority=5), *members(1)],
            "cannot be scheduled: all pods in a single pod group should have the same priority as the pod "
            "group's priority, got 0 and 5",
            ["not tried: the attempt ends with an error"],
            id="another priority",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=1), *members(1, node="n0")],
            "no member is waiting",
            [],
            id="all are scheduled",
        ),
    ],
)
def test_verdicts(objects: list[Object], verdict: str, waiting: list[str]) -> None:
    answer = asked(*objects)
    assert (answer.verdict, [one.node or one.reason for one in answer.waiting]) == (verdict, waiting)


def test_preemption_names_victims_and_nodes() -> None:
    low = [make_pod(f"low-{i}", cpu="1", node="n0") for i in range(2)]
    answer = asked(
        make_node("n0", cpu="2"), *low, make_group(min_count=2, priority=9), *members(2, priority=9)
    )
    assert answer.verdict == "would preempt 2 pods and wait until they are gone"
    assert answer.victims == ("default/low-0", "default/low-1")
    assert [one.node for one in answer.waiting] == ["n0", "n0"]


def test_victims_that_are_not_gone_yet_are_named() -> None:
    group = make_group(min_count=2, priority=10)
    waiting = members(2, cpu="2", priority=10, nominated_node="n0")
    target = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    victims = [
        make_pod(f"low-{number}", cpu="1", node="n0", deleted=DELETED, conditions=[target])
        for number in range(2)
    ]
    answer = asked(*nodes(2), group, *waiting, *victims)
    assert answer.verdict == (
        "waiting until preempted pods are gone from the nodes of its members: default/low-0, default/low-1"
    )
    assert (answer.is_schedulable, answer.remedies) == (False, ())
    assert {one.node for one in answer.waiting} == {"n0"}


def test_members_that_are_being_deleted_are_counted() -> None:
    pods = [
        make_pod("a", node="n0"),
        *members(2, node="n0"),
        *members(1, first=2, node="n0", deleted=DELETED),
    ]
    answer = asked(*nodes(1), make_group(min_count=2), *pods)
    assert answer.verdict == "no member is waiting, and 1 of 3 with a node are being deleted"


def test_members_of_a_topology_stay_together() -> None:
    zones = [make_node(f"n{i}", cpu="2", labels={"zone": f"z{i}"}) for i in range(2)]
    answer = asked(*zones, make_group(min_count=3, key="zone"), *members(3))
    assert not answer.is_schedulable
    assert "0/2 placements are available" in answer.verdict


RACKS = [
    *(make_node(f"a{number}", cpu="2", labels={"rack": "a"}) for number in range(2)),
    make_node("b0", cpu="2", labels={"rack": "b"}),
    make_node("c0", cpu="8", labels={"rack": "c"}, taints=["x:NoSchedule"]),
]
TAINT = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."


def test_the_domains_of_a_topology_are_compared() -> None:
    """Each with the number of members that fit there, and what stops the others."""
    answer = asked(*RACKS, make_group(min_count=6, key="rack"), *members(6))
    assert [(one.value, one.nodes, one.members, one.is_best) for one in answer.domains] == [
        ("a", 2, 4, True),
        ("b", 1, 2, False),
        ("c", 1, 0, False),
    ]
    too_small = "0/2 nodes are available: 2 Insufficient cpu."
    assert [one.result for one in answer.domains] == [too_small, ALONE, TAINT]
    assert answer.remedies == (
        "add nodes with rack=a and room for 2 more such pods: even without all other pods, the group "
        "would not fit "
        "with any value of rack",
        "set minCount to 4 or less",
    )
    assert asked(*RACKS, make_group(min_count=4, key="rack"), *members(6)).is_schedulable


def test_the_best_of_several_domains_that_fit_is_named() -> None:
    answer = asked(*RACKS, make_group(min_count=2, key="rack"), *members(3))
    assert answer.is_schedulable
    assert [(one.fits, one.is_best) for one in answer.domains] == [(True, True), (True, False), (False,) * 2]
    chosen, second, _ = (one.result for one in answer.domains)
    assert chosen.startswith("would be chosen (score ")
    assert second.endswith(f"; the others: {ALONE}")
    assert {one.node for one in answer.waiting} == {"a0", "a1"}


def test_a_domain_that_others_fill_needs_room() -> None:
    taken = [make_pod(f"taken-{node}", node=node, cpu="1") for node in ("a0", "b0")]
    answer = asked(*RACKS, *taken, make_group(min_count=4, key="rack"), *members(4))
    assert answer.policy == "gang of at least 4, all on nodes with the same rack"
    assert answer.remedies[:3] == (
        "make room for 1 more such pod on nodes with rack=a",
        "add nodes with rack=a and room for 1 more such pod",
        "set minCount to 3 or less",
    )


def test_room_is_made_in_a_domain_that_is_large_enough() -> None:
    """One that is too small needs nodes, though more members fit there now."""
    taken = [make_pod(f"taken-{number}", node=f"a{number}", cpu="2") for number in range(2)]
    answer = asked(*RACKS, *taken, make_group(min_count=4, key="rack"), *members(4))
    assert answer.remedies[:2] == (
        "make room for 4 more such pods on nodes with rack=a",
        "add nodes with rack=b and room for 2 more such pods",
    )


def test_no_node_has_the_label_of_a_topology() -> None:
    answer = asked(*nodes(1), make_group(min_count=1, key="rack"), *members(1))
    assert (answer.domains, answer.waiting[0].reason) == (
        (),
        "not tried: there is no domain in which all members may run",
    )
    assert answer.remedies[0].startswith("no node has the label rack of the topology constraint")


class Breaks(Plugin, FilterPlugin):
    """Fails for one pod."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        if pod.name == "g-1":
            raise ValueError("no such badge")
        return iter(())


@pytest.mark.parametrize(
    ("objects", "verdict", "remedy"),
    [
        pytest.param(
            [make_group(min_count=1), *members(1)],
            'error in "DynamicResources" PodGroupPostFilter plugins: not found',
            "add nodes: the cluster has none",
            id="no nodes",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=2, priority=5), *members(2, priority=5), *members(1, first=2)],
            "all pods in a single pod group should have the same priority as the pod group's "
            "priority, got 0 and 5",
            "create these pods again with the priority of the group, 5: default/g-2; or create the "
            "PodGroup again "
            "with theirs",
            id="another priority",
        ),
        pytest.param(
            [make_group(min_count=1), *members(1, preemption_policy="Never"), *members(1, first=1)],
            "all pods in a single pod group should have the same preemption policy, got "
            "PreemptLowerPriority and "
            "Never",
            "create the pods again with one preemptionPolicy: it must be the same for all",
            id="another preemption policy",
        ),
        pytest.param(
            [
                *RACKS,
                make_group(min_count=1, key="rack"),
                *members(1, node="a0"),
                *members(1, first=1, node="b0"),
                *members(1, first=2),
            ],
            "cannot determine domain for already scheduled pods: more than 1 domain found for pod "
            "group: a, b",
            "delete the members outside of one value of rack, which all must share; they run with a "
            "(1), b (1)",
            id="members in two domains",
        ),
        pytest.param(
            [*nodes(1), make_group(min_count=1, key="rack"), *members(1, node="n0"), *members(1, first=1)],
            "cannot determine domain for already scheduled pods: no topology domain found for pod "
            "default/g-0",
            "give node n0 the label rack, or delete default/g-0, which runs there",
            id="a member without a domain",
        ),
        pytest.param(
            [*RACKS, make_group(min_count=1, key="rack"), *members(1, node="gone"), *members(1, first=1)],
            "cannot determine domain for already scheduled pods: getting node for pod default/g-0: "
            "nodeinfo not "
            'found for node name "gone"',
            "delete default/g-0: node gone does not exist any more",
            id="a member on a node that is gone",
        ),
    ],
)
def test_what_to_do_about_errors(objects: list[Object], verdict: str, remedy: str) -> None:
    answer = asked(*objects)
    assert answer.verdict.endswith(f": {verdict}")
    assert answer.remedies == (remedy,)


def test_a_plugin_that_fails_for_a_member_is_named() -> None:
    answer = asked(*nodes(1), make_group(min_count=2), *members(2), plugins=(Breaks,))
    assert "no such badge" in answer.verdict
    assert answer.waiting[1].reason.startswith('running "Breaks" filter plugin')
    assert answer.remedies[0].startswith("fix the plugin Breaks, which failed for pod default/g-1")


@pytest.mark.parametrize("of_group", [True, False])
def test_an_error_of_the_last_attempt_is_shown(of_group: bool) -> None:
    kind = "PodGroupInitiallyScheduled" if of_group else "PodScheduled"
    failed = Condition(type=kind, status="False", reason="SchedulerError", message="no answer")
    group = make_group(min_count=2)
    if of_group:
        group = replace(group, status=PodGroupStatus(conditions=(failed,)))
    pods = members(2, conditions=[] if of_group else [failed])
    answer = asked(*nodes(1), group, *pods)
    assert (answer.is_schedulable, answer.last_error) == (
        True,
        "the last attempt failed with an error: no answer",
    )
    assert answer.remedies[0].startswith("the error is not seen here")
    assert asked(*nodes(1), make_group(min_count=2), *members(2)).last_error == ""


def test_a_configuration_gets_the_plugins_of_the_gate(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    flags = ("-f", "examples/groups.yaml", "--config", str(config), "-o", "json")
    waiting = json.loads(bayplan("explain", "group", "ml/sweep", *flags).stdout)["waiting"]
    assert [one["reason"].partition(" (")[0] for one in waiting] == ["it is gated by GangScheduling"] * 4


def test_unknown_groups_and_old_releases_are_errors() -> None:
    with pytest.raises(InputError, match="no such group"):
        asked(*nodes(1))
    loaded = LoadedCluster(objects=(make_group(),), name="here", release=V1_36)
    with pytest.raises(InputError, match=r"pass --emulated-version 1\.37"):
        explain_group(loaded, "default", "g")


def test_the_command_prints_tables_and_documents() -> None:
    table = bayplan("explain", "group", "ml/batch", "-f", "examples/groups.yaml")
    assert "6 scheduled, 0 waiting" in table.stdout
    assert "ml/batch-5 on gpu-3" in table.stdout
    document = bayplan("explain", "group", "serve", "-n", "ml", "-f", "examples/groups.yaml", "-o", "json")
    answer = json.loads(document.stdout)
    assert (answer["kind"], answer["minCount"], answer["schedulable"]) == ("GroupExplanation", 8, False)
    assert len(answer["waiting"]) == 8
    assert len(answer["victims"]) == 2


def test_remedies_follow_from_the_result() -> None:
    """Two of four fit, and all if one or another pod were not there."""
    gang = [make_group(min_count=4), *members(4)]
    taken = [make_pod(f"taken-{n}", node=f"n{n}", cpu="1") for n in range(2)]
    crowded = asked(*nodes(2), *taken, *gang)
    assert crowded.remedies[:2] == (
        "make room for 2 more such pods, or add nodes that have it",
        "set minCount to 2 or less",
    )
    assert crowded.remedies[2].startswith("create group and pods again with a higher priority")
    ruled = asked(*nodes(2), *taken, *gang, plugins=(OwnRule,))
    assert ruled.remedies == crowded.remedies[:-1], "who is evicted does not follow from priority alone"
    never = asked(*nodes(2), *taken, make_group(min_count=4), *members(4, preemption_policy="Never"))
    assert never.remedies[-1] == "its pods say preemptionPolicy: Never, so nothing is evicted for it"
    few = asked(*nodes(1), make_group(min_count=3), *members(1), *members(1, first=9, phase="Succeeded"))
    assert few.remedies == (
        "create 2 more pods with schedulingGroup.podGroupName: g",
        "set minCount to 1 or less",
        "finished pods no longer count as members: 1",
    )


@pytest.mark.parametrize(
    ("pods", "remedies"),
    [
        pytest.param(
            [make_group(min_count=3), *members(3)],
            (
                "add nodes with room for 2 more such pods; even without all other pods, there would be no "
                "room for 1 of them",
                "set minCount to 1 or less",
            ),
            id="identical members",
        ),
        pytest.param(
            [make_group(min_count=5), *members(1, first=9, node="n0"), *members(4)],
            (
                "add nodes with room for 4 more such pods; even without all other pods, there would be no "
                "room for 3 of them",
            ),
            id="one member is scheduled",
        ),
        pytest.param(
            [make_group(min_count=2), *members(1), *members(1, first=1, cpu="2")],
            (
                "add nodes for the members that fit nowhere: even without all other pods, the group would "
                "not fit",
                "set minCount to 1 or less",
            ),
            id="members that differ",
        ),
    ],
)
def test_a_group_that_is_too_large_for_the_cluster_needs_nodes(
    pods: list[Object], remedies: tuple[str, ...]
) -> None:
    """Neither an eviction nor a higher priority would help."""
    taken = make_pod("taken", node="n0", cpu="1")
    assert asked(*nodes(1), taken, *pods).remedies == remedies


@pytest.mark.parametrize(
    ("further", "rejected"),
    [
        pytest.param([], "NodeAffinity rejects", id="one plugin"),
        pytest.param(
            [make_node("fast", labels={"disk": "ssd"}, taints=["for=others:NoSchedule"])],
            "NodeAffinity and TaintToleration reject",
            id="two plugins",
        ),
    ],
)
def test_room_is_not_advised_where_no_node_is_accepted(further: list[Object], rejected: str) -> None:
    pods = members(2, node_selector={"disk": "ssd"})
    failed = asked(*nodes(1), *further, make_group(min_count=2), *pods)
    assert failed.remedies == (
        f"room is not what is missing: {rejected} pod default/g-0 on every node, whatever runs there; "
        "bayplan explain pod default/g-0 shows what would change that",
    )


def test_system_pods_stay() -> None:
    critical = make_pod("critical", node="n0", cpu="1", priority=2_000_000_000)
    failed = asked(*nodes(1), critical, make_group(min_count=2), *members(2))
    assert failed.remedies[0] == "add nodes with room for 1 more such pod"


def test_devices_of_other_pods_may_become_free() -> None:
    """They stay allocated when other pods are left out, which does not mean that the cluster is too small."""
    pods = [
        claiming(f"g-{n}", f"c{n}", scheduling_group=PodSchedulingGroup(pod_group_name="g")) for n in (0, 1)
    ]
    claims = [make_resource_claim(f"c{n}", REQUEST) for n in (0, 1)]
    taken = allocated("taken", "a", "other")
    devices = [CLASS, make_node("a", cpu="9"), gpus("a", 2)]
    failed = asked(*devices, taken, *claims, make_group(min_count=2), *pods)
    assert failed.remedies[0].startswith("make room for"), failed


def test_a_lower_min_count_of_the_remedy_is_enough() -> None:
    failed = asked(*nodes(2), make_group(min_count=6), *members(6))
    count = int(failed.remedies[1].split()[3])
    assert asked(*nodes(2), make_group(min_count=count), *members(6)).is_schedulable
    assert not asked(*nodes(2), make_group(min_count=count + 1), *members(6)).is_schedulable


def test_a_gang_below_its_minimum_is_named() -> None:
    left = members(2, node="n0")
    answer = asked(*nodes(1), make_group(min_count=3), *left)
    assert answer.verdict.startswith("no member is waiting, and 2 of at least 3 are left")
    assert not answer.is_schedulable


def test_members_come_in_the_order_of_the_queue() -> None:
    loaded = LoadedCluster(objects=(*nodes(1), make_group(min_count=1), *members(3)), name="x", release=V1_37)
    names = [pod.key for pod in members(3)]
    answer = explain_group(loaded, "default", "g", names[::-1])
    assert [one.pod for one in answer.waiting] == names[::-1]
    assert [bool(one.node) for one in answer.waiting] == [True, True, False]


@pytest.mark.parametrize(
    ("group", "pod"),
    [
        pytest.param(
            CoschedulingPodGroup(
                metadata=ObjectMeta(name="g", namespace="default"), spec=CoschedulingSpec(min_member=3)
            ),
            {"labels": {POD_GROUP_LABEL: "g"}},
            id="coscheduling",
        ),
        pytest.param(
            volcano.PodGroup(
                metadata=ObjectMeta(name="g", namespace="default"), spec=volcano.PodGroupSpec(min_member=3)
            ),
            {"annotations": {volcano.GROUP_ANNOTATION: "g"}},
            id="volcano",
        ),
    ],
)
def test_groups_of_other_schedulers_are_explained(group: Object, pod: dict[str, Any]) -> None:
    pods = [make_pod(f"p{i}", uid=f"p{i}", cpu="1", **pod) for i in range(3)]
    answer = asked(*nodes(1), group, *pods)
    assert answer.assumption.startswith(f"decided as bayplan does with podGroups: [{answer.dialect.value}]")
    assert answer.verdict.startswith("cannot be scheduled: minMember (3) cannot be satisfied: 2 scheduled")
    assert asked(*nodes(2), group, *pods).is_schedulable
    assert asked(*nodes(2), group, *pods[:2]).verdict.startswith("waiting for more members: 3 must exist")


def test_groups_of_other_schedulers_keep_their_words_if_the_configuration_has_them(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: bayplan/v1\nkind: BayplanConfiguration\npodGroups: [coscheduling]\n")
    cluster = tmp_path / "cluster.json"
    meta = {"namespace": "default", "labels": {POD_GROUP_LABEL: "g"}}
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    items = [
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", **group},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **meta}, "spec": {"containers": []}},
    ]
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    flags = ("-f", str(cluster), "--emulated-version", "1.37", "--bayplan-config", str(config))
    for question in ("group", "g"), ("pod", "p"):
        shown = " ".join(bayplan("explain", *question, *flags).stdout.split())
        assert "create 1 more pod with the label scheduling.x-k8s.io/pod-group: g" in shown
        assert "waiting for minMember pods" in shown
        assert "minCount" not in shown
        assert "Coscheduling is not run" not in shown


def test_a_member_is_explained_with_its_group() -> None:
    answer = json.loads(
        bayplan("explain", "pod", "ml/sweep-1", "-f", "examples/groups.yaml", "-o", "json").stdout
    )
    assert answer["group"]["verdict"].startswith("waiting for more members: 6 must exist and 4 do")
    table = bayplan("explain", "pod", "ml/serve-1", "-f", "examples/groups.yaml").stdout
    assert "ml/serve-1 waits with its group ml/serve" in table
    assert "would preempt 2 pods and wait until they are gone" in table
    assert "this member: → gpu-2" in table


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (
            {"state": "backoff", "attempts": 2, "secondsToNextAttempt": 1.5},
            "next attempt in 1.5 s after 2 attempts",
        ),
        (
            {"state": "active", "attempts": 1, "position": 1, "length": 3},
            "active after 1 attempt, position 1 of 3",
        ),
        ({"state": "gated", "plugins": ["X"]}, "not tried while X holds it"),
        ({"state": "InFlight", "attempts": 0}, "being scheduled now"),
        ({}, ""),
    ],
)
def test_the_next_attempt_is_named_where_it_is_known(position: dict[str, Any], text: str) -> None:
    assert next_attempt(position) == text


def test_members_of_other_schedulers_are_not_judged() -> None:
    answer = asked(*nodes(1), make_group(min_count=2), *members(2, scheduler_name="volcano"))
    assert not answer.is_judged
    assert answer.verdict.startswith("not judged: 2 waiting pods have a schedulerName that no profile has")
    assert answer.remedies == ()


def test_members_beyond_the_minimum_that_do_not_fit() -> None:
    placed = members(2, node="n0")
    answer = asked(*nodes(1), make_group(min_count=2), *placed, *members(1, first=2))
    assert answer.verdict.startswith("no more members can be scheduled: pod group is unschedulable")


def test_remedies_name_the_fields_of_the_dialect() -> None:
    meta = ObjectMeta(name="g", namespace="default")
    group = CoschedulingPodGroup(metadata=meta, spec=CoschedulingSpec(min_member=3))
    pod = make_pod("p", cpu="1", labels={POD_GROUP_LABEL: "g"})
    assert asked(*nodes(1), group, pod).remedies == (
        "create 2 more pods with the label scheduling.x-k8s.io/pod-group: g",
        "set minMember to 1 or less",
    )


@pytest.mark.parametrize(
    ("min_resources", "remedy"),
    [
        ({}, "set minAvailable of Job train to 2 or less"),
        (
            {"cpu": "9"},
            "lower minAvailable of Job train, from which minResources of the PodGroup is computed",
        ),
    ],
)
def test_the_minimum_of_a_job_of_volcano_is_that_of_the_job(min_resources: ResourceList, remedy: str) -> None:
    job = OwnerReference(kind="Job", name="train", controller=True)
    meta = ObjectMeta(name="g", namespace="default", owner_references=(job,))
    spec = volcano.PodGroupSpec(min_member=3, min_resources=min_resources)
    annotations = {volcano.GROUP_ANNOTATION: "g"}
    pods = [make_pod(f"p{i}", uid=f"p{i}", cpu="1", annotations=annotations) for i in range(3)]
    assert remedy in asked(*nodes(1), volcano.PodGroup(metadata=meta, spec=spec), *pods).remedies


def test_members_with_long_names_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    pods = [
        make_pod(f"{'long-' * 12}{i}", cpu="4", scheduling_group=PodSchedulingGroup("g")) for i in range(3)
    ]
    print_group_parts(make_console(), asked(*nodes(1), make_group(min_count=3), *pods))
    assert "long-1 +1" in "".join(capsys.readouterr().out.split("\n"))


@pytest.mark.parametrize(
    ("objects", "verdict", "parts"),
    [
        pytest.param(
            [*nodes(2), make_composite("g", 2), part("a", 2, "g"), part("b", 2, "g")],
            "would be scheduled: 2 of 2 groups, and 4 of 4 waiting members",
            ["would be scheduled", "would be scheduled"],
            id="all fit",
        ),
        pytest.param(
            [make_node("n0", cpu="2"), make_composite("g", 2), part("a", 2, "g"), part("b", 2, "g")],
            "cannot be scheduled: pod group is unschedulable, 0/1 placements are available, first placement "
            "status: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, pod group preemption: No "
            "preemption victims found for incoming preemptor",
            [
                "fits, and waits for the other groups",
                "pod group is unschedulable, 0/1 placements are available, first placement status: minCount "
                "(2) cannot be satisfied: 0 scheduled, 1 remaining",
            ],
            id="one fits, and both must",
        ),
        pytest.param(
            [*nodes(2), make_composite("g", 2), part("a", 2, "g"), part("b", 3, "g")],
            "waiting for more members: CompositePodGroup default/g needs 2 groups with enough members and "
            "has 1 (b has 2 of 3)",
            ["", ""],
            id="a member is missing",
        ),
        pytest.param(
            [*nodes(2), make_composite("g", parent="above"), part("a", 2, "g"), part("b", 2, "g")],
            "there is no CompositePodGroup default/above: the members of its groups wait until it is created",
            [],
            id="a group above is missing",
        ),
    ],
)
def test_composite_groups(objects: list[Object], verdict: str, parts: list[str]) -> None:
    answer = asked(*objects, *members(2, "a"), *members(2, "b"))
    assert (answer.verdict, [one.result for one in answer.parts]) == (verdict, parts)


def test_a_group_in_a_composite_group_is_explained_with_it() -> None:
    objects = [*nodes(2), make_composite("g", 1), part("a", 2, "g"), *members(2, "a")]
    loaded = LoadedCluster(objects=objects, name="here", release=V1_37)
    assert explain_group(loaded, "default", "a") == explain_group(loaded, "default", "g")
    assert asked(*objects).as_json()["minGroupCount"] == 1


def test_min_resources_of_another_scheduler_are_explained() -> None:
    spec = CoschedulingSpec(min_member=1, min_resources={"cpu": "5", "memory": "1Gi"})
    group = CoschedulingPodGroup(metadata=ObjectMeta(name="g", namespace="default"), spec=spec)
    answer = asked(
        make_node("n0", cpu="3", memory="512Mi"), group, make_pod("m", cpu="1", labels={POD_GROUP_LABEL: "g"})
    )
    assert answer.verdict == "cannot be scheduled: resource gap: cpu 2, memory 512Mi"
    assert answer.waiting[0].reason == "not tried: the cluster has less than minResources of the PodGroup"
    assert answer.remedies == (
        "free cpu 2, memory 512Mi in the cluster, or add nodes that have it",
        "lower minResources of the PodGroup",
    )
