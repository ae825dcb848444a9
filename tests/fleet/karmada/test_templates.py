"""From workloads to bindings: replicas, requirements, and placements as Karmada's webhook accepts them."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.pod import ResourceRequirements
from bayplan.fleet.karmada.clusters import ClusterTable
from bayplan.fleet.karmada.division import NO_STRATEGY
from bayplan.fleet.karmada.estimate import EstimatorError
from bayplan.fleet.karmada.kinds import (
    DIVIDED,
    BindingSpec,
    Cluster,
    Placement,
    PropagationPolicy,
    decode_karmada,
)
from bayplan.fleet.karmada.schedule import schedule
from bayplan.fleet.karmada.templates import (
    binding_spec,
    claiming_policy,
    placement_problems,
    replicas_of,
    requirements_of,
    with_placement_defaults,
)
from bayplan.testing import make_pod
from bayplan.testing.builders.pods import make_container, make_toleration


@pytest.mark.parametrize(
    ("workload", "replicas"),
    [
        pytest.param({"kind": "Deployment", "spec": {"replicas": 3}}, 3, id="a Deployment"),
        pytest.param({"kind": "StatefulSet", "spec": {}}, 0, id="replicas are missing"),
        pytest.param({"kind": "Job", "spec": {"parallelism": 4, "completions": 2}}, 2, id="few completions"),
        pytest.param({"kind": "Job", "spec": {}}, 1, id="a Job with one pod"),
        pytest.param({"kind": "Pod"}, 1, id="a pod"),
        pytest.param({"kind": "Service", "spec": {"replicas": 3}}, 0, id="another kind"),
    ],
)
def test_replicas_are_counted_by_kind(workload: dict[str, Any], replicas: int) -> None:
    assert replicas_of(workload) == replicas


def test_requirements_are_those_of_containers_init_containers_and_overhead() -> None:
    limited = make_container("b")
    limited = type(limited)(name="b", resources=ResourceRequirements(limits={"cpu": "1"}))
    pod = make_pod(
        containers=[make_container("a", cpu="500m"), limited],
        init_containers=[make_container("i", memory="1Gi")],
        overhead={"cpu": "100m"},
        node_selector={"disk": "ssd"},
        tolerations=[make_toleration("gpu")],
    )
    found = requirements_of(pod)
    assert found is not None
    assert found.resource_request == {"cpu": "1600m", "memory": "1Gi"}
    assert found.node_claim is not None
    assert found.node_claim.node_selector == {"disk": "ssd"}


def test_a_pod_without_needs_has_no_requirements() -> None:
    assert requirements_of(make_pod()) is None


def test_groups_of_workload_affinity_come_from_labels() -> None:
    placement = decode_karmada(
        Placement,
        {
            "workloadAffinity": {
                "affinity": {"groupByLabelKey": "app"},
                "antiAffinity": {"groupByLabelKey": "x"},
            }
        },
    )
    workload = {"kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}}}
    groups = binding_spec(workload, None, placement).workload_affinity_groups
    assert (groups.affinity_group, groups.anti_affinity_group) == ("app=web", "")


def test_defaults_of_a_placement() -> None:
    given = {"spreadConstraints": [{"maxGroups": 2}], "replicaScheduling": {}}
    found = with_placement_defaults(decode_karmada(Placement, given))
    constraint, scheduling = found.spread_constraints[0], found.replica_scheduling
    assert (constraint.spread_by_field, constraint.min_groups) == ("cluster", 1)
    assert scheduling is not None
    assert (scheduling.replica_scheduling_type, scheduling.replica_division_preference) == (
        DIVIDED,
        "Weighted",
    )


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        ({"clusterAffinity": {}, "clusterAffinities": [{"affinityName": "a"}]}, "cannot be used together"),
        ({"clusterAffinities": [{"affinityName": "a"}, {"affinityName": "a"}]}, "affinityName occurs twice"),
        (
            {"clusterAffinities": [{"affinityName": "a", "overflowAffinities": [{"affinityName": "b"}]}]},
            "overflowAffinities need",
        ),
        (
            {"spreadConstraints": [{"spreadByField": "cluster"}, {"spreadByField": "cluster"}]},
            "spreadByField occurs twice",
        ),
        ({"spreadConstraints": [{"spreadByField": "zone"}]}, "spreadByField cluster is missing"),
        (
            {"spreadConstraints": [{"spreadByField": "cluster", "spreadByLabel": "x"}]},
            "spreadByField and spreadByLabel",
        ),
        ({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": -1}]}, "must not be negative"),
        (
            {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]},
            "maxGroups must not be less",
        ),
    ],
)
def test_what_karmadas_webhook_rejects_is_named(placement: dict[str, Any], problem: str) -> None:
    assert problem in "; ".join(placement_problems(decode_karmada(Placement, placement)))


def test_a_malformed_label_selector_claims_nothing() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    spec = {"resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": selector}]}
    policy = decode_karmada(PropagationPolicy, {"metadata": {"name": "p"}, "spec": spec})
    assert claiming_policy({"apiVersion": "v1", "kind": "Pod"}, [policy]) is None


# One run


class Failing:
    name = "failing"

    def available(self, *args: object, **options: object) -> Any:
        raise EstimatorError("no connection")


def cluster(name: str) -> Cluster:
    apis = [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}]
    return decode_karmada(Cluster, {"metadata": {"name": name}, "status": {"apiEnablements": apis}})


def spec(**scheduling: str) -> BindingSpec:
    return decode_karmada(
        BindingSpec,
        {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment"},
            "replicas": 2,
            "placement": {"replicaScheduling": scheduling},
        },
    )


def test_an_estimator_that_fails_is_left_out_and_named() -> None:
    wanted = spec(replicaSchedulingType="Divided", replicaDivisionPreference="Aggregated")
    found = schedule(wanted, ClusterTable([cluster("a")]), estimators=[Failing()])
    assert found.replicas == {"a": 2}
    assert found.room is not None
    assert found.room.failed == {"failing": "no connection"}


def test_an_unknown_strategy_is_an_error() -> None:
    wanted = spec(replicaSchedulingType="Divided", replicaDivisionPreference="Random")
    found = schedule(wanted, ClusterTable([cluster("a")]))
    assert found.error.endswith(NO_STRATEGY.format(type="Divided", preference="Random"))
