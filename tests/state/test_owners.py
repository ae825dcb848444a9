"""The selectors of a pod's owners."""

from __future__ import annotations

import pytest

from bayplan.api.meta import LabelSelector, Object
from bayplan.api.workloads import (
    EqualitySelectorSpec,
    LabelSelectorSpec,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from bayplan.plugin import Cluster
from bayplan.plugin.objects import owner_selector
from bayplan.testing.builders import (
    make_expression,
    make_owner,
    make_pod,
    make_replica_set,
    make_selector,
    make_service,
)

WEB, TIER = {"app": "web"}, {"tier": "front"}
BAD = make_selector({}, make_expression("app", "In"))


def controller(selector: dict[str, str] | None) -> ReplicationController:
    return ReplicationController(
        metadata=make_service("c").metadata, spec=EqualitySelectorSpec(selector=selector)
    )


def stateful_set(selector: LabelSelector) -> StatefulSet:
    return StatefulSet(metadata=make_service("c").metadata, spec=LabelSelectorSpec(selector=selector))


@pytest.mark.parametrize(
    ("objects", "owner", "expected"),
    [
        pytest.param([], None, "<everything>", id="none"),
        pytest.param([make_service("s", WEB)], None, "app=web", id="a service"),
        pytest.param(
            [make_service("s", WEB), make_service("t", TIER)], None, "app=web,tier=front", id="two services"
        ),
        pytest.param([make_service("s", {"app": "db"})], None, "<everything>", id="one that selects others"),
        pytest.param([make_service("s", WEB, namespace="other")], None, "<everything>", id="one elsewhere"),
        pytest.param([make_service("s")], None, "<everything>", id="one without a selector"),
        pytest.param([make_service("s", {})], None, "<everything>", id="one that selects all"),
        pytest.param(
            [make_replica_set("c", TIER)], ("apps/v1", "ReplicaSet"), "tier=front", id="a ReplicaSet"
        ),
        pytest.param(
            [make_replica_set("c", TIER), make_service("s", WEB)],
            ("apps/v1", "ReplicaSet"),
            "app=web,tier=front",
            id="and a service",
        ),
        pytest.param(
            [stateful_set(make_selector(TIER))], ("apps/v1", "StatefulSet"), "tier=front", id="a StatefulSet"
        ),
        pytest.param(
            [controller(TIER)], ("v1", "ReplicationController"), "tier=front", id="a ReplicationController"
        ),
        pytest.param(
            [controller(None)],
            ("v1", "ReplicationController"),
            "<everything>",
            id="one without a selector, too",
        ),
        pytest.param([], ("apps/v1", "ReplicaSet"), "<everything>", id="a deleted owner"),
        pytest.param(
            [make_replica_set("c", TIER)],
            ("extensions/v1", "ReplicaSet"),
            "<everything>",
            id="an owner of another group",
        ),
        pytest.param(
            [make_replica_set("c", TIER)], ("batch/v1", "Job"), "<everything>", id="an owner of another kind"
        ),
        pytest.param(
            [make_replica_set("c", BAD)],
            ("apps/v1", "ReplicaSet"),
            "<everything>",
            id="an owner with a malformed selector",
        ),
    ],
)
def test_owner_selector(objects: list[Object], owner: tuple[str, str] | None, expected: str) -> None:
    cluster = Cluster()
    for item in objects:
        cluster.objects.put(item)
    reference = None if owner is None else make_owner(owner[1], "c", api_version=owner[0])
    pod = make_pod(labels={**WEB, **TIER}, owner=reference)
    assert str(owner_selector(pod, cluster.objects)) == expected


def test_a_controller_that_does_not_match_its_pod_counts_all_the_same() -> None:
    """Unlike that of a service, it is not used."""
    cluster = Cluster()
    cluster.objects.put(make_replica_set("c", {"app": "db"}))
    pod = make_pod(labels=WEB, owner=make_owner("ReplicaSet", "c"))
    assert str(owner_selector(pod, cluster.objects)) == "app=db"
    assert isinstance(next(iter(cluster.objects.of(ReplicaSet))), ReplicaSet)
