"""DynamicResources: which pods wait for claims, which nodes have devices for them, and what is freed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm, OwnerReference
from bayplan.api.pod import Container, PodResourceClaim, PodResourceClaimStatus, ResourceRequirements
from bayplan.plugin import (
    DEFAULT_RELEASE,
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    Cluster,
    Code,
    CycleState,
    FilterOutcome,
    Object,
    Pod,
    Release,
    Resource,
    Status,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.devices import (
    DeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
    is_in_flight,
    put_in_flight,
)
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.extended import variant
from bayplan.releases import V1_36, V1_37
from bayplan.scheduler.core import CoreHandle
from bayplan.snapshot.derived import derived
from bayplan.snapshot.extended_resources import ExtendedResources
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_first_available,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)

from .evaluating import UNRESOLVABLE, Evaluation, points, registrations, requeues

CLAIM_EVENT = (Resource.RESOURCE_CLAIM, Action.UPDATE)
CLAIMS_MADE = (Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

CLASS = make_device_class("gpu")
REQUEST = make_device_request("gpu", "gpu")
CLAIM = make_resource_claim("c", REQUEST)
ALLOCATED = make_resource_claim("c", REQUEST, allocated=[make_allocated_device("gpu-0", "n")])
ON_A = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_fields=(LabelSelectorRequirement(key="metadata.name", operator="In", values=("a",)),)
        ),
    )
)

plain = make_pod()
claiming = make_pod(resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="c"),))
templated = make_pod(
    "t", uid="u", resource_claims=(PodResourceClaim(name="gpu", resource_claim_template_name="x"),)
)


def created(pod: Pod, name: str | None) -> Pod:
    """The pod once the controller has created its claim."""
    status = PodResourceClaimStatus(name="gpu", resource_claim_name=name)
    return replace(pod, status=replace(pod.status, resource_claim_statuses=(status,)))


def gpus(node: str, count: int = 1, **fields: Any) -> Object:
    devices = (make_device(f"gpu-{number}", **fields) for number in range(count))
    return make_resource_slice(f"slice-{node}", *devices, node=node)


def cluster_with(*objects: Object, nodes: tuple[str, ...] = ("a", "b"), release: Release = V1_36) -> Cluster:
    cluster = Cluster(release)
    for name in nodes:
        cluster.set_node(make_node(name))
    for item in (CLASS, *objects):
        cluster.objects.put(item)
    return cluster


def plugin_on(cluster: Cluster) -> DynamicResources:
    return DynamicResources(handle=CoreHandle(cluster))


def evaluate(pod: Pod, cluster: Cluster) -> Evaluation:
    return Evaluation(plugin_on(cluster), pod, cluster)


def post_filter(
    evaluation: Evaluation, reason: str = "", pre_filtered: frozenset[str] | None = None
) -> Status:
    """The status of PostFilter where every node was rejected for this reason."""
    rejected = unresolvable(reason).by("DynamicResources")
    rows = evaluation.nodes.rows
    diagnosis = SimpleNamespace(statuses=lambda: [(rejected, rows)])
    outcome = SimpleNamespace(
        pre_filtered={"DynamicResources"} if pre_filtered is None else pre_filtered,
        diagnosis=diagnosis,
        cluster=evaluation.cluster,
    )
    status: Status = evaluation.plugin.post_filter(
        evaluation.state, evaluation.pod, cast(FilterOutcome, outcome)
    ).status
    return status


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


# Claims of a pod


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
    (registered,) = [one for one in DynamicResources().events_to_register() if one.keys is not None]
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


# PreFilter and Filter


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(REQUEST, None, id="fine"),
        pytest.param(
            make_device_request("r", "x"),
            unresolvable("request r: device class x does not exist"),
            id="no class",
        ),
        pytest.param(
            make_first_available("r", REQUEST, make_device_request("s", "x")),
            unresolvable("request r/s: device class x does not exist"),
            id="no class of an alternative",
        ),
        pytest.param(
            make_device_request("r", ""), failure("request r: unsupported request type"), id="no class name"
        ),
        pytest.param(
            DeviceRequest(name="r"),
            unresolvable("resource claim default/c, request r: unknown request type"),
            id="no request",
        ),
    ],
)
def test_pre_filter_checks_requests(request_: DeviceRequest, answer: Status | None) -> None:
    assert evaluate(claiming, cluster_with(make_resource_claim("c", request_))).pre_filter == answer


def test_alternatives_whose_feature_is_off() -> None:
    release = DEFAULT_RELEASE.with_gates(DEFAULT_RELEASE.gates - {"DRAPrioritizedList"})
    claim = make_resource_claim("c", make_first_available("r", REQUEST))
    assert evaluate(claiming, cluster_with(claim, gpus("a"), release=release)).pre_filter == unresolvable(
        "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    )


def test_extended_resources_whose_feature_is_off() -> None:
    served = make_device_class("gpu", extended_resource="example.com/gpu")
    pod = make_pod("e", requests={"example.com/gpu": 1})
    release = DEFAULT_RELEASE.with_gates(DEFAULT_RELEASE.gates - {"DRAExtendedResource"})
    assert evaluate(pod, cluster_with(served, gpus("a"), release=release)).pre_filter == SKIP_FOR_SIGNATURE
    assert evaluate(pod, cluster_with(served, gpus("a"))).pre_filter is None


def test_pre_filter_leaves_pods_without_claims_alone() -> None:
    cluster = cluster_with()
    assert evaluate(plain, cluster).pre_filter is SKIP_FOR_SIGNATURE
    assert evaluate(created(templated, None), cluster).pre_filter is SKIP


def test_a_claim_that_another_pod_is_about_to_allocate() -> None:
    cluster = cluster_with(CLAIM)
    put_in_flight(cluster.objects, CLAIM.uid, ALLOCATED)
    expected = unresolvable("resource claim default/c is in the process of being allocated")
    assert evaluate(claiming, cluster).pre_filter == expected


def test_an_allocation_with_a_malformed_selector_is_an_error() -> None:
    broken = NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_expressions=(LabelSelectorRequirement(key="a", operator="Near"),)),
        )
    )
    claim = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=broken
    )
    answer = evaluate(claiming, cluster_with(claim)).pre_filter
    assert answer.code is Code.ERROR
    assert "Near" in answer.message


@pytest.mark.parametrize(
    ("objects", "rejected"),
    [
        pytest.param([CLAIM, gpus("a")], {"b": "cannot allocate all claims"}, id="devices on one node"),
        pytest.param(
            [CLAIM, gpus("a"), make_resource_claim("d", allocated=[make_allocated_device("gpu-0", "a")])],
            dict.fromkeys("ab", "cannot allocate all claims"),
            id="taken",
        ),
        pytest.param(
            [CLAIM, make_resource_slice("s", make_device("x"), make_device("x"), node="a")],
            {"a": "invalid resource pools were encountered", "b": "cannot allocate all claims"},
            id="an invalid pool",
        ),
        pytest.param(
            [CLAIM, make_resource_slice("s", node="a")],
            dict.fromkeys("ab", "cannot allocate all claims"),
            id="a slice without devices",
        ),
        pytest.param(
            [CLAIM, make_resource_slice("s", make_device("x"), node="a", slices=2)],
            dict.fromkeys("ab", "cannot allocate all claims"),
            id="an incomplete pool",
        ),
        pytest.param(
            [
                make_resource_claim(
                    "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=ON_A
                )
            ],
            {"b": "resourceclaim not available on the node"},
            id="allocated elsewhere",
        ),
    ],
)
def test_nodes_without_devices_are_rejected(objects: list[Object], rejected: dict[str, str]) -> None:
    expected = {name: (UNRESOLVABLE, (reason,)) for name, reason in rejected.items()}
    assert evaluate(claiming, cluster_with(*objects)).rejected() == expected


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        pytest.param("device.", "CEL compile error: ", id="malformed"),
        pytest.param(
            'device.attributes["gpu.example.com"].model == "x"',
            "CEL runtime error: no such key: model",
            id="unknown attribute",
        ),
    ],
)
def test_a_selector_that_cannot_be_evaluated_is_an_error_that_names_the_claim(
    selector: str, text: str
) -> None:
    """Also for the next pod, whose claim has another name."""
    cluster = cluster_with(gpus("a"))
    state = CycleState()
    for name in ("c", "d"):
        cluster.objects.put(make_resource_claim(name, make_device_request("gpu", "gpu", selector)))
        entry = PodResourceClaim(name="gpu", resource_claim_name=name)
        one = evaluate(make_pod(name, resource_claims=(entry,)), cluster)
        one.state = CycleState(state.signature)
        one.plugin.pre_filter(one.state, one.pod, one.nodes)
        (status,) = [status for status in one.statuses() if status is not None and status.code is Code.ERROR]
        assert status.message.startswith(f"claim default/{name}: selector #0: {text}")


# Scores


def test_alternatives_are_scored_in_order() -> None:
    cluster = cluster_with(
        make_device_class("big", 'device.attributes["gpu.example.com"].size == "big"'),
        make_device_class("small", 'device.attributes["gpu.example.com"].size == "small"'),
        gpus("a", attributes={"size": "small"}),
        gpus("b", attributes={"size": "big"}),
        make_resource_claim(
            "c",
            make_first_available(
                "r", make_device_request("big", "big"), make_device_request("small", "small")
            ),
        ),
    )
    found = evaluate(claiming, cluster)
    assert found.rejected() == {}
    assert (found.scores(), found.normalized()) == ([7, 8], [87, 100])
    assert not found.plugin.has_uniform_score(found.state, found.pod)


def test_every_node_scores_nothing_without_alternatives() -> None:
    for pod in (plain, claiming):
        found = evaluate(pod, cluster_with(CLAIM, gpus("a"), gpus("b")))
        found.statuses()
        assert (found.scores(), found.normalized()) == ([0, 0], [0, 0])
        assert found.plugin.has_uniform_score(found.state, pod)


# PostFilter


def test_post_filter_misses_what_pre_filter_did_not_leave() -> None:
    """Where an earlier PreFilter ended the attempt; upstream reports it as an error."""
    found = evaluate(plain, cluster_with())
    assert post_filter(found, pre_filtered=frozenset({"NodeAffinity"})) == failure("not found")
    assert post_filter(found) == unschedulable("no new claims to deallocate")


@pytest.mark.parametrize(
    ("reserved_for", "text"),
    [
        pytest.param([], "deallocation of ResourceClaim completed", id="reserved for no pod"),
        pytest.param([claiming.uid], "deallocation of ResourceClaim completed", id="its own"),
        pytest.param(["other"], "still not schedulable", id="used by another pod"),
    ],
)
def test_post_filter_frees_an_unavailable_claim(reserved_for: list[str], text: str) -> None:
    claim = make_resource_claim(
        "c",
        REQUEST,
        allocated=[make_allocated_device("gpu-0", "x")],
        node_selector=NodeSelector(),
        reserved_for=reserved_for,
    )
    found = evaluate(claiming, cluster_with(claim))
    assert post_filter(found, "resourceclaim not available on the node") == unschedulable(text)


def test_post_filter_of_v1_37_reports_only_what_it_did() -> None:
    assert post_filter(evaluate(plain, cluster_with(release=V1_37))) == unschedulable()
    claims = {
        name: make_resource_claim(
            "c",
            REQUEST,
            allocated=[make_allocated_device("gpu-0", "x")],
            node_selector=NodeSelector(),
            reserved_for=[name],
        )
        for name in ("other", claiming.uid)
    }
    reason = "resourceclaim not available on the node"
    found = evaluate(claiming, cluster_with(claims["other"], release=V1_37))
    assert post_filter(found, reason) == unschedulable()
    found = evaluate(claiming, cluster_with(claims[claiming.uid], release=V1_37))
    assert post_filter(found, reason) == unschedulable("deallocation of ResourceClaim completed")


def test_post_filter_frees_only_claims_that_were_evaluated() -> None:
    """Where earlier filters rejected every node, DynamicResources rejected none."""
    claim = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "x")], node_selector=NodeSelector()
    )
    assert post_filter(evaluate(claiming, cluster_with(claim))) == unschedulable("still not schedulable")


# Reserve


def test_reserve_keeps_devices_from_others_until_unreserve() -> None:
    cluster = cluster_with(CLAIM, gpus("a"), gpus("b"), make_resource_claim("d", REQUEST))
    other = make_pod("o", resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="d"),))
    found = evaluate(claiming, cluster)
    assert found.plugin.reserve(found.state, claiming, "a") is None
    assert is_in_flight(cluster.objects, CLAIM.uid)
    assert list(evaluate(other, cluster).rejected()) == ["a"]
    found.plugin.unreserve(found.state, claiming, "a")
    assert not is_in_flight(cluster.objects, CLAIM.uid)
    assert evaluate(other, cluster).rejected() == {}


def test_reserve_of_v1_37_needs_the_claim() -> None:
    cluster = cluster_with(CLAIM, gpus("a"), release=V1_37)
    found = evaluate(claiming, cluster)
    cluster.objects.remove(CLAIM)
    assert found.plugin.reserve(found.state, claiming, "a") == failure(
        "internal error, couldn't signal allocation for claim c: look up assumed claim default/c, "
        f'UID={CLAIM.uid}: could not find ResourceClaim "default/c"'
    )
    assert not is_in_flight(cluster.objects, CLAIM.uid)


def test_there_is_nothing_to_reserve_or_to_bind_without_claims() -> None:
    plugin, state = DynamicResources(), CycleState()
    plugin.unreserve(state, plain, "n")
    assert (
        plugin.reserve(state, plain, "n"),
        plugin.pre_bind_pre_flight(state, plain, "n"),
        asyncio.run(plugin.pre_bind(state, plain, "n")),
    ) == (None, SKIP, None)


def test_every_share_of_a_device_has_an_id_of_its_own() -> None:
    shared = gpus("a", allow_multiple_allocations=True)
    cluster = cluster_with(CLAIM, shared, make_resource_claim("d", REQUEST), nodes=("a",))
    ids = set()
    for name in ("c", "d"):
        entry = PodResourceClaim(name="gpu", resource_claim_name=name)
        found = evaluate(make_pod(name, resource_claims=(entry,)), cluster)
        found.plugin.reserve(found.state, found.pod, "a")
        (planned,) = found.state.read("DynamicResources").plan.claims
        ids.add(planned.allocation.devices.results[0].share_id)
    assert len(ids) == 2
    assert None not in ids


# Extended resources


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


def test_status_of_claims_is_compared_by_value() -> None:
    """The hint must not take an equal status for a change."""
    same = make_resource_claim("c", REQUEST)
    assert same.status == ResourceClaimStatus()
    assert not requeues(plugin_on(cluster_with(CLAIM)), CLAIM_EVENT, claiming, CLAIM, same)
