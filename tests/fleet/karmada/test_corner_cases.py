"""Rules of Karmada's source that none of the recorded results shows."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.fleet.karmada.binding import attempt
from bayplan.fleet.karmada.clusters import ClusterTable
from bayplan.fleet.karmada.estimate import GeneralEstimator
from bayplan.fleet.karmada.kinds import (
    BindingSpec,
    Cluster,
    ClusterResourceBinding,
    Component,
    ResourceBinding,
    decode_karmada,
)
from bayplan.fleet.karmada.schedule import Reason, schedule


def cluster(name: str = "a", **summary: Any) -> Cluster:
    content = {
        "metadata": {"name": name},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}],
            "resourceSummary": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "100"}, **summary},
        },
    }
    return decode_karmada(Cluster, content)


def binding(kind: type[ResourceBinding] = ResourceBinding, **spec: Any) -> ResourceBinding:
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"}
    content = {"metadata": {"name": "web-deployment"}, "spec": {"resource": resource, **spec}}
    return decode_karmada(kind, content)


@pytest.mark.parametrize("replicas", [0, 1])
def test_no_cluster_is_selected_without_max_groups_even_for_no_replicas(replicas: int) -> None:
    placement = {
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1}],
        "replicaScheduling": {"replicaDivisionPreference": "Aggregated"},
    }
    requirements = {"resourceRequest": {"cpu": "1"}}
    spec: BindingSpec = binding(replicas=replicas, replicaRequirements=requirements, placement=placement).spec
    found = schedule(spec, ClusterTable([cluster()]))
    assert found.reason is Reason.SCHEDULER_ERROR
    assert found.error == "failed to select clusters: no enough resource when selecting 0 clusters"


@pytest.mark.parametrize("kind", [ResourceBinding, ClusterResourceBinding])
def test_a_binding_without_a_placement_is_tried_again_and_nothing_is_written(
    kind: type[ResourceBinding],
) -> None:
    made = attempt(binding(kind, replicas=2), ClusterTable([cluster()]))
    assert (made.condition, made.retry, made.events) == (None, Reason.SCHEDULER_ERROR, ())


def test_quotients_of_component_sets_have_32_bits() -> None:
    """Free memory without a suffix is counted in thousandths, a request with one in whole units."""
    one = cluster(allocatable={"memory": str(2**40), "pods": "100"})
    request = {"resourceRequest": {"memory": "95Ki"}}
    component = decode_karmada(Component, {"name": "c", "replicas": 1, "replicaRequirements": request})
    wrapped = (2**40 * 1000 // (95 * 1024)) - 3 * 2**32
    assert GeneralEstimator().sets(one, [component]) == wrapped
