"""`explain group`: what is said of groups that fit, do not fit, preempt, or are not complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.explain.groups import GroupAnswer, explain_group
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.meta import Object
from bayplan.api.releases import V1_36, V1_37
from bayplan.errors import InputError
from bayplan.testing import make_node, make_pod
from tests.commands import bayplan
from tests.scheduler.behaviour.test_groups import make_group, members, nodes

TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
ALONE = "0/1 nodes are available: 1 Insufficient cpu."


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
            [""],
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
            [""],
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


def test_members_of_a_topology_stay_together() -> None:
    zones = [make_node(f"n{i}", cpu="2", labels={"zone": f"z{i}"}) for i in range(2)]
    answer = asked(*zones, make_group(min_count=3, key="zone"), *members(3))
    assert not answer.is_schedulable
    assert "0/2 placements are available" in answer.verdict


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
