"""DynamicResources: extended resources that devices serve."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from bayplan.api.meta import OwnerReference
from bayplan.api.pod import Container, ResourceRequirements
from bayplan.plugin import DEFAULT_RELEASE, SKIP_FOR_SIGNATURE, unschedulable
from bayplan.plugins.dynamic_resources.extended import variant
from bayplan.state.derived import derived
from bayplan.state.devices import ExtendedResources
from bayplan.testing.builders import make_device_class, make_pod, make_resource_claim

from ..evaluating import UNRESOLVABLE
from .clusters import REQUEST, cluster_with, evaluate, gpus, post_filter


def test_extended_resources_whose_feature_is_off() -> None:
    served = make_device_class("gpu", extended_resource="example.com/gpu")
    pod = make_pod("e", requests={"example.com/gpu": 1})
    release = DEFAULT_RELEASE.with_gates(DEFAULT_RELEASE.gates - {"DRAExtendedResource"})
    assert evaluate(pod, cluster_with(served, gpus("a"), release=release)).pre_filter == SKIP_FOR_SIGNATURE
    assert evaluate(pod, cluster_with(served, gpus("a"))).pre_filter is None


def container(name: str, amount: object, restart_policy: str = "") -> Container:
    resources = ResourceRequirements(
        requests={} if amount is None else {"example.com/gpu": cast(Any, amount)}
    )
    return Container(name=name, resources=resources, restart_policy=restart_policy)


@pytest.mark.parametrize(
    ("init", "main", "requests", "mappings"),
    [
        pytest.param(
            [container("a", 3), container("s", 1, "Always")],
            [container("m", 1)],
            [("container-0-request-0", 1), ("container-1-request-0", 1), ("container-2-request-0", 1)],
            [("s", "1"), ("m", "2"), ("a", "1"), ("a", "2"), ("a", "0")],
            id="init containers use what others have",
        ),
        pytest.param(
            [container("a", 1), container("b", 2)],
            [container("m", None)],
            [("container-1-request-0", 2)],
            [("a", "1"), ("b", "1")],
            id="the largest request serves all init containers",
        ),
        pytest.param([], [container("m", "500m")], [], [], id="no whole number"),
    ],
)
def test_requests_of_containers(
    init: list[Container],
    main: list[Container],
    requests: list[tuple[str, int]],
    mappings: list[tuple[str, str]],
) -> None:
    cluster = cluster_with(make_device_class("gpu", extended_resource="example.com/gpu"))
    pod = make_pod()
    pod = replace(pod, spec=replace(pod.spec, init_containers=tuple(init), containers=tuple(main)))
    made = variant(derived(cluster, ExtendedResources), pod, ("example.com/gpu",))
    assert [(one.name, one.exactly and one.exactly.count) for one in made.requests] == requests
    assert [(one.container_name, one.request_name.split("-")[1]) for one in made.mappings] == mappings


def test_a_left_over_claim_is_deleted_first() -> None:
    """An earlier attempt created it for the pod, and was not bound."""
    pod = make_pod("p", uid="u", requests={"example.com/gpu": 1})
    owner = OwnerReference(api_version="v1", kind="Pod", name="p", uid="u", controller=True)
    claim = make_resource_claim("old", REQUEST, owner=owner)
    meta = replace(claim.metadata, annotations={"resource.kubernetes.io/extended-resource-claim": "true"})
    cluster = cluster_with(
        make_device_class("gpu", extended_resource="example.com/gpu"),
        replace(claim, metadata=meta),
        gpus("a"),
    )
    found = evaluate(pod, cluster)
    reason = (UNRESOLVABLE, ("cannot schedule extended resource claim",))
    assert found.rejected() == dict.fromkeys("ab", reason)
    assert post_filter(found) == unschedulable("deletion of ResourceClaim completed")


def test_a_resource_that_nothing_offers() -> None:
    pod = make_pod("p", requests={"example.com/gpu": 1, "example.com/nic": 1})
    cluster = cluster_with(make_device_class("gpu", extended_resource="example.com/gpu"), gpus("a"))
    reason = (UNRESOLVABLE, ("cannot fit resource",))
    assert evaluate(pod, cluster).rejected() == dict.fromkeys("ab", reason)
