"""DynamicResources: which pods wait for claims, and which events requeue them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bayplan.api.meta import OwnerReference
from bayplan.api.pod import PodResourceClaim
from bayplan.api.releases import V1_37
from bayplan.plugin import Action, Pod, Resource, unresolvable
from bayplan.plugin.devices import ResourceClaim, ResourceClaimStatus
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.testing.builders import make_allocated_device, make_pod, make_resource_claim
from bayplan.testing.calling import make_plugin

from ..evaluating import points, registrations, requeues
from .clusters import ALLOCATED, CLAIM, REQUEST, claiming, cluster_with, created, plain, plugin_on, templated

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLAIM_EVENT = (Resource.RESOURCE_CLAIM, Action.UPDATE)
CLAIMS_MADE = (Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)


def test_its_points_are_upstreams() -> None:
    assert points(DynamicResources) == {
        "PreEnqueue",
        "PreFilter",
        "Filter",
        "PostFilter",
        "Score",
        "NormalizeScore",
        "Reserve",
        "PreBind",
    }


def test_registrations() -> None:
    assert registrations(plugin_on(cluster_with())) == [
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        (Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE),
        CLAIMS_MADE,
        (Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        (Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
    ]


def test_v1_37_registers_the_deletion_of_claims() -> None:
    (mask,) = [
        action
        for resource, action in registrations(plugin_on(cluster_with(release=V1_37)))
        if resource is Resource.RESOURCE_CLAIM
    ]
    assert mask == Action.ADD | Action.UPDATE | Action.DELETE


@pytest.mark.parametrize(
    ("deleted", "expected", "keys"),
    [
        pytest.param(ALLOCATED, True, None, id="it had devices"),
        pytest.param(CLAIM, False, ("default/c",), id="it had none"),
    ],
)
def test_hint_on_deleted_claims(deleted: ResourceClaim, expected: bool, keys: object) -> None:
    """The waiting pod need not use the claim, nor need its own claims be there."""
    plugin = plugin_on(cluster_with(release=V1_37))
    event = (Resource.RESOURCE_CLAIM, Action.DELETE)
    assert requeues(plugin, event, templated, deleted, None) is expected
    (registered,) = [one for one in plugin.events_to_register() if one.keys is not None]
    assert registered.keys is not None
    assert registered.keys(deleted, None) == keys
    assert not requeues(plugin_on(cluster_with()), event, templated, deleted, None)


@pytest.mark.parametrize(
    ("pod", "claims", "problem"),
    [
        pytest.param(plain, [], "", id="none"),
        pytest.param(claiming, [CLAIM], "", id="there"),
        pytest.param(claiming, [], 'could not find ResourceClaim "default/c"', id="missing"),
        pytest.param(
            claiming,
            [replace(CLAIM, metadata=replace(CLAIM.metadata, deletion_timestamp=NOON))],
            'resourceclaim "c" is being deleted',
            id="being deleted",
        ),
        pytest.param(templated, [], 'pod "default/t": ResourceClaim not created yet', id="not created"),
        pytest.param(created(templated, None), [], "", id="no claim needed"),
        pytest.param(
            created(templated, "c"),
            [CLAIM],
            "ResourceClaim default/c was not created for Pod default/t (Pod is not owner)",
            id="of another owner",
        ),
        pytest.param(
            created(templated, "c"),
            [make_resource_claim("c", REQUEST, owner=OwnerReference(kind="Pod", uid="u", controller=True))],
            "",
            id="its own",
        ),
        pytest.param(
            make_pod("t", resource_claims=(PodResourceClaim(name="gpu"),)),
            [],
            'pod "default/t", spec.resourceClaim "gpu": none of the supported fields are set',
            id="nothing named",
        ),
    ],
)
def test_a_pod_waits_for_its_claims(pod: Pod, claims: list[ResourceClaim], problem: str) -> None:
    answer = plugin_on(cluster_with(*claims)).pre_enqueue(pod)
    assert answer == (unresolvable(problem) if problem else None)


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(claiming, CLAIM, ALLOCATED, True, id="its own was allocated"),
        pytest.param(claiming, CLAIM, CLAIM, False, id="nothing changed"),
        pytest.param(claiming, None, CLAIM, True, id="its own was added"),
        pytest.param(
            claiming,
            make_resource_claim("d", REQUEST, allocated=[make_allocated_device("gpu-0", "n")]),
            make_resource_claim("d", REQUEST),
            True,
            id="another was freed",
        ),
        pytest.param(
            claiming,
            make_resource_claim("d", REQUEST),
            make_resource_claim("d", REQUEST, allocated=[make_allocated_device("gpu-0", "n")]),
            False,
            id="another was allocated",
        ),
        pytest.param(templated, ALLOCATED, CLAIM, False, id="freed, but its own is missing"),
    ],
)
def test_hint_on_claims(pod: Pod, old: ResourceClaim | None, new: ResourceClaim, expected: bool) -> None:
    plugin = plugin_on(cluster_with(CLAIM))
    event = (Resource.RESOURCE_CLAIM, Action.ADD if old is None else Action.UPDATE)
    assert requeues(plugin, event, pod, old, new) is expected


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        pytest.param(None, CLAIM, ("default/c",), id="was added"),
        pytest.param(CLAIM, ALLOCATED, ("default/c",), id="allocated"),
        pytest.param(ALLOCATED, CLAIM, ("default/c", "devices"), id="freed"),
    ],
)
def test_events_of_claims_name_them(old: ResourceClaim | None, new: ResourceClaim, keys: object) -> None:
    (registered,) = [
        one for one in make_plugin(DynamicResources).events_to_register() if one.keys is not None
    ]
    assert registered.keys is not None
    assert registered.keys(old, new) == keys


@pytest.mark.parametrize(
    ("pod", "keys"),
    [
        pytest.param(claiming, ["default/c", "devices"], id="its claim is there"),
        pytest.param(created(templated, "x"), ["default/x"], id="its claim is not there"),
        pytest.param(templated, [], id="its claim has no name yet"),
        pytest.param(make_pod("plain"), ["devices"], id="extended resources"),
    ],
)
def test_pods_wait_for_devices_when_their_claims_are_there(pod: Pod, keys: list[str]) -> None:
    assert list(plugin_on(cluster_with(CLAIM)).waiting_keys(pod)) == keys


def test_claims_are_looked_up_again_when_some_have_changed() -> None:
    cluster = cluster_with()
    plugin = plugin_on(cluster)
    assert [plugin.pre_enqueue(claiming) is None for _ in range(2)] == [False, False]
    cluster.objects.put(CLAIM)
    assert plugin.pre_enqueue(claiming) is None
    assert plugin.pre_enqueue(created(templated, "x")) is not None
    cluster.objects.remove(CLAIM)
    assert plugin.pre_enqueue(claiming) is not None


@pytest.mark.parametrize(
    ("pod", "changed", "expected"),
    [
        pytest.param(templated, created(templated, None), True, id="its own"),
        pytest.param(templated, created(templated, "x"), False, id="still missing"),
        pytest.param(claiming, created(templated, None), False, id="another pod's"),
    ],
)
def test_hint_on_claims_made_from_templates(pod: Pod, changed: Pod, expected: bool) -> None:
    assert requeues(plugin_on(cluster_with(CLAIM)), CLAIMS_MADE, pod, changed, changed) is expected


def test_status_of_claims_is_compared_by_value() -> None:
    """The hint must not take an equal status for a change."""
    same = make_resource_claim("c", REQUEST)
    assert same.status == ResourceClaimStatus()
    assert not requeues(plugin_on(cluster_with(CLAIM)), CLAIM_EVENT, claiming, CLAIM, same)
