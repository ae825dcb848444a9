"""DeviceTaintRules: they keep devices from being allocated, and their changes bring pods back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.devices import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.metrics import SchedulerMetrics
from bayplan.testing.builders import (
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)

from .running import running, virtual

CLUSTER = [
    make_node("a"),
    make_node("b"),
    make_device_class("gpu"),
    *(make_resource_slice(f"slice-{node}", make_device("gpu-0"), node=node) for node in ("a", "b")),
    make_resource_claim("c", make_device_request()),
]


def rule(selector: DeviceTaintSelector | None, effect: str = "NoSchedule") -> DeviceTaintRule:
    taint = DeviceTaint(key="example.com/broken", effect=effect)
    return DeviceTaintRule(
        metadata=ObjectMeta(name="r"), spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    )


def claiming(name: str = "p") -> Pod:
    claims = (PodResourceClaim(name="gpu", resource_claim_name="c"),)
    return make_pod(name, resource_claims=claims)


EVERYWHERE = rule(DeviceTaintSelector())


@pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)
def test_rules_apply_only_where_the_release_has_them(release: Release) -> None:
    @virtual
    async def scenario() -> None:
        async with running(*CLUSTER, EVERYWHERE, claiming(), release=release) as world:
            assert bool(world.node_of("p")) == (release is V1_36)
            kinds = {informer.kind for informer in world.scheduler.informers}
            assert (DeviceTaintRule in kinds) == (release is V1_37)

    scenario()


@virtual
async def test_a_gate_that_is_off_turns_rules_off() -> None:
    release = V1_37.with_gates(V1_37.gates - {"DRADeviceTaintRules"})
    async with running(*CLUSTER, EVERYWHERE, claiming(), release=release) as world:
        assert world.node_of("p")


@virtual
async def test_a_pod_is_tried_again_when_a_rule_changes_its_devices() -> None:
    metrics = SchedulerMetrics()
    async with running(*CLUSTER, EVERYWHERE, claiming(), release=V1_37, metrics=metrics) as world:
        assert world.message("p").startswith("0/2 nodes are available: 2 cannot allocate all claims.")
        attempts = len(world.decisions)
        stored = world.store.get(DeviceTaintRule, "r")
        # Another effect that blocks as well: the taints of both slices changed, so the pod is tried again.
        world.store.update(replace(stored, spec=rule(DeviceTaintSelector(), "NoExecute").spec))
        await world.after(30)
        assert len(world.decisions) == attempts + 1
        # What does not change taints of any device is no event: here only a label of the rule.
        stored = world.store.get(DeviceTaintRule, "r")
        labelled = replace(stored.metadata, labels={"a": "b"})
        world.store.update(replace(stored, metadata=labelled))
        await world.after(30)
        assert len(world.decisions) == attempts + 1
        stored = world.store.get(DeviceTaintRule, "r")
        world.store.update(replace(stored, spec=rule(DeviceTaintSelector(pool="a")).spec))
        await world.after(30)
        assert world.node_of("p") == "b"


@virtual
async def test_a_pod_is_tried_again_when_a_rule_is_deleted() -> None:
    async with running(*CLUSTER, EVERYWHERE, claiming(), release=V1_37) as world:
        assert not world.node_of("p")
        world.store.delete(DeviceTaintRule, "r", "")
        await world.after(30)
        assert world.node_of("p")


@virtual
async def test_a_rule_that_comes_later_applies_to_the_next_pod() -> None:
    async with running(*CLUSTER, release=V1_37) as world:
        await world.create(rule(DeviceTaintSelector(driver="gpu.example.com", pool="a", device="gpu-0")))
        await world.create(claiming())
        assert world.node_of("p") == "b"
