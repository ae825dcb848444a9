"""Binding a pod's claims: devices are kept from others at Reserve, written at PreBind, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Condition, NodeSelector, Object, OwnerReference
from bayplan.api.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from bayplan.api.resource_claims import (
    CLAIM_FINALIZER,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocatedDeviceStatus,
    ResourceClaim,
    ResourceClaimStatus,
)
from bayplan.errors import APIError, ConflictError, UnknownOutcomeError
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.release_families import CLAIM_CREATES, CLAIM_CREATES_BY_OWNER
from bayplan.metrics.scheduler_families import BINDING_CONDITIONS
from bayplan.releases import V1_36, V1_37, Release
from bayplan.scheduler.claim_handler import ClaimHandler
from bayplan.snapshot.claims_in_flight import ClaimInFlight
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)

from .running import Cluster, World, running, virtual

CLASS = make_device_class("gpu", 'device.driver == "gpu.example.com"')
REQUEST = make_device_request("gpu", "gpu")
FAILED = 'running PreBind plugin "DynamicResources": '


class Devices(Cluster):
    """A cluster that records writes of claims, and gives the responses of a test."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.answers: dict[str, list[tuple[Exception, bool]]] = {}
        """For each verb the errors of the next writes, each with whether it takes effect nevertheless."""

    def requests(self) -> list[str]:
        return [verb for verb, _ in self.writes]

    async def _claim(self, verb: str, item: Object, act: Callable[[], Awaitable[Any]]) -> Any:
        self.writes.append((verb, item.name))
        waiting = self.answers.get(verb)
        if not waiting:
            return await act()
        error, takes_effect = waiting.pop(0)
        if takes_effect:
            await act()
        raise error

    async def create(self, item: Object) -> Any:
        return await self._claim("create", item, lambda: super(Devices, self).create(item))

    async def update(self, item: Object) -> Any:
        return await self._claim("update", item, lambda: super(Devices, self).update(item))

    async def update_status(self, item: Object) -> Any:
        return await self._claim("update status", item, lambda: super(Devices, self).update_status(item))

    async def release_claim(self, claim: ResourceClaim, uid: str) -> None:
        await self._claim("release", claim, lambda: super(Devices, self).release_claim(claim, uid))

    async def delete(self, item: Object) -> None:
        await self._claim("delete", item, lambda: super(Devices, self).delete(item))


def devices_of(world: World) -> Devices:
    assert isinstance(world.cluster, Devices)
    return world.cluster


def gpus(node: str, count: int = 1, conditions: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())) -> Object:
    ready, failed = conditions
    devices = (
        make_device(f"gpu-{number}", binding_conditions=ready, binding_failure_conditions=failed)
        for number in range(count)
    )
    return make_resource_slice(f"slice-{node}", *devices, node=node)


def claiming(name: str, *claims: str, **fields: Any) -> Pod:
    entries = tuple(PodResourceClaim(name=f"r{i}", resource_claim_name=c) for i, c in enumerate(claims))
    return make_pod(name, resource_claims=entries, **fields)


def claim(world: World, name: str) -> ResourceClaim:
    return world.store.get(ResourceClaim, name, "default")


def held(world: World, name: str) -> list[str]:
    """The devices that a claim has, as pool/device."""
    allocation = claim(world, name).status.allocation
    return [] if allocation is None else [f"{one.pool}/{one.device}" for one in allocation.devices.results]


def reserved_for(world: World, name: str) -> list[str]:
    return [consumer.name for consumer in claim(world, name).status.reserved_for]


def in_flight(world: World) -> int:
    return len(world.context.cluster.objects.of(ClaimInFlight))


# Going well


@virtual
async def test_a_claim_is_allocated_reserved_and_then_the_pod_bound() -> None:
    """The requests are upstream's: nominatedNodeName, the finalizer, allocation with reservation, binding."""
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        assert world.node_of("p") == "n"
        assert world.cluster.writes == [
            ("patch", "p"),
            ("update", "c"),
            ("update status", "c"),
            ("bind", "p"),
        ]
        assert (held(world, "c"), reserved_for(world, "c")) == (["n/gpu-0"], ["p"])
        stored = claim(world, "c")
        assert stored.metadata.finalizers == (CLAIM_FINALIZER,)
        assert stored.status.allocation is not None
        assert stored.status.allocation.allocation_timestamp is not None
        assert in_flight(world) == 0


@virtual
async def test_pods_that_come_together_get_different_devices() -> None:
    async with running(make_node("n"), CLASS, gpus("n", 3), kind_of_cluster=Devices) as world:
        claims = [make_resource_claim(f"c{i}", REQUEST) for i in range(4)]
        await world.create(*claims, *(claiming(f"p{i}", f"c{i}") for i in range(4)))
        assert sorted(held(world, f"c{i}")[0] for i in range(3)) == ["n/gpu-0", "n/gpu-1", "n/gpu-2"]
        assert not world.node_of("p3")
        assert world.message("p3").startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        world.store.delete(Pod, "p0", "default")
        world.store.update_claim_status(replace(claim(world, "c0"), status=ResourceClaimStatus()))
        await world.after(30)
        assert (world.node_of("p3"), held(world, "c3")) == ("n", ["n/gpu-0"])


@virtual
async def test_pods_that_share_a_claim_are_bound_side_by_side() -> None:
    """The second waits until the first has allocated the claim, and is scheduled on the same node."""
    nodes = [make_node("a"), make_node("b")]
    async with running(*nodes, CLASS, gpus("a"), gpus("b"), kind_of_cluster=Devices) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"), claiming("q", "c"))
        await world.after(30)
        assert world.node_of("p") == world.node_of("q") != ""
        assert sorted(reserved_for(world, "c")) == ["p", "q"]


@virtual
async def test_a_claim_from_a_template_is_waited_for() -> None:
    """Without it the pod is not tried: no condition, no event."""
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="t")
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(make_pod("p", resource_claims=(entry,)))
        assert (world.decisions, world.message("p")) == ([], "")
        owner = OwnerReference(kind="Pod", name="p", uid=world.pod("p").uid, controller=True)
        await world.create(make_resource_claim("p-gpu", REQUEST, owner=owner))
        assert world.decisions == []
        status = PodResourceClaimStatus(name="gpu", resource_claim_name="p-gpu")
        await world.update(
            "p", lambda p: replace(p, status=replace(p.status, resource_claim_statuses=(status,)))
        )
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_the_later_of_versions_without_an_order_counts() -> None:
    """As for other kinds (`client/informer.py`)."""
    async with running(make_node("n")) as world:
        handler = ClaimHandler(world.context, "", lambda: None)
        known = world.context.cluster.objects.of(ResourceClaim)
        versions = []
        for version in ("10", "9", "b", "a", "a", "8"):
            item = make_resource_claim("c", REQUEST)
            handler.added(replace(item, metadata=replace(item.metadata, resource_version=version)))
            (stored,) = known
            versions.append(stored.metadata.resource_version)
        assert versions == ["10", "10", "b", "a", "a", "8"]


@virtual
async def test_events_of_replaced_versions_do_not_free_devices() -> None:
    """Without an order the versions themselves show that the event of the finalizer is a late one."""
    async with running(make_node("n")) as world:
        handler = ClaimHandler(world.context, "", lambda: None)
        known = world.context.cluster.objects.of(ResourceClaim)

        def version(text: str, *devices: Any) -> ResourceClaim:
            made = make_resource_claim("c", REQUEST, allocated=devices)
            return replace(made, metadata=replace(made.metadata, resource_version=text))

        read, finalizer, later = map(version, ("read", "finalizer", "later"))
        written = version("written", make_allocated_device("gpu-0", "n"))
        handler.added(read)
        assert handler.assume(written, ["read", "finalizer"])
        for event in (finalizer, written):
            handler.updated(read, event)
            assert list(known) == [written]
        handler.updated(written, later)
        assert list(known) == [later]


@virtual
async def test_the_binder_names_the_versions_that_it_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assumed: list[tuple[str, ...]] = []

    def assume(self: ClaimHandler, claim: ResourceClaim, replaced: Collection[str] = ()) -> bool:
        assumed.append((*replaced, claim.metadata.resource_version))
        return True

    monkeypatch.setattr(ClaimHandler, "assume", assume)
    async with running(make_node("n"), CLASS, gpus("n"), make_resource_claim("c", REQUEST)) as world:
        version = int(claim(world, "c").metadata.resource_version)
        world.store.create(claiming("p", "c"))
        await world.after(5)
        ((read, finalizer, written),) = assumed
        assert int(read) == version < int(finalizer) < int(written)
        assert written == claim(world, "c").metadata.resource_version


@virtual
async def test_a_claim_that_is_named_twice_is_bound_once() -> None:
    """Upstream never binds such a pod."""
    async with running(make_node("n"), CLASS, gpus("n", 2), kind_of_cluster=Devices) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", "c"))
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])


@virtual
async def test_a_claim_without_a_timestamp_can_be_reserved() -> None:
    """Allocated by hand; upstream would try to add the time, which the API server rejects each time."""
    allocated = make_resource_claim("c", REQUEST, allocated=[make_allocated_device("gpu-0", "n")])
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(allocated, claiming("p", "c"))
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])
        assert devices_of(world).requests() == ["patch", "update status", "bind"]


# Conflicts, lost answers and failures


@virtual
async def test_a_conflict_is_tried_again_with_the_latest_claim() -> None:
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update status"] = [(ConflictError("changed"), False)] * 2
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(1)
        assert (world.node_of("p"), held(world, "c")) == ("n", ["n/gpu-0"])
        assert devices_of(world).requests() == ["patch", "update", *["update status"] * 3, "bind"]


@virtual
async def test_a_write_without_an_answer_that_took_effect_is_no_failure() -> None:
    async with running(make_node("n"), CLASS, gpus("n", 2), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update status"] = [(UnknownOutcomeError("lost"), True)]
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(5)
        assert (world.node_of("p"), held(world, "c"), reserved_for(world, "c")) == ("n", ["n/gpu-0"], ["p"])
        assert devices_of(world).requests().count("update status") == 1


@virtual
async def test_a_rejected_write_frees_the_devices_for_others() -> None:
    """Nothing in the API changes then, so nothing else would requeue the pod that waits for the device."""
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update"] = [(APIError("no", code=422), False)]
        await world.create(
            make_resource_claim("c", REQUEST), make_resource_claim("d", REQUEST), claiming("p", "c")
        )
        await world.create(claiming("q", "d"))
        assert in_flight(world) <= 1
        await world.after(60)
        assert in_flight(world) == 0
        assert sorted(held(world, "c") + held(world, "d")) == ["n/gpu-0"]
        assert "add finalizer to claim default/c: no" in str(world.events("p"))


@virtual
async def test_a_claim_that_is_deleted_before_it_is_written() -> None:
    """A clear status, and the device is free again."""

    class Deleting(Devices):
        async def patch_pod_status(self, pod: Pod, patch: Any) -> None:
            await super().patch_pod_status(pod, patch)
            if pod.name == "p" and patch.nominated_node_name:
                self.store.delete(ResourceClaim, "c", "default")

    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Deleting) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(5)
        assert not world.node_of("p")
        assert "add finalizer to claim default/c: " in str(world.events("p"))
        await world.create(make_resource_claim("d", REQUEST), claiming("q", "d"))
        assert (world.node_of("q"), held(world, "d")) == ("n", ["n/gpu-0"])


@virtual
async def test_a_pod_that_cannot_be_bound_gives_its_reservation_back() -> None:
    """The allocation stays, and the next attempt uses it."""
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        assert world.cluster.written("release") == ["c"]
        assert (held(world, "c"), reserved_for(world, "c")) == (["n/gpu-0"], [])
        await world.after(30)
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])


# Claims that are not available


@virtual
async def test_a_claim_that_prevents_scheduling_is_deallocated() -> None:
    """It has a device on a node where the pod cannot run; no other pod uses it."""
    selector = NodeSelector()
    allocated = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=selector
    )
    async with running(make_node("b"), CLASS, gpus("a"), gpus("b"), kind_of_cluster=Devices) as world:
        await world.create(allocated, claiming("p", "c"))
        await world.after(30)
        assert world.decisions[0].message == (
            "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of "
            "ResourceClaim completed, preemption: 0/1 nodes are available: 1 Preemption is not helpful for "
            "scheduling."
        )
        assert (world.node_of("p"), held(world, "c")) == ("b", ["b/gpu-0"])


@virtual
async def test_a_deallocation_that_fails_is_tried_again() -> None:
    allocated = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=NodeSelector()
    )
    async with running(make_node("b"), CLASS, gpus("b"), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update status"] = [(ConflictError("changed"), False)]
        await world.create(allocated, claiming("p", "c"))
        assert held(world, "c") == ["a/gpu-0"]
        await world.after(60)
        assert (world.node_of("p"), held(world, "c")) == ("b", ["b/gpu-0"])


# Binding conditions

CONDITIONS = (("Ready",), ("Broken",))


def set_condition(world: World, name: str, condition: str) -> None:
    """The condition that a driver sets for the device of a claim."""
    stored = claim(world, name)
    device = AllocatedDeviceStatus(
        driver="gpu.example.com",
        pool="n",
        device="gpu-0",
        conditions=(Condition(type=condition, status="True", reason="Fault", message='it "broke"'),),
    )
    world.store.update_claim_status(replace(stored, status=replace(stored.status, devices=(device,))))


@pytest.mark.parametrize(("release", "expected"), [(V1_36, 0), (V1_37, 1)], ids=["1.36", "1.37"])
def test_how_long_an_allocation_is_in_flight(release: Release, expected: int) -> None:
    """Until it is written, in v1.37 until PreBind has succeeded."""

    @virtual
    async def scenario() -> None:
        async with running(
            make_node("n"), CLASS, gpus("n", conditions=CONDITIONS), kind_of_cluster=Devices, release=release
        ) as world:
            await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
            await world.after(1)
            assert held(world, "c") == ["n/gpu-0"]
            assert in_flight(world) == expected
            set_condition(world, "c", "Ready")
            await world.after(10)
            assert world.node_of("p") == "n"
            assert in_flight(world) == 0

    scenario()


@virtual
async def test_the_pod_is_bound_when_its_device_is_ready() -> None:
    metrics = SchedulerMetrics()
    async with running(
        make_node("n"), CLASS, gpus("n", conditions=CONDITIONS), kind_of_cluster=Devices, metrics=metrics
    ) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(11)
        assert not world.node_of("p")
        assert "waiting for binding conditions for device on node n" in str(world.events("p"))
        set_condition(world, "c", "Ready")
        await world.after(5)
        assert world.node_of("p") == "n"
        counter = metrics.families[BINDING_CONDITIONS]["default-scheduler", "gpu.example.com", "success"]
        assert counter.value == 1


@pytest.mark.parametrize(
    ("condition", "seconds", "message"),
    [
        pytest.param(
            "Broken", 6, 'device binding failed: claim=c, reason=Fault, message="it \\"broke\\""', id="failed"
        ),
        pytest.param("", 601, "device binding timeout: ", id="too late"),
    ],
)
def test_a_device_that_does_not_become_ready(condition: str, seconds: float, message: str) -> None:
    """The pod fails, the claim is deallocated by the next attempt, and a third one allocates it again."""

    @virtual
    async def scenario() -> None:
        async with running(
            make_node("n"), CLASS, gpus("n", conditions=CONDITIONS), kind_of_cluster=Devices
        ) as world:
            await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
            await world.after(1)
            if condition:
                set_condition(world, "c", condition)
            await world.after(seconds)
            assert any((FAILED + message) in note for _, note in world.events("p"))
            await world.after(30)
            assert "deallocation of ResourceClaim completed" in str(world.events("p"))
            await world.after(30)
            set_condition(world, "c", "Ready")
            await world.after(30)
            assert world.node_of("p") == "n"

    scenario()


# Extended resources

SERVED = make_device_class("gpu", 'device.driver == "gpu.example.com"', extended_resource="example.com/gpu")


def own_claims(world: World) -> list[ResourceClaim]:
    return [
        one
        for one in world.store.list(ResourceClaim)
        if EXTENDED_RESOURCE_CLAIM_ANNOTATION in one.annotations
    ]


@pytest.mark.parametrize(
    ("release", "family", "labels"),
    [
        pytest.param(V1_36, CLAIM_CREATES, ("success",), id="1.36"),
        pytest.param(V1_37, CLAIM_CREATES_BY_OWNER, ("success", "false", "", "Pod"), id="1.37"),
    ],
)
def test_an_extended_resource_is_served_by_devices(
    release: Release, family: Any, labels: tuple[str, ...]
) -> None:
    """The scheduler creates the claim, and shows it in the pod's status."""

    @virtual
    async def scenario() -> None:
        metrics = SchedulerMetrics(release=release)
        async with running(
            make_node("n"), SERVED, gpus("n", 3), kind_of_cluster=Devices, metrics=metrics, release=release
        ) as world:
            await world.create(make_pod("p", requests={"example.com/gpu": 2}))
            await world.after(3)
            (made,) = own_claims(world)
            assert world.node_of("p") == "n"
            assert made.name.startswith("p-extended-resources-")
            assert held(world, made.name) == ["n/gpu-0", "n/gpu-1"]
            assert devices_of(world).requests() == [
                "patch",
                "create",
                "update",
                "update status",
                "patch",
                "bind",
            ]
            shown = world.pod("p").status.extended_resource_claim_status
            assert shown is not None
            assert shown.resource_claim_name == made.name
            (mapping,) = shown.request_mappings
            assert (mapping.resource_name, mapping.request_name) == (
                "example.com/gpu",
                "container-0-request-0",
            )
            assert metrics.families[family][labels].value == 1
            assert in_flight(world) == 0

    scenario()


@virtual
async def test_the_claim_of_a_pod_that_cannot_be_bound_is_deleted() -> None:
    async with running(make_node("n"), SERVED, gpus("n"), kind_of_cluster=Devices) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        await world.create(make_pod("p", requests={"example.com/gpu": 1}))
        await world.after(60)
        assert world.node_of("p") == "n"
        assert len(own_claims(world)) == 1
        assert "delete" in devices_of(world).requests()


@virtual
async def test_a_node_whose_device_plugin_serves_the_resource_needs_no_claim() -> None:
    """Also for a pod that has a claim besides, which upstream never binds."""
    room: dict[str, Any] = {"example.com/gpu": 2}
    node = make_node("n", **room)
    async with running(node, SERVED, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(
            make_resource_claim("c", REQUEST), claiming("p", "c", requests={"example.com/gpu": 1})
        )
        await world.after(3)
        assert (world.node_of("p"), own_claims(world)) == ("n", [])
        assert held(world, "c") == ["n/gpu-0"]


@virtual
async def test_a_cancelled_write_is_resolved_before_its_devices_are_released() -> None:
    """The binding is cancelled in the middle of a write that takes effect."""

    class Slow(Devices):
        async def update_status(self, item: Object) -> Any:
            stored = await super().update_status(item)
            if item.name == "c":
                await asyncio.sleep(10)
            return stored

    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Slow) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", priority=0))
        assert in_flight(world) == 1
        world.context.pre_binding[world.pod("p").uid].cancel("preempted")
        await world.after(0.1)
        assert in_flight(world) == 1
        await world.after(5)
        assert in_flight(world) == 0
        assert held(world, "c") == ["n/gpu-0"]
