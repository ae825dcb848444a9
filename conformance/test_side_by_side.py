"""kube-scheduler and bayplan have the same nodes, scores, conditions and events for the same cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.harness.admin import Raw
from conformance.harness.control_plane import ControlPlane
from conformance.harness.objects import node, pod
from conformance.harness.schedulers import LOGS_SYNCED, start_bayplan, start_kube_scheduler
from conformance.side_by_side import Outcome, Scenario, logged_scores, play

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ON_N4: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": "n4"}}


def term(app: str, key: str = "kubernetes.io/hostname") -> Raw:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def spread(app: str, key: str, otherwise: str) -> list[Raw]:
    selector = {"matchLabels": {"app": app}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": otherwise, "labelSelector": selector}]


def in_zone(*zones: str) -> Raw:
    return {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}


NODES = [
    node("n1", cpu="4", memory="8Gi", labels={ZONE: "a", "disk": "ssd"}),
    node("n2", cpu="8", memory="8Gi", labels={ZONE: "a"}),
    node("n3", cpu="4", memory="16Gi", labels={ZONE: "b", "disk": "ssd"}),
    node("n4", cpu="2", memory="4Gi", labels={ZONE: "b"}),
    {
        **node("n5", cpu="16", memory="64Gi", labels={ZONE: "c"}),
        "spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]},
    },
    {
        **node("n6", cpu="4", memory="8Gi", labels={ZONE: "c"}),
        "spec": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]},
    },
    {**node("n7", cpu="4", memory="8Gi", labels={ZONE: "c"}), "spec": {"unschedulable": True}},
]
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "now"},
    "provisioner": "example.com/disk",
    "volumeBindingMode": "Immediate",
}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "unbound", "namespace": "default"},
    "spec": {
        "storageClassName": "now",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def with_claim(name: str) -> list[Raw]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


PODS = [
    pod("plain-1", cpu="500m", memory="1Gi"),
    pod("plain-2", cpu="500m", memory="1Gi"),
    pod("nothing-requested"),
    pod("selects", cpu="100m", nodeSelector={"disk": "ssd"}),
    pod(
        "prefers",
        cpu="100m",
        affinity={"nodeAffinity": {PREFERRED: [{"weight": 10, "preference": in_zone("b")}]}},
    ),
    pod("tolerates", cpu="1", tolerations=[{"key": "dedicated", "operator": "Exists"}]),
    *(pod(f"web-{number}", cpu="200m", labels={"app": "web"}) for number in range(3)),
    *(
        pod(
            f"spread-{number}",
            cpu="100m",
            labels={"app": "spread"},
            topologySpreadConstraints=spread("spread", ZONE, "DoNotSchedule"),
        )
        for number in range(4)
    ),
    *(
        pod(
            f"soft-{number}",
            cpu="100m",
            labels={"app": "soft"},
            topologySpreadConstraints=spread("soft", "kubernetes.io/hostname", "ScheduleAnyway"),
        )
        for number in range(3)
    ),
    pod(
        "near-web",
        cpu="100m",
        affinity={"podAffinity": {REQUIRED: [term("web", ZONE)]}},
    ),
    pod(
        "away-from-web",
        cpu="100m",
        affinity={"podAntiAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": term("web")}]}},
    ),
    pod("too-large", cpu="100"),
    pod("nowhere", nodeSelector={"disk": "tape"}),
    pod(
        "no-friend",
        affinity={"podAffinity": {REQUIRED: [term("nobody")]}},
    ),
    pod(
        "named-elsewhere",
        affinity={
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n99"]}]}
                    ]
                }
            }
        },
    ),
    pod("gated", schedulingGates=[{"name": "example.com/later"}]),
    pod("claim-missing", volumes=with_claim("missing")),
    pod("claim-unbound", volumes=with_claim("unbound")),
    pod("filler", cpu="1500m", **ON_N4, priority=1),
    pod("important", cpu="1500m", **ON_N4, priority=1000),
    pod("polite", cpu="1500m", **ON_N4, priority=2000, preemptionPolicy="Never"),
]

SCENARIO = Scenario([*NODES, SERVICE, CLASS, CLAIM], PODS)

Sides = tuple[dict[str, Outcome], dict[str, Outcome], dict[str, dict[str, dict[str, int]]]]


@pytest.fixture(scope="module")
def sides(plane: ControlPlane) -> Sides:
    """What kube-scheduler did, what bayplan did, and the scores that kube-scheduler gave."""
    theirs, process = asyncio.run(
        play(plane, start_kube_scheduler, SCENARIO, flags=[f"--vmodule={LOGS_SYNCED},schedule_one=10"])
    )
    scores = logged_scores(process)
    ours, _ = asyncio.run(play(plane, start_bayplan, SCENARIO))
    return ({one.pod: one for one in theirs}, {one.pod: one for one in ours}, scores)


every_pod = pytest.mark.parametrize("name", [item["metadata"]["name"] for item in PODS])


@every_pod
def test_the_same_node(sides: Sides, name: str) -> None:
    theirs, ours = sides[0][name], sides[1][name]
    assert (ours.node, ours.nominated, ours.gone) == (theirs.node, theirs.nominated, theirs.gone)


@every_pod
def test_the_same_scores(sides: Sides, name: str) -> None:
    """Of the very cluster that kube-scheduler saw, plugin by plugin and node by node."""
    assert sides[0][name].expected_scores == sides[2].get(name, {})


@every_pod
def test_the_same_condition(sides: Sides, name: str) -> None:
    assert sides[1][name].condition == sides[0][name].condition


@every_pod
def test_the_same_events(sides: Sides, name: str) -> None:
    assert sides[1][name].events == sides[0][name].events


@every_pod
def test_kubectl_describes_it_the_same(sides: Sides, name: str) -> None:
    assert sides[1][name].described == sides[0][name].described


def test_the_scenario_shows_what_it_is_meant_to(sides: Sides) -> None:
    """Otherwise everything could be the same because nothing happened."""
    theirs, _, scores = sides
    unbound = [name for name, outcome in theirs.items() if not outcome.node]
    assert {"too-large", "nowhere", "no-friend", "gated", "claim-missing", "claim-unbound"} <= set(unbound)
    assert theirs["important"].gone
    assert len(scores) > 15
