"""Binding a pod's volumes: written at PreBind, waited for, and given up where it cannot succeed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import ObjectReference
from bayplan.api.node import Node
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)
from bayplan.errors import ConflictError, UnknownOutcomeError
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.families import VOLUME_STAGE_ERRORS
from bayplan.testing.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class

from .running import Cluster, World, running, virtual

STATIC = make_storage_class("static", provisioner="kubernetes.io/no-provisioner")
MADE = make_storage_class("made")

ZONED = {"zone": ["a"]}

FAILED = 'running PreBind plugin "VolumeBinding": '


class Volumes(Cluster):
    """A cluster that records writes of volumes and claims, and can reject them."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.write_error: Exception | None = None

    async def update(self, item: Any) -> Any:
        if isinstance(item, PersistentVolume | PersistentVolumeClaim):
            self.writes.append((type(item).__name__, item.name))
            if self.write_error is not None:
                error, self.write_error = self.write_error, None
                raise error
        return await super().update(item)


def volume(world: World, name: str) -> PersistentVolume:
    return world.store.get(PersistentVolume, name)


def claim(world: World, name: str) -> PersistentVolumeClaim:
    return world.store.get(PersistentVolumeClaim, name, "default")


def annotate(item: Any, **changes: str | None) -> Any:
    """With these annotations: None takes one away."""
    notes = {**item.annotations, **changes}
    kept = {key: value for key, value in notes.items() if value is not None}
    return replace(item, metadata=replace(item.metadata, annotations=kept))


def complete(world: World, claim_name: str, volume_name: str) -> None:
    """What the PV controller does in the end: the claim names its volume."""
    bound = annotate(claim(world, claim_name), **{BIND_COMPLETED_ANNOTATION: "yes"})
    world.store.update(replace(bound, spec=replace(bound.spec, volume_name=volume_name)))


def provision(world: World, claim_name: str, **details: Any) -> None:
    """What a provisioner and the PV controller do about a claim that names a node."""
    world.store.create(make_pv("new", storage_class="made", claim=claim(world, claim_name), **details))
    complete(world, claim_name, "new")


def waiting(world: World) -> bool:
    """Whether the pod still has neither node nor error, after the scheduler has done what it can."""
    return not world.node_of("p") and not world.message("p")


# Going well


@virtual
async def test_a_free_volume_is_given_to_the_claim_and_the_pod_waits_for_it() -> None:
    """The volume names the claim and its binder; the PV controller does the rest."""
    async with running(
        make_node("n"),
        STATIC,
        make_pv("v", storage_class="static"),
        make_pvc("c", storage_class="static"),
        kind_of_cluster=Volumes,
    ) as world:
        await world.create(make_pod("p", claims=["c"]))
        given, wanted = volume(world, "v"), claim(world, "c")
        assert given.spec.claim_ref == ObjectReference(
            kind="PersistentVolumeClaim",
            api_version="v1",
            namespace="default",
            name="c",
            uid=wanted.uid,
            resource_version=wanted.metadata.resource_version,
        )
        assert given.annotations == {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        assert world.cluster.writes == [("patch", "p"), ("PersistentVolume", "v")]
        assert world.nominated("p") == "n"
        await world.after(5.5)
        assert waiting(world)
        complete(world, "c", "v")
        await world.after(0.4)
        assert waiting(world)  # it is checked every second
        await world.after(0.2)
        assert world.node_of("p") == "n"


@virtual
async def test_a_claim_without_a_free_volume_gets_the_selected_node() -> None:
    async with running(
        make_node("n"), MADE, make_pvc("c", storage_class="made"), kind_of_cluster=Volumes
    ) as world:
        await world.create(make_pod("p", claims=["c"]))
        assert claim(world, "c").annotations == {SELECTED_NODE_ANNOTATION: "n"}
        await world.after(3)
        assert waiting(world)
        provision(world, "c")
        await world.after(1)
        assert world.node_of("p") == "n"
        assert world.attempts("p") == 1


@virtual
async def test_volumes_are_written_before_claims_and_nothing_is_written_for_bound_ones() -> None:
    async with running(
        make_node("n"),
        STATIC,
        MADE,
        make_pv("old", claim=make_pvc("bound", volume="old")),
        make_pvc("bound", volume="old"),
        make_pv("v", storage_class="static"),
        make_pvc("static", storage_class="static"),
        make_pvc("made", storage_class="made"),
        kind_of_cluster=Volumes,
    ) as world:
        await world.create(make_pod("p", claims=["made", "bound", "static"]))
        assert world.cluster.writes[1:] == [("PersistentVolume", "v"), ("PersistentVolumeClaim", "made")]
        complete(world, "static", "v")
        await world.after(2)
        assert waiting(world)  # for the other one
        provision(world, "made")
        await world.after(1)
        assert world.node_of("p") == "n"


@virtual
async def test_no_other_pod_waits_for_a_pod_whose_volumes_are_being_bound() -> None:
    async with running(make_node("n"), MADE, make_pvc("c", storage_class="made")) as world:
        await world.create(make_pod("p", claims=["c"]), make_pod("other"))
        assert waiting(world)
        assert world.node_of("other") == "n"


@virtual
async def test_no_two_pods_get_the_same_volume() -> None:
    """The second gets the next volume, although the first is not bound yet."""
    async with running(
        make_node("n"),
        STATIC,
        make_pv("small", storage_class="static", capacity="10Gi"),
        make_pv("large", storage_class="static", capacity="20Gi"),
        make_pvc("a", storage_class="static"),
        make_pvc("b", storage_class="static"),
    ) as world:
        await world.create(make_pod("p", claims=["a"]), make_pod("q", claims=["b"]))
        takers = {
            name: reference.name
            for name in ("small", "large")
            if (reference := volume(world, name).spec.claim_ref) is not None
        }
        assert takers == {"small": "a", "large": "b"}


# Going wrong


Act = Callable[[World], Awaitable[None]]


async def _nothing(world: World) -> None:
    pass


async def _unselect(world: World) -> None:
    world.store.update(
        annotate(claim(world, "made"), **{SELECTED_NODE_ANNOTATION: None, "reason": "no room"})
    )


async def _unselect_all(world: World) -> None:
    world.store.update(annotate(claim(world, "made"), **{SELECTED_NODE_ANNOTATION: None}))


async def _provisioned_elsewhere(world: World) -> None:
    provision(world, "made", on_nodes_with={"zone": ["b"]})


async def _delete_claim(world: World) -> None:
    world.store.delete(PersistentVolumeClaim, "made", "default")


async def _delete_given_claim(world: World) -> None:
    world.store.delete(PersistentVolumeClaim, "static", "default")


async def _delete_volume(world: World) -> None:
    world.store.delete(PersistentVolume, "v")


async def _take_volume_away(world: World) -> None:
    given = volume(world, "v")
    world.store.update(replace(given, spec=replace(given.spec, claim_ref=None)))


async def _move_node(world: World) -> None:
    node = world.store.get(Node, "n")
    world.store.update(replace(node, metadata=replace(node.metadata, labels={"zone": "b"})))


async def _delete_node(world: World) -> None:
    world.store.delete(Node, "n")


@pytest.mark.parametrize(
    ("happens", "message"),
    [
        pytest.param(_unselect, 'provisioning failed for PVC "made"', id="the provisioner gives up"),
        pytest.param(
            _unselect_all,
            'selectedNode annotation reset for PVC "made"',
            id="the provisioner gives up, and the claim has no other annotations",
        ),
        pytest.param(
            _provisioned_elsewhere,
            'pv "new" node affinity doesn\'t match node "n": no matching NodeSelectorTerms',
            id="the new volume is where the node cannot reach it",
        ),
        pytest.param(
            _delete_claim,
            'failed to check provisioning pvc: persistentvolumeclaims "default/made" not found',
            id="a claim to be provisioned is deleted",
        ),
        pytest.param(
            _delete_given_claim,
            'failed to check binding: persistentvolumeclaims "default/static" not found',
            id="a claim with a volume is deleted",
        ),
        pytest.param(
            _delete_volume,
            'failed to check binding: persistentvolumes "v" not found',
            id="a volume is deleted",
        ),
        pytest.param(_take_volume_away, 'ClaimRef got reset for pv "v"', id="the volume is taken away again"),
        pytest.param(
            _move_node,
            'pv "v" node affinity doesn\'t match node "n": no matching NodeSelectorTerms',
            id="the node's labels change, so that the volume does not reach it",
        ),
        pytest.param(_delete_node, 'failed to get node "n": node "n" not found', id="the node is deleted"),
        pytest.param(_nothing, "context deadline exceeded", id="nothing happens for too long"),
    ],
)
def test_what_cannot_come_true_any_more_ends_the_attempt(happens: Act, message: str) -> None:
    """With the reason in event and condition, and the pod back in the queue."""

    @virtual
    async def life() -> None:
        async with running(
            make_node("n", labels={"zone": "a"}),
            STATIC,
            MADE,
            make_pv("v", storage_class="static", on_nodes_with=ZONED),
            make_pvc("static", storage_class="static"),
            make_pvc("made", storage_class="made"),
            config=WAITS_20_SECONDS,
            metrics=(metrics := SchedulerMetrics()),
        ) as world:
            await world.create(make_pod("p", claims=["static", "made"]))
            if happens not in (_delete_given_claim, _delete_volume, _take_volume_away, _move_node):
                complete(world, "static", "v")
            await world.after(3.5)
            assert waiting(world)
            await happens(world)
            await world.after(17 if happens is _nothing else 0.6)
            text = f"{FAILED}binding volumes: {message}"
            assert world.condition("p") == ("False", "SchedulerError", text)
            assert ("FailedScheduling", text) in world.events("p")
            assert world.sub_queue("p")
            assert metrics.families[VOLUME_STAGE_ERRORS]["bind",].value == 1

    life()


WAITS_20_SECONDS = """
profiles:
- pluginConfig:
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 20}
"""


@virtual
async def test_a_pod_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    async with running(make_node("n"), MADE, make_pvc("c", storage_class="made")) as world:
        await world.create(make_pod("p", claims=["c"]))
        await world.delete("p")
        await world.after(1)
        assert not world.context.pre_binding
        assert world.context.cache.assumed_count == 0


@pytest.mark.parametrize(
    "error",
    [
        ConflictError('Operation cannot be fulfilled on persistentvolumes "v": the object has been modified'),
        UnknownOutcomeError("no answer"),
    ],
    ids=["a conflict", "no answer"],
)
@virtual
async def test_a_write_that_fails_is_reported_as_it_is_and_tried_again(error: Exception) -> None:
    async with running(
        make_node("n"),
        STATIC,
        make_pv("v", storage_class="static"),
        make_pvc("c", storage_class="static"),
        kind_of_cluster=Volumes,
    ) as world:
        assert isinstance(world.cluster, Volumes)
        world.cluster.write_error = error
        await world.create(make_pod("p", claims=["c"]))
        assert world.message("p") == f"{FAILED}{error}"
        assert volume(world, "v").spec.claim_ref is None
        await world.after(2.5)
        assert volume(world, "v").spec.claim_ref is not None
        complete(world, "c", "v")
        await world.after(1)
        assert world.node_of("p") == "n"


@virtual
async def test_after_the_provisioner_gave_up_the_pod_is_scheduled_elsewhere() -> None:
    """It removes the node's name from the claim, and the scheduler can choose again."""
    async with running(make_node("n"), MADE, make_pvc("c", storage_class="made")) as world:
        await world.create(make_pod("p", claims=["c"]))
        await world.create(make_node("m", cpu="100"))
        cordoned = world.store.get(Node, "n")
        world.store.update(replace(cordoned, spec=replace(cordoned.spec, unschedulable=True)))
        world.store.update(annotate(claim(world, "c"), **{SELECTED_NODE_ANNOTATION: None}))
        await world.after(3)
        assert claim(world, "c").annotations == {SELECTED_NODE_ANNOTATION: "m"}
        provision(world, "c")
        await world.after(1)
        assert world.node_of("p") == "m"


@virtual
async def test_what_was_written_stays_and_what_was_assumed_is_reverted() -> None:
    """The volume stays with its claim, and the next attempt takes it up; the other volume is free again."""
    async with running(
        make_node("n"),
        STATIC,
        make_pv("v", storage_class="static"),
        make_pvc("c", storage_class="static"),
        config=WAITS_20_SECONDS,
    ) as world:
        await world.create(make_pod("p", claims=["c"]))
        await world.after(20.5)
        assert "context deadline exceeded" in world.message("p")
        kept = volume(world, "v").spec.claim_ref
        assert kept is not None
        await world.after(5)  # another attempt is in progress
        complete(world, "c", "v")
        await world.after(1)
        assert world.node_of("p") == "n"
        assert volume(world, "v").spec.claim_ref == kept


@virtual
async def test_a_watch_that_is_behind_is_waited_for() -> None:
    """What it shows is from before the own write: that the claim names no node does not count yet."""
    async with running(make_node("n"), MADE, make_pvc("c", storage_class="made")) as world:
        (informer,) = (each for each in world.scheduler.informers if each.kind is PersistentVolumeClaim)
        held: list[Any] = []
        with pytest.MonkeyPatch.context() as slow:
            slow.setattr(informer, "apply", held.append)
            await world.create(make_pod("p", claims=["c"]))
            await world.after(5)
            assert waiting(world)
        for batch in held:
            informer.apply(batch)
        provision(world, "c")
        await world.after(1)
        assert world.node_of("p") == "n"


@virtual
async def test_versions_that_are_no_numbers_are_not_compared() -> None:
    """The response to the write has one: what the watch delivers is taken as it is."""

    class Odd(Volumes):
        async def update(self, item: Any) -> Any:
            written = await super().update(item)
            return replace(written, metadata=replace(written.metadata, resource_version="a"))

    async with running(
        make_node("n"), MADE, make_pvc("c", storage_class="made"), kind_of_cluster=Odd
    ) as world:
        await world.create(make_pod("p", claims=["c"]))
        provision(world, "c")
        await world.after(2)
        assert world.node_of("p") == "n"


@virtual
async def test_many_pods_wait_side_by_side() -> None:
    """Each binding of volumes takes its own time, not that of all others."""
    names = [f"c{number}" for number in range(50)]
    async with running(
        make_node("n", cpu="100", pods=100), MADE, *(make_pvc(name, storage_class="made") for name in names)
    ) as world:

        async def provisioner() -> None:
            for name in names:
                await asyncio.sleep(0.1)
                item = claim(world, name)
                world.store.create(make_pv(f"v-{name}", storage_class="made", claim=item))
                complete(world, name, f"v-{name}")

        await world.create(*(make_pod(f"p-{name}", claims=[name]) for name in names))
        await provisioner()
        await world.after(1)
        assert {world.node_of(f"p-{name}") for name in names} == {"n"}
