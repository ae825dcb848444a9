"""Pods on parts of GPUs: what fits, which devices pods get, and what is recorded of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.gpu_sharing import (
    FGD,
    FGDArgs,
    GpuBestFit,
    GpuClustering,
    GpuDotProd,
    GpuPacking,
    GpuRandom,
    GpuRandomArgs,
    GpuSharing,
    TypicalPodArgs,
)
from bayplan.plugins.library.gpu_sharing.request import GPU_COUNT, GPU_INDEX, GPU_MILLI
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin
from bayplan.testing.plugin_checks import check_plugin
from bayplan.testing.samples import Samples

from .gpus import fgd_config, gpu_node, gpu_pod

TYPICAL = FGDArgs(
    typical_pods=(
        TypicalPodArgs(cpu_milli=4000, gpu_milli=500, gpu_count=1, weight=3),
        TypicalPodArgs(cpu_milli=8000, gpu_milli=1000, gpu_count=1, weight=2),
        TypicalPodArgs(cpu_milli=2000, weight=1),
    )
)
POLICIES: dict[type[Plugin], Any] = {
    GpuSharing: None,
    GpuRandom: GpuRandomArgs(seed=3),
    GpuDotProd: None,
    GpuClustering: None,
    GpuPacking: None,
    GpuBestFit: None,
    FGD: TYPICAL,
}


def make_core(
    *objects: Object, policy: type[Plugin] = GpuSharing, cache: bool = True, typical: FGDArgs = TYPICAL
) -> SchedulingCore:
    config = fgd_config(typical) if policy is FGD else None
    core = SchedulingCore(config, plugins=[*BUILTIN_PLUGINS, policy], cache=cache)
    core.load(objects)
    return core


def samples() -> Samples:
    nodes = [
        gpu_node(f"n{i}", gpus, model=model)
        for i, (gpus, model) in enumerate(
            [(0, ""), (1, "T4"), (2, "P100"), (2, ""), (4, "T4"), (8, "V100"), (9, "V100")]
        )
    ]
    running = [
        gpu_pod("a", 1, 400, node="n1", on="0"),
        gpu_pod("b", 2, 1000, node="n4", on="1-3"),
        gpu_pod("c", 1, 500, node="n4"),
        gpu_pod("d", 1, 700, node="n5", on="6"),
        gpu_pod("e", 1, 700, node="n5", on="6"),
        gpu_pod("f", 8, 1000, node="n6", on="0-1-2-3-4-5-6-7"),
        make_pod("g", node="n2", cpu="60"),
        gpu_pod("h", 1, 100, node="unseen", on="0"),
    ]
    waiting = [
        make_pod("plain", cpu="8"),
        gpu_pod("share", 1, 300),
        gpu_pod("share-t4", 1, 300, models="T4|V100"),
        gpu_pod("whole"),
        gpu_pod("two", 2),
        gpu_pod("eight", 8),
        gpu_pod("nine", 9),
        gpu_pod("invalid", 2, 500),
        make_pod("only-milli", annotations={GPU_MILLI: "250"}),
        make_pod("only-count", annotations={GPU_COUNT: "2"}),
    ]
    return Samples([*nodes, *running], waiting)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_passes_the_checks(policy: type[Plugin]) -> None:
    check_plugin(policy, POLICIES[policy])
    check_plugin(policy, POLICIES[policy], samples=[samples()])


# Filter


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (gpu_pod(count=3), "1 node(s) had too few GPUs"),
        (gpu_pod(count=2), "1 node(s) didn't have enough free GPUs"),
        (gpu_pod(milli=700), ""),
        (gpu_pod(milli=700, models="T4"), "1 node(s) had other GPU models"),
        (gpu_pod(milli=700, models="|T4||P100"), ""),
        (gpu_pod(milli=5000), ""),
    ],
)
def test_which_requests_fit(pod: Pod, text: str) -> None:
    core = make_core(gpu_node(gpus=2, model="P100"), gpu_pod("runs", 1, 300, node="n", on="1"))
    decision = core.decide(pod)
    assert decision.fits == (not text)
    assert text in decision.message


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({GPU_COUNT: "2", GPU_MILLI: "500"}, "a part of several GPUs is requested"),
        ({GPU_COUNT: "one"}, f'annotation {GPU_COUNT} is "one", not a whole number from 0 to 64'),
        ({GPU_MILLI: "-1"}, f'annotation {GPU_MILLI} is "-1"'),
        ({GPU_COUNT: "1", GPU_MILLI: "0"}, f'annotation {GPU_MILLI} is "0", but {GPU_COUNT} is "1"'),
        ({GPU_COUNT: "9" * 400}, "not a whole number"),
    ],
)
def test_an_invalid_request_is_explained(annotations: dict[str, str], text: str) -> None:
    decision = make_core(gpu_node()).decide(make_pod("p", annotations=annotations))
    assert not decision.fits
    assert text in decision.message


def test_a_pod_without_gpus_may_run_anywhere() -> None:
    assert make_core(make_node("n")).decide(make_pod("p")).fits
    assert make_core(make_node("n")).decide(make_pod("p", annotations={GPU_COUNT: "0"})).fits


def test_pods_that_were_assigned_no_devices_are_counted_by_best_fit() -> None:
    core = make_core(gpu_node(gpus=2), *(gpu_pod(f"r{i}", 1, 600, node="n") for i in range(2)))
    assert core.decide(gpu_pod(milli=400)).fits
    assert not core.decide(gpu_pod(milli=500)).fits


def test_an_annotation_that_makes_no_sense_counts_as_none() -> None:
    for index in ("7", "0-1", "x", "-", "99999999999999999999", "٣"):
        core = make_core(gpu_node(gpus=1), gpu_pod("r", 1, 600, node="n", on=index))
        assert not core.decide(gpu_pod(milli=500)).fits, index


# Devices


def reserve(core: SchedulingCore, pod: Pod) -> str:
    """The devices that the pod gets."""
    decision = core.decide(pod)
    assert core.reserve(decision).fits
    assert decision.found is not None
    state = decision.found.search.state
    return str((state.get("bayplan/binding-annotations") or {}).get(GPU_INDEX, ""))


def test_reserve_assigns_devices_that_later_pods_do_not_get() -> None:
    core = make_core(gpu_node(gpus=3))
    pods = [gpu_pod("a", 1, 300), gpu_pod("b", 1, 800), gpu_pod("c", 1, 700), gpu_pod("d")]
    assert [reserve(core, pod) for pod in pods] == ["0", "1", "0", "2"]
    assert not core.decide(gpu_pod("e", 1, 201)).fits
    assert reserve(core, gpu_pod("e", 1, 200)) == "1"


def test_whole_devices_are_the_first_free_ones() -> None:
    core = make_core(gpu_node(gpus=4), gpu_pod("r", 1, 10, node="n", on="1"))
    assert reserve(core, gpu_pod("p", 3)) == "0-2-3"


def test_fgd_assigns_the_device_of_its_score() -> None:
    """Best fit would take device 0 and leave 450 of it: too little for the pods that are expected."""
    typical = FGDArgs(typical_pods=(TypicalPodArgs(gpu_milli=500, gpu_count=1),))
    core = make_core(gpu_node(gpus=2), gpu_pod("r", 1, 300, node="n", on="0"), policy=FGD, typical=typical)
    assert reserve(core, gpu_pod("p", 1, 250)) == "1"


def test_random_depends_on_seed_and_pod_alone() -> None:
    nodes = [gpu_node(f"n{i}", 4) for i in range(20)]
    chosen = {}
    for name in "abcdefgh":
        core = make_core(*nodes, policy=GpuRandom)
        first = core.decide(gpu_pod(name, 1, 100))
        assert core.decide(gpu_pod(name, 1, 100)).node_name == first.node_name
        chosen[name] = (first.node_name, reserve(core, gpu_pod(name, 1, 100)))
    assert len({node for node, _ in chosen.values()}) > 3
    assert len({device for _, device in chosen.values()}) > 1


def test_a_rejected_reservation_leaves_nothing_behind() -> None:
    core = make_core(gpu_node(gpus=1))
    first, second = core.decide(gpu_pod("a", 1, 600)), core.decide(gpu_pod("b", 1, 600))
    assert core.reserve(first).fits
    status = core.reserve(second).status
    assert status.is_rejection
    assert "the GPUs of node n were taken meanwhile" in status.message
    assert reserve(core, gpu_pod("c", 1, 400)) == "0"
    assert not core.decide(gpu_pod("d", 1, 1)).fits


@pytest.mark.parametrize("policy", POLICIES)
def test_cached_decisions_are_those_without_cache(policy: type[Plugin]) -> None:
    placements = []
    for cache in (True, False):
        core = make_core(*(gpu_node(f"n{i}", (1, 2, 4)[i % 3]) for i in range(9)), policy=policy, cache=cache)
        assigned = []
        for i in range(60):
            count, milli = ((1, 300), (1, 450), (1, 1000), (2, 1000), (1, 50))[i % 5]
            decision = core.decide(gpu_pod(f"p{i}", count, milli, cpu=("1", "2")[i % 2]))
            if decision.fits:
                assert core.reserve(decision).fits
            assigned.append(decision.node_name or decision.message)
            if i % 7 == 6 and core.cluster.node_of(f"pod/default/p{i - 4}"):
                core.cluster.remove_pod(f"pod/default/p{i - 4}")
        placements.append(assigned)
    assert placements[0] == placements[1]


# Preemption


def test_preemption_evicts_the_pod_on_the_device_that_is_needed() -> None:
    core = make_core(
        gpu_node(gpus=2),
        gpu_pod("keeps", 1, 300, node="n", on="0", priority=100),
        gpu_pod("victim", 1, 900, node="n", on="1", priority=0),
        gpu_pod("stays", 1, 100, node="n", on="0", priority=0),
    )
    decision = core.decide(gpu_pod("urgent", 1, 1000, priority=10))
    assert decision.post_filter is not None
    assert decision.post_filter.eviction is not None
    assert [pod.name for pod in decision.post_filter.eviction.victims] == ["victim"]


def test_nodes_that_preemption_cannot_help_are_not_tried() -> None:
    core = make_core(gpu_node(gpus=1, model="T4"), gpu_pod("r", node="n", on="0", priority=0))
    for pod in (gpu_pod("two", 2, priority=10), gpu_pod("other", models="P100", priority=10)):
        assert "Preemption is not helpful for scheduling" in core.decide(pod).message


def test_nominated_pods_have_their_devices() -> None:
    core = make_core(gpu_node(gpus=1))
    core.cluster.nominate(gpu_pod("first", 1, 800, priority=10), "n")
    assert not core.decide(gpu_pod("p", 1, 300, priority=5)).fits
    assert core.decide(gpu_pod("p", 1, 300, priority=11)).fits


# Events


def test_events_that_help() -> None:
    plugin, pod = make_plugin(GpuSharing), gpu_pod("p", 2, 1000, models="T4")
    assert plugin.pod_change_helps(pod, gpu_pod("gone", node="n"), None)
    assert not plugin.pod_change_helps(pod, gpu_pod("gone"), None)
    assert not plugin.pod_change_helps(pod, make_pod("gone", node="n"), None)
    suits, small, other = gpu_node(model="T4"), gpu_node(gpus=1, model="T4"), gpu_node(model="P4")
    assert plugin.node_change_helps(pod, None, suits)
    assert not plugin.node_change_helps(pod, None, small)
    assert not plugin.node_change_helps(pod, None, other)
    assert plugin.node_change_helps(pod, other, suits)
    assert plugin.node_change_helps(pod, suits, gpu_node(gpus=4, model="T4"))
    assert not plugin.node_change_helps(pod, suits, suits)


# With a scheduler


def test_the_devices_are_written_with_the_binding_and_survive_a_restart() -> None:
    async def main() -> dict[str, tuple[str, str]]:
        store = MemoryStore(clock=current_loop().wall_time)
        store.create(gpu_node(gpus=2))
        for round_ in range(2):
            scheduler = Scheduler(MemoryCluster(store), fgd_config(TYPICAL), plugins=[FGD])
            running = asyncio.ensure_future(scheduler.run())
            for number in range(2):
                store.create(gpu_pod(f"p{round_}{number}", 1, 500))
            await quiescent()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        return {pod.name: (pod.spec.node_name, pod.annotations.get(GPU_INDEX, "")) for pod in store.list(Pod)}

    found = run_virtual(main())
    assert {node for node, _ in found.values()} == {"n"}
    assert sorted(device for _, device in found.values()) == ["0", "0", "1", "1"]


def test_a_deleted_pod_makes_room() -> None:
    async def main() -> str:
        store = MemoryStore(clock=current_loop().wall_time)
        scheduler = Scheduler(MemoryCluster(store), plugins=[GpuPacking])
        running = asyncio.ensure_future(scheduler.run())
        store.create(gpu_node(gpus=1))
        store.create(gpu_pod("first", 1, 600))
        await quiescent()
        store.create(gpu_pod("second", 1, 600))
        await quiescent()
        assert not store.get(Pod, "second", "default").spec.node_name
        store.delete(Pod, "first", "default")
        await asyncio.sleep(30)
        running.cancel()
        return store.get(Pod, "second", "default").annotations[GPU_INDEX]

    assert run_virtual(main()) == "0"


# Arguments


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (FGDArgs(), "typicalPods: Required value"),
        (FGDArgs(typical_pods=(TypicalPodArgs(cpu_milli=-1),)), "typicalPods[0].cpuMilli: Invalid value: -1"),
        (FGDArgs(typical_pods=(TypicalPodArgs(gpu_count=99),)), "typicalPods[0].gpuCount: Invalid value: 99"),
        (FGDArgs(typical_pods=(TypicalPodArgs(gpu_milli=1),)), "must be 0 if gpuCount is 0"),
        (FGDArgs(typical_pods=(TypicalPodArgs(gpu_count=1),)), "must be between 1 and 1000"),
        (FGDArgs(typical_pods=(TypicalPodArgs(gpu_count=2, gpu_milli=5),)), "must be 1000 for several GPUs"),
        (FGDArgs(typical_pods=(TypicalPodArgs(weight=0),)), "must be greater than 0"),
    ],
)
def test_arguments_are_validated(args: FGDArgs, problem: str) -> None:
    assert [problem in str(error) for error in args.validate("", frozenset())] == [True]
