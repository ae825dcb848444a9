"""Pod groups in the API: only with their feature gates, and without the fields of gates that are off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.embedded.server.catalog import served_kinds
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import POD_GROUPS, PODS, WORKLOADS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.tables.printer import Printer

ALL = frozenset(
    {
        "GenericWorkload",
        "TopologyAwareWorkloadScheduling",
        "PodGroupPreemptionPolicy",
        "CompositePodGroup",
        "DRAWorkloadResourceClaims",
    }
)
GROUP: dict[str, Any] = {
    "metadata": {"name": "g"},
    "spec": {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
        "resourceClaims": [{"name": "c", "resourceClaimName": "d"}],
        "preemptionPolicy": "PreemptLowerPriority",
        "parentCompositePodGroupName": "parent",
        "workloadRef": {"workloadName": "w", "templateName": "t"},
    },
}
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": "g"}},
}


def with_gates(*gates: str) -> Release:
    return V1_37.with_gates(V1_37.gates | frozenset(gates))


def api(*gates: str) -> ObjectAPI:
    return open_api(release=with_gates(*gates))


@pytest.mark.parametrize(
    ("release", "added"),
    [
        pytest.param(V1_36, [], id="1.36"),
        pytest.param(V1_37, [], id="no gate"),
        pytest.param(
            with_gates("GenericWorkload"),
            ["v1beta1/podgroups", "v1beta1/workloads", "v1alpha3/podgroups", "v1alpha3/workloads"],
            id="pod groups",
        ),
        pytest.param(
            with_gates(*ALL),
            [
                "v1beta1/podgroups",
                "v1beta1/workloads",
                "v1alpha3/compositepodgroups",
                "v1alpha3/podgroups",
                "v1alpha3/workloads",
            ],
            id="composite groups",
        ),
    ],
)
def test_the_kinds_of_a_gate_are_served_with_it(release: Release, added: list[str]) -> None:
    served = [one for one in served_kinds(release) if one.group == "scheduling.k8s.io"]
    assert [f"{one.version}/{one.plural}" for one in served] == ["v1/priorityclasses", *added]


@pytest.mark.parametrize(
    ("gates", "dropped"),
    [
        pytest.param(ALL, set(), id="all gates"),
        pytest.param(
            ALL - {"TopologyAwareWorkloadScheduling"}, {"schedulingConstraints"}, id="without topology"
        ),
        pytest.param(
            {"GenericWorkload"},
            {"schedulingConstraints", "resourceClaims", "preemptionPolicy", "parentCompositePodGroupName"},
            id="pod groups alone",
        ),
    ],
)
def test_fields_of_gates_that_are_off_are_dropped(gates: frozenset[str], dropped: set[str]) -> None:
    created = api(*gates).create(POD_GROUPS, GROUP, "default")
    assert GROUP["spec"].keys() - created["spec"].keys() == dropped


def test_templates_of_a_workload_lose_the_same_fields() -> None:
    template = {"name": "t", "schedulingPolicy": {"basic": {}}, "preemptionPolicy": "Never"}
    content: dict[str, Any] = {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}}
    created = api("GenericWorkload").create(WORKLOADS, content, "default")
    assert created["spec"]["podGroupTemplates"] == [{"name": "t", "schedulingPolicy": {"basic": {}}}]


@pytest.mark.parametrize(("gates", "kept"), [((), False), (("GenericWorkload",), True)], ids=["off", "on"])
def test_the_group_of_a_pod_is_dropped_without_the_gate(gates: tuple[str, ...], kept: bool) -> None:
    created = api(*gates).create(PODS, POD, "default")
    assert ("schedulingGroup" in created["spec"]) is kept


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        pytest.param([], "Pending", id="not tried"),
        pytest.param([("PodGroupInitiallyScheduled", "True", "Scheduled")], "Scheduled", id="scheduled"),
        pytest.param(
            [("PodGroupInitiallyScheduled", "False", "SchedulerError")], "Unschedulable", id="not scheduled"
        ),
        pytest.param(
            [
                ("PodGroupInitiallyScheduled", "True", "Scheduled"),
                ("DisruptionTarget", "True", "PreemptionByScheduler"),
            ],
            "PreemptionByScheduler",
            id="preempted",
        ),
    ],
)
def test_the_columns_of_a_group(conditions: list[tuple[str, str, str]], status: str) -> None:
    content = {
        **GROUP,
        "status": {"conditions": [{"type": t, "status": s, "reason": r} for t, s, r in conditions]},
    }
    body = msgspec.json.encode(content)
    table = Printer(lambda: 0.0).table(POD_GROUPS, [Document("default/g", 7, body)], "None")
    assert table["rows"][0]["cells"][:4] == ["g", "Gang", "w", status]
