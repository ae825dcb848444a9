"""ResourceClaims of pods: made from templates, reserved, freed and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.api.releases import DEFAULT_RELEASE, V1_37, Release
from bayplan.controllers.claims import generated_prefix
from bayplan.embedded.server import subresources
from bayplan.embedded.server.kinds import (
    DEVICE_TAINT_RULES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from bayplan.simulate.virtual_time import run_virtual
from tests.embedded.controllers.world import NAMESPACE, World, running_world

FINALIZER = "resource.kubernetes.io/delete-protection"
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n01", "device": "gpu-0"}
CONTAINER = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}


def in_cluster(test: Any, nodes: int = 2, release: Release = DEFAULT_RELEASE) -> None:
    """Runs a test in a cluster where only the test binds pods."""

    async def main() -> None:
        async with running_world(nodes, binds=False, release=release) as world:
            await world.run_until_idle()
            await test(world)

    run_virtual(main())


def make_pod(world: World, name: str = "p", **claim: str) -> Content:
    claims = [{"name": "gpu", **(claim or {"resourceClaimTemplateName": "t"})}]
    spec = {"containers": [CONTAINER], "resourceClaims": claims, "restartPolicy": "Never"}
    return world.create(PODS, name, spec)


def make_template(world: World, **metadata: Any) -> None:
    world.create(RESOURCE_CLAIM_TEMPLATES, "t", {"metadata": metadata, "spec": REQUESTS})


def claim_name(world: World, pod: str = "p") -> str:
    (status,) = world.get(PODS, pod)["status"]["resourceClaimStatuses"]
    assert status["name"] == "gpu"
    return str(status["resourceClaimName"])


def allocate(world: World, claim: str, *consumers: str, **result: Any) -> None:
    """What the scheduler writes."""
    world.change(RESOURCE_CLAIMS, claim, metadata={"finalizers": [FINALIZER]})
    reserved = [
        {"resource": "pods", "name": name, "uid": world.get(PODS, name)["metadata"]["uid"]}
        for name in consumers
    ]
    status = {"allocation": {"devices": {"results": [{**RESULT, **result}]}}, "reservedFor": reserved}
    world.api.patch(RESOURCE_CLAIMS, claim, NAMESPACE, {"status": status}, subresource="status")


def bind(world: World, pod: str = "p", node: str = "n01") -> None:
    subresources.bind(world.api, pod, NAMESPACE, node)


def phase(world: World, pod: str = "p") -> str:
    return str(world.get(PODS, pod)["status"]["phase"])


def test_a_pod_gets_a_claim_of_its_own_from_a_template() -> None:
    async def test(world: World) -> None:
        make_template(world, labels={"a": "b"}, annotations={"c": "d"})
        pod = make_pod(world)
        await world.run_until_idle()
        name = claim_name(world)
        assert name.startswith("p-gpu-")
        claim = world.get(RESOURCE_CLAIMS, name)
        meta = claim["metadata"]
        assert meta["generateName"] == "p-gpu-"
        assert meta["labels"] == {"a": "b"}
        assert meta["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
        assert meta["ownerReferences"] == [{**owner, "controller": True}]
        (request,) = claim["spec"]["devices"]["requests"]
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        assert request == {"name": "gpu", "exactly": exactly}

    in_cluster(test)


def test_a_missing_template_is_reported_and_awaited() -> None:
    async def test(world: World) -> None:
        make_pod(world)
        await world.after(1)
        problem = 'resourceclaimtemplate.resource.k8s.io "t" not found'
        expected = f'PodResourceClaim gpu: resource claim template "t": {problem}'
        assert world.events("p", "FailedResourceClaimCreation") == [expected]
        make_template(world)
        await world.run_until_idle()
        assert claim_name(world)

    in_cluster(test)


def test_a_claim_that_another_client_deleted_is_made_again() -> None:
    async def test(world: World) -> None:
        make_template(world)
        make_pod(world)
        await world.run_until_idle()
        first = claim_name(world)
        world.api.delete(RESOURCE_CLAIMS, first, NAMESPACE)
        await world.run_until_idle()
        assert claim_name(world) != first
        assert world.names(RESOURCE_CLAIMS) == [claim_name(world)]

    in_cluster(test)


def test_a_claim_whose_name_was_not_written_down_is_found_again() -> None:
    async def test(world: World) -> None:
        make_template(world)
        make_pod(world)
        await world.run_until_idle()
        name = claim_name(world)
        nothing = {"status": {"resourceClaimStatuses": None}}
        world.api.patch(PODS, "p", NAMESPACE, nothing, subresource="status")
        await world.run_until_idle()
        assert claim_name(world) == name
        assert world.names(RESOURCE_CLAIMS) == [name]

    in_cluster(test)


@pytest.mark.parametrize(
    ("pod", "claim", "expected"),
    [
        ("p", "gpu", "p-gpu-"),
        ("p" * 50, "gpu", "p" * 50 + "-gpu-"),
        ("p" * 60, "c" * 40, "p" * 33 + "-" + "c" * 22),
    ],
)
def test_generated_names_are_cut_in_proportion(pod: str, claim: str, expected: str) -> None:
    assert generated_prefix(pod, claim) == expected


def test_a_pod_runs_once_its_claim_is_reserved_for_it() -> None:
    async def test(world: World) -> None:
        make_template(world)
        make_pod(world)
        await world.run_until_idle()
        name = claim_name(world)
        allocate(world, name, "p")
        bind(world)
        await world.run_until_idle()
        assert phase(world) == "Running"
        assert world.get(PODS, "p")["status"]["resourceClaimStatuses"]

    in_cluster(test)


def test_a_bound_pod_without_its_claim_does_not_start() -> None:
    async def test(world: World) -> None:
        claim = world.create(RESOURCE_CLAIMS, "c", REQUESTS)
        pod = make_pod(world, resourceClaimName="c")
        bind(world)
        await world.after(200)
        assert phase(world) == "Pending"
        uids = pod["metadata"]["uid"], claim["metadata"]["uid"]
        problem = f"pod p ({uids[0]}) is not allowed to use ResourceClaim c ({uids[1]})"
        expected = f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}"
        assert world.events("p", "FailedPrepareDynamicResources") == [expected]
        # The test allocates it: the controller reserves it for the pod, which then starts.
        allocate(world, "c")
        await world.run_until_idle()
        (consumer,) = world.get(RESOURCE_CLAIMS, "c")["status"]["reservedFor"]
        assert consumer == {"resource": "pods", "name": "p", "uid": uids[0]}
        assert phase(world) == "Running"

    in_cluster(test)


def test_the_claim_of_a_deleted_pod_is_deleted() -> None:
    async def test(world: World) -> None:
        make_template(world)
        make_pod(world)
        await world.run_until_idle()
        allocate(world, claim_name(world), "p")
        bind(world)
        await world.run_until_idle()
        world.api.delete(PODS, "p", NAMESPACE)
        await world.after(10)
        assert world.names(PODS) == []
        assert world.names(RESOURCE_CLAIMS) == []

    in_cluster(test)


def test_the_claim_of_a_finished_pod_is_deleted_though_the_pod_stays() -> None:
    async def test(world: World) -> None:
        make_template(world)
        pod = {"containers": [CONTAINER], "restartPolicy": "Never"}
        claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        world.create(PODS, "p", {**pod, "resourceClaims": claims}, annotations={"bayplan/run-seconds": "5"})
        await world.run_until_idle()
        allocate(world, claim_name(world), "p")
        bind(world)
        await world.after(10)
        assert phase(world) == "Succeeded"
        assert world.names(RESOURCE_CLAIMS) == []

    in_cluster(test)


def test_a_shared_claim_is_freed_with_its_last_pod() -> None:
    async def test(world: World) -> None:
        world.create(RESOURCE_CLAIMS, "c", REQUESTS)
        for name in ("p", "q"):
            make_pod(world, name, resourceClaimName="c")
        allocate(world, "c", "p", "q")
        for name in ("p", "q"):
            bind(world, name)
        await world.run_until_idle()
        world.api.delete(PODS, "p", NAMESPACE)
        await world.after(10)
        claim = world.get(RESOURCE_CLAIMS, "c")
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["q"]
        assert "allocation" in claim["status"]
        world.api.delete(PODS, "q", NAMESPACE)
        await world.after(10)
        claim = world.get(RESOURCE_CLAIMS, "c")
        assert claim["status"] == {}
        assert not claim["metadata"].get("finalizers")

    in_cluster(test)


def test_an_allocated_unused_claim_stays_until_it_is_deleted() -> None:
    async def test(world: World) -> None:
        world.create(RESOURCE_CLAIMS, "c", REQUESTS)
        allocate(world, "c")
        await world.after(10)
        assert "allocation" in world.get(RESOURCE_CLAIMS, "c")["status"]
        world.api.delete(RESOURCE_CLAIMS, "c", NAMESPACE)
        await world.run_until_idle()
        assert world.names(RESOURCE_CLAIMS) == []

    in_cluster(test)


def test_a_claim_for_extended_resources_is_deleted_with_its_pod() -> None:
    async def test(world: World) -> None:
        container = {"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}
        pod = world.create(PODS, "p", {"containers": [container]})
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
        world.create(RESOURCE_CLAIMS, "c", REQUESTS, ownerReferences=[{**owner, "controller": True}])
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}
        extended = {"requestMappings": [mapping], "resourceClaimName": "c"}
        status = {"status": {"extendedResourceClaimStatus": extended}}
        world.api.patch(PODS, "p", NAMESPACE, status, subresource="status")
        allocate(world, "c", "p")
        bind(world)
        await world.run_until_idle()
        assert phase(world) == "Running"
        assert world.get(PODS, "p")["status"]["extendedResourceClaimStatus"] == extended
        world.api.delete(PODS, "p", NAMESPACE)
        await world.after(10)
        assert world.names(RESOURCE_CLAIMS) == []

    in_cluster(test)


# Device taints


def make_slice(world: World, *taints: Content, generation: int = 1, name: str = "s") -> None:
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n01",
        "pool": {"name": "n01", "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "taints": list(taints)}],
    }
    world.create(RESOURCE_SLICES, name, spec)


def run_pod(world: World, **result: Any) -> None:
    world.create(RESOURCE_CLAIMS, "c", REQUESTS)
    make_pod(world, resourceClaimName="c")
    allocate(world, "c", "p", **result)
    bind(world)


BROKEN = {"key": "broken", "effect": "NoExecute"}


def test_a_taint_on_a_device_evicts_its_pod() -> None:
    async def test(world: World) -> None:
        make_slice(world)
        run_pod(world)
        await world.run_until_idle()
        assert phase(world) == "Running"
        device = {"name": "gpu-0", "taints": [BROKEN]}
        world.change(RESOURCE_SLICES, "s", spec={"devices": [device]})
        await world.run_until_idle()
        pod = world.get(PODS, "p")
        assert "deletionTimestamp" in pod["metadata"]
        (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
        assert condition["reason"] == "DeletionByDeviceTaintManager"
        assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"
        assert world.events("p", "DeviceTaintManagerEviction") == ["Marking for deletion"]
        await world.after(10)
        assert world.names(PODS) == []

    in_cluster(test)


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        pytest.param({"key": "broken", "operator": "Exists", "effect": "NoExecute"}, 9999, id="forever"),
        pytest.param(
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}, 30, id="a while"
        ),
        pytest.param({"key": "broken", "operator": "Exists"}, 0, id="an empty effect does not count"),
        pytest.param({"key": "other", "operator": "Exists", "effect": "NoExecute"}, 0, id="another key"),
    ],
)
def test_tolerations_of_the_allocation_delay_eviction(toleration: Content, stays: float) -> None:
    async def test(world: World) -> None:
        make_slice(world, BROKEN)
        run_pod(world, tolerations=[toleration])
        await world.run_until_idle()
        if stays:
            await world.after(min(stays, 300) - 2)
            assert "deletionTimestamp" not in world.get(PODS, "p")["metadata"]
        await world.after(10)
        assert (world.names(PODS) == ["p"]) == (stays > 1000)

    in_cluster(test)


def test_a_taint_that_is_removed_in_time_evicts_no_pod() -> None:
    async def test(world: World) -> None:
        make_slice(world, BROKEN)
        waits = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
        run_pod(world, tolerations=[waits])
        await world.after(10)
        world.change(RESOURCE_SLICES, "s", spec={"devices": [{"name": "gpu-0"}]})
        await world.after(100)
        assert world.names(PODS) == ["p"]
        assert world.events("p", "DeviceTaintManagerEviction") == ["Cancelling deletion"]

    in_cluster(test)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    async def test(world: World) -> None:
        make_slice(world, BROKEN, generation=1)
        make_slice(world, generation=2, name="new")
        run_pod(world)
        await world.run_until_idle()
        assert "deletionTimestamp" not in world.get(PODS, "p")["metadata"]
        world.api.delete(RESOURCE_SLICES, "new")
        await world.run_until_idle()
        assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]

    in_cluster(test)


def is_going(world: World) -> bool:
    return "deletionTimestamp" in world.get(PODS, "p")["metadata"]


@pytest.mark.parametrize(
    ("selector", "evicts"),
    [
        pytest.param({"driver": "gpu.example.com"}, True, id="driver"),
        pytest.param({"pool": "n01", "device": "gpu-0"}, True, id="device"),
        pytest.param({}, True, id="every device"),
        pytest.param({"driver": "nic.example.com"}, False, id="another driver"),
        pytest.param({"pool": "n01", "device": "gpu-1"}, False, id="another device"),
        pytest.param(None, False, id="no selector"),
    ],
)
@pytest.mark.parametrize("published", [True, False], ids=["published", "no longer published"])
def test_a_rule_evicts_pods_from_the_devices_that_it_selects(
    selector: Content | None, evicts: bool, published: bool
) -> None:
    async def test(world: World) -> None:
        if published:
            make_slice(world)
        run_pod(world)
        await world.run_until_idle()
        spec = {"taint": {**BROKEN, "effect": "NoSchedule"}}
        if selector is not None:
            spec["deviceSelector"] = selector
        world.create(DEVICE_TAINT_RULES, "r", spec)
        await world.run_until_idle()
        assert not is_going(world)
        world.change(DEVICE_TAINT_RULES, "r", spec={"taint": BROKEN})
        await world.run_until_idle()
        assert is_going(world) == evicts

    in_cluster(test, release=V1_37)


def test_a_rule_that_is_deleted_in_time_evicts_no_pod() -> None:
    async def test(world: World) -> None:
        make_slice(world)
        waits = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
        run_pod(world, tolerations=[waits])
        await world.run_until_idle()
        world.create(DEVICE_TAINT_RULES, "r", {"deviceSelector": {}, "taint": BROKEN})
        await world.after(10)
        world.api.delete(DEVICE_TAINT_RULES, "r")
        await world.after(100)
        assert world.names(PODS) == ["p"]
        assert world.events("p", "DeviceTaintManagerEviction") == ["Cancelling deletion"]

    in_cluster(test, release=V1_37)


ONE = "1 pod needs to be evicted in 1 namespace."
GONE = "1 pod evicted since starting the controller."
PREVIEW = (
    "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the "
    "effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to "
    "trigger an update."
)


def eviction_status(world: World, name: str = "r") -> tuple[str, str, str, int]:
    (condition,) = world.get(DEVICE_TAINT_RULES, name)["status"]["conditions"]
    assert condition["type"] == "EvictionInProgress"
    return condition["status"], condition["reason"], condition["message"], condition["observedGeneration"]


def test_the_status_of_a_rule_has_the_progress_of_the_eviction() -> None:
    async def test(world: World) -> None:
        make_slice(world)
        waits = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
        run_pod(world, tolerations=[waits])
        await world.run_until_idle()
        world.create(DEVICE_TAINT_RULES, "r", {"deviceSelector": {}, "taint": BROKEN})
        await world.run_until_idle()
        assert eviction_status(world) == ("True", "PodsPendingEviction", ONE, 1)
        await world.after(100)
        assert world.names(PODS) == []
        assert eviction_status(world) == ("False", "Completed", GONE, 1)

    in_cluster(test, release=V1_37)


@pytest.mark.parametrize(
    ("effect", "selector", "reason", "message"),
    [
        ("NoExecute", {"driver": "nic.example.com"}, "NotStarted", ""),
        ("NoSchedule", {}, "OtherEffect", "Eviction only happens for the NoExecute effect."),
        ("None", {"device": "gpu-0"}, "NoEffect", PREVIEW),
    ],
)
def test_a_rule_that_evicts_nothing_has_the_reason(
    effect: str, selector: Content, reason: str, message: str
) -> None:
    async def test(world: World) -> None:
        make_slice(world)
        run_pod(world)
        await world.run_until_idle()
        world.create(
            DEVICE_TAINT_RULES, "r", {"deviceSelector": selector, "taint": {**BROKEN, "effect": effect}}
        )
        await world.after(100)
        assert eviction_status(world) == ("False", reason, message, 1)
        assert world.names(PODS) == ["p"]

    in_cluster(test, release=V1_37)


def test_slices_of_a_deleted_node_are_deleted_with_it() -> None:
    async def test(world: World) -> None:
        uid = world.get(NODES, "n01")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n01", "uid": uid, "controller": True}
        pool = {"name": "n01", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "a", "nodeName": "n01", "pool": pool, "devices": []}
        world.create(RESOURCE_SLICES, "s", spec, ownerReferences=[owner])
        world.api.delete(NODES, "n01")
        await world.run_until_idle()
        assert world.names(RESOURCE_SLICES) == []

    in_cluster(test)


WITH_GROUPS = V1_37.with_gates(V1_37.gates | {"GenericWorkload", "DRAWorkloadResourceClaims"})


def make_group(world: World) -> Content:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return world.create(
        POD_GROUPS, "g", {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": claims}
    )


def make_member(world: World, name: str, claim: str = "gpu") -> Content:
    claims = [{"name": claim, "resourceClaimTemplateName": "t"}]
    container = {**CONTAINER, "resources": {"claims": [{"name": claim}]}}
    named = {"schedulingGroup": {"podGroupName": "g"}, "restartPolicy": "Never"}
    return world.create(PODS, name, {"containers": [container], "resourceClaims": claims, **named})


def test_a_group_gets_one_claim_which_its_members_share() -> None:
    async def test(world: World) -> None:
        make_template(world, labels={"a": "b"})
        make_member(world, "p")
        await world.run_until_idle()
        # Whose claim it is, is known once the group exists.
        assert "resourceClaimStatuses" not in world.get(PODS, "p")["status"]
        group = make_group(world)
        make_member(world, "q")
        await world.run_until_idle()
        name = claim_name(world)
        assert name == claim_name(world, "q")
        assert name.startswith("g-gpu-")
        assert world.get(POD_GROUPS, "g")["status"]["resourceClaimStatuses"] == [
            {"name": "gpu", "resourceClaimName": name}
        ]
        meta = world.get(RESOURCE_CLAIMS, name)["metadata"]
        assert meta["labels"] == {"a": "b"}
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "name": "g",
                "uid": group["metadata"]["uid"],
                "controller": True,
            }
        ]

    in_cluster(test, release=WITH_GROUPS)


def test_another_name_makes_a_claim_of_the_pod() -> None:
    async def test(world: World) -> None:
        make_template(world)
        make_group(world)
        make_member(world, "p", "mine")
        await world.run_until_idle()
        (status,) = world.get(PODS, "p")["status"]["resourceClaimStatuses"]
        assert status["resourceClaimName"].startswith("p-mine-")

    in_cluster(test, release=WITH_GROUPS)


def test_members_run_with_a_claim_that_is_reserved_for_their_group() -> None:
    """The reservation ends with the PodGroup, and so does the claim."""

    async def test(world: World) -> None:
        make_template(world)
        group = make_group(world)
        make_member(world, "p")
        await world.run_until_idle()
        name = claim_name(world)
        allocate(world, name)
        bind(world)
        await world.run_until_idle()
        consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}
        expected = [{**consumer, "uid": group["metadata"]["uid"]}]
        assert world.get(RESOURCE_CLAIMS, name)["status"]["reservedFor"] == expected
        assert phase(world) == "Running"
        world.api.delete(PODS, "p", NAMESPACE)
        await world.run_until_idle()
        assert world.get(RESOURCE_CLAIMS, name)["status"]["reservedFor"] == expected
        world.api.delete(POD_GROUPS, "g", NAMESPACE)
        await world.after(60)
        assert world.names(POD_GROUPS) == []
        assert world.names(RESOURCE_CLAIMS) == []

    in_cluster(test, release=WITH_GROUPS)


def test_a_group_without_its_template_gets_an_event() -> None:
    async def test(world: World) -> None:
        make_group(world)
        await world.after(1)
        problem = 'resourceclaimtemplate.resource.k8s.io "t" not found'
        expected = f'PodGroupResourceClaim gpu: resource claim template "t": {problem}'
        assert world.events("g", "FailedResourceClaimCreation") == [expected]

    in_cluster(test, release=WITH_GROUPS)
