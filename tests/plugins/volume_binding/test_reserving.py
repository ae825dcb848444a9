"""Reserve and PreBind of VolumeBinding."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import ObjectReference
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.plugin import SKIP, Cluster, CycleState, Pod, Status, failure
from bayplan.plugin.args import VolumeBindingArgs
from bayplan.plugin.storage import (
    VolumePlan,
    expected_claim,
    expected_volume,
)
from bayplan.plugins.volume_binding import (
    NO_BINDER,
    REASON_NO_VOLUME,
    VolumeBinding,
)
from bayplan.testing.builders import (
    make_pod,
    make_pv,
    make_pvc,
)

from ..volume_evaluating import evaluate, storage_cluster
from .clusters import HOST, MADE, NODES, SELECTED, STATIC, UNBOUND_CLAIM, rejected, reserved


class Scheduler:
    """The part of a scheduler that the plugin needs; with `volumes`, one that can write."""

    release = DEFAULT_RELEASE

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster


class Writer:
    def __init__(self, answer: Status | None = None) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str, VolumePlan, float]] = []

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, timeout_seconds: float) -> Status | None:
        self.calls.append((pod.name, node_name, plan, timeout_seconds))
        return self.answer


def plugin_for(cluster: Cluster, writer: Writer | None = None) -> VolumeBinding:
    handle: Any = Scheduler(cluster)
    if writer is not None:
        handle.volumes = writer
    return VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=7), handle)


def versioned(item: Any, version: str) -> Any:
    return replace(item, metadata=replace(item.metadata, resource_version=version))


def two_claims() -> Cluster:
    """One claim that a free volume on n will serve, and one that gets a new volume."""
    return storage_cluster(
        NODES,
        STATIC,
        MADE,
        versioned(make_pvc("c", storage_class="static"), "1"),
        versioned(make_pvc("d", storage_class="made"), "2"),
        versioned(make_pv("v", storage_class="static", on_nodes_with={HOST: ["n"]}), "3"),
    )


BOTH = make_pod("p", claims=["c", "d"])


def test_reserving_decides_what_has_to_be_written() -> None:
    cluster, state = two_claims(), CycleState()
    assert plugin_for(cluster).reserve(state, BOTH, "n") is None
    plan: VolumePlan = state.read(("VolumeBinding", BOTH.uid))
    (volume,), (claim,) = plan.volumes, plan.claims
    assert volume.spec.claim_ref == ObjectReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace="default",
        name="c",
        uid="persistentvolumeclaim/default/c",
        resource_version="1",
    )
    assert volume.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert (claim.name, claim.annotations) == ("d", {SELECTED: "n"})


def test_small_claims_are_served_first_and_take_the_smallest() -> None:
    sizes = {"c": "2Gi", "d": "1Gi"}
    claims = [make_pvc(name, storage_class="static", storage=size) for name, size in sizes.items()]
    volumes = [make_pv(f"v{i}", storage_class="static", capacity=f"{i}Gi") for i in (4, 3, 2)]
    cluster, state = storage_cluster(NODES, STATIC, *claims, *volumes), CycleState()
    plugin_for(cluster).reserve(state, BOTH, "n")
    plan: VolumePlan = state.read(("VolumeBinding", BOTH.uid))
    given = {v.spec.claim_ref.name: v.name for v in plan.volumes if v.spec.claim_ref is not None}
    assert given == {"d": "v2", "c": "v3"}


def test_what_was_reserved_is_seen_by_the_next_pod_until_it_is_taken_back() -> None:
    cluster, state = two_claims(), CycleState()
    plugin, other = plugin_for(cluster), make_pod("other", claims=["c2"])
    cluster.objects.put(make_pvc("c2", storage_class="static"))
    changes = cluster.changes
    before = changes.freshness(changes.kinds(VolumeBinding.depends_on.kinds))
    before.mark_current()
    plugin.reserve(state, BOTH, "n")
    nowhere = dict.fromkeys("nm", rejected(REASON_NO_VOLUME))
    assert evaluate(plugin, other, cluster) == nowhere
    assert evaluate(plugin, make_pod("twin", claims=["d"]), cluster) == {"m": rejected(REASON_NO_VOLUME)}
    assert not before.is_current
    plugin.unreserve(state, BOTH, "n")
    assert evaluate(plugin, other, cluster) == {"m": rejected(REASON_NO_VOLUME)}
    assert evaluate(plugin, make_pod("twin", claims=["d"]), cluster) == {}


def test_later_updates_of_the_server_override_reservations() -> None:
    cluster = two_claims()
    plugin_for(cluster).reserve(CycleState(), BOTH, "n")
    cluster.objects.put(versioned(make_pv("v", storage_class="static"), "4"))
    cluster.objects.put(versioned(make_pvc("d", storage_class="made"), "5"))
    volume, claim = expected_volume(cluster.objects, "v"), expected_claim(cluster.objects, "d", "default")
    assert volume is not None
    assert claim is not None
    assert (volume.spec.claim_ref, claim.annotations) == (None, {})


@pytest.mark.parametrize(
    ("reference", "annotations", "uid"),
    [
        pytest.param("", {}, "persistentvolumeclaim/default/c", id="a user kept it for the name: completed"),
        pytest.param(
            "persistentvolumeclaim/default/c", {}, "persistentvolumeclaim/default/c", id="for this very claim"
        ),
    ],
)
def test_a_volume_that_a_user_reserved_for_the_claim_is_not_marked_as_bound_by_the_controller(
    reference: str, annotations: dict[str, str], uid: str
) -> None:
    cluster, state = storage_cluster(NODES, STATIC, UNBOUND_CLAIM, reserved(uid=reference)), CycleState()
    plugin_for(cluster).reserve(state, make_pod("p", claims=["c"]), "n")
    (volume,) = state.read(("VolumeBinding", "pod/default/p")).volumes
    assert (volume.annotations, volume.spec.claim_ref.uid) == (annotations, uid)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p"), id="no claims"),
        pytest.param(make_pod("p", claims=["b"]), id="all claims are bound"),
    ],
)
def test_a_pod_with_nothing_to_bind_is_bound_at_once(pod: Pod) -> None:
    cluster, state = storage_cluster(NODES, make_pvc("b", volume="v"), make_pv("v")), CycleState()
    plugin = plugin_for(cluster)
    assert plugin.reserve(state, pod, "n") is None
    assert plugin.pre_bind_pre_flight(state, pod, "n") is SKIP
    assert asyncio.run(plugin.pre_bind(state, pod, "n")) is None


@pytest.mark.parametrize("answer", [None, failure("binding volumes: timed out")], ids=["bound", "not bound"])
def test_binding_hands_the_plan_to_the_writer(answer: Status | None) -> None:
    cluster, state, writer = two_claims(), CycleState(), Writer(answer)
    plugin = plugin_for(cluster, writer)
    plugin.reserve(state, BOTH, "n")
    assert plugin.pre_bind_pre_flight(state, BOTH, "n") is None
    assert asyncio.run(plugin.pre_bind(state, BOTH, "n")) == answer
    assert writer.calls == [("p", "n", state.read(("VolumeBinding", BOTH.uid)), 7.0)]


def test_binding_fails_without_a_client() -> None:
    cluster, state = two_claims(), CycleState()
    plugin = plugin_for(cluster)
    plugin.reserve(state, BOTH, "n")
    assert asyncio.run(plugin.pre_bind(state, BOTH, "n")) == failure(NO_BINDER)
