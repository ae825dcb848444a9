"""Cached search results equal fresh ones, whatever happens to slices, claims, classes and nodes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from bayplan.api.pod import PodResourceClaim
from bayplan.framework.state import SignatureMemory
from bayplan.plugin import CycleState, NodeColumns, Pod
from bayplan.plugin.devices import ResourceClaim, ResourceClaimStatus, ResourceSlice
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.extended import needed_resources
from bayplan.plugins.dynamic_resources.results import NodeResults
from bayplan.scheduler.core import CoreHandle, SchedulingCore
from bayplan.state.cluster import Cluster
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

NAMES = ("a", "b", "c", "d")
SPECS = (
    (make_device_request("r", "gpu"),),
    (make_device_request("r", "gpu", count=2),),
    (make_device_request("r", "big"), make_device_request("s", "gpu")),
    (make_first_available("r", make_device_request("big", "big"), make_device_request("any", "gpu")),),
    (make_device_request("r", "gpu", 'device.attributes["gpu.example.com"].model == "big"'),),
    (make_device_request("r", "other"),),
    (make_device_request("r", "big"), make_device_request("s", "other")),
)
ZONED = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_expressions=(LabelSelectorRequirement(key="zone", operator="In", values=("x",)),)
        ),
    )
)


class Play:
    """A cluster to which things happen, and pods that request devices there."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster()
        self.plugin = DynamicResources(None, CoreHandle(self.cluster))
        shared = SignatureMemory()
        self.shared = [CycleState.of(SignatureMemory(shared)) for _ in SPECS]
        self.pods: list[tuple[CycleState, Pod, ResourceClaim]] = []
        self.count = 0
        self.cluster.objects.put(make_device_class("gpu"))
        self.cluster.objects.put(make_device_class("other"))
        self.set_class("big")
        for name in NAMES:
            self.cluster.set_node(make_node(name))

    def set_class(self, model: str) -> None:
        expression = f'device.attributes["gpu.example.com"].model == "{model}"'
        self.cluster.objects.put(make_device_class("big", expression))

    def happen(self) -> None:
        rng, cluster = self.rng, self.cluster
        match rng.randrange(8):
            case 0 | 1:
                self.put_slice()
            case 2:
                slices = list(cluster.objects.of(ResourceSlice))
                if slices:
                    cluster.objects.remove(rng.choice(slices))
            case 3:
                self.set_class(rng.choice(("big", "small")))
            case 4:
                name = rng.choice(NAMES)
                cluster.set_node(make_node(name, labels={"zone": rng.choice("xy")}))
            case 5 if self.pods:
                state, pod, _ = self.pods.pop(rng.randrange(len(self.pods)))
                self.plugin.unreserve(state, pod, "")
            case 6 if self.pods:
                self.write(*self.pods.pop(rng.randrange(len(self.pods))))
            case _:
                allocated = [one for one in cluster.objects.of(ResourceClaim) if one.status.allocation]
                if allocated:
                    cluster.objects.put(replace(rng.choice(allocated), status=ResourceClaimStatus()))

    def a_slice(self, name: str) -> Any:
        rng = self.rng
        devices = [
            make_device(
                f"gpu-{number}",
                {"model": rng.choice(("big", "small"))},
                allow_multiple_allocations=rng.random() < 0.2,
            )
            for number in range(rng.randrange(4))
        ]
        where: dict[str, Any] = rng.choice(
            ({"node": name}, {"node": name}, {"node": name}, {"all_nodes": True}, {"node_selector": ZONED})
        )
        pool = "" if "node" in where else "shared"
        return make_resource_slice(
            f"slice-{name}", *devices, pool=pool, generation=rng.randrange(1, 3), **where
        )

    def put_slice(self) -> None:
        self.cluster.objects.put(self.a_slice(self.rng.choice(NAMES)))

    def write(self, state: CycleState, pod: Pod, claim: ResourceClaim) -> None:
        """What was in flight is in the API server."""
        (planned,) = state.read("DynamicResources").plan.claims
        status = ResourceClaimStatus(allocation=planned.allocation)
        self.cluster.objects.put(replace(claim, status=status))
        self.plugin.unreserve(state, pod, "")

    def schedule(self) -> None:
        """A pod of some kind, evaluated with and without cached results."""
        which = self.rng.randrange(len(SPECS))
        self.count += 1
        claim = make_resource_claim(f"c{self.count}", *SPECS[which])
        self.cluster.objects.put(claim)
        entry = PodResourceClaim(name="r", resource_claim_name=claim.name)
        pod = make_pod(f"p{self.count}", resource_claims=(entry,))
        state = CycleState.of(self.shared[which].signature)
        cached, fresh = self.evaluated(state, pod), self.evaluated(CycleState(), pod)
        assert cached == fresh
        feasible = [row for row, (reason, _, _) in enumerate(cached) if not reason]
        if feasible and self.rng.random() < 0.7:
            name = self.cluster.nodes.name[self.rng.choice(feasible)]
            assert self.plugin.reserve(state, pod, name) is None
            self.pods.append((state, pod, claim))

    def evaluated(self, state: CycleState, pod: Pod) -> list[tuple[str, int, list[str]]]:
        """For each row the reason against it, its score, and the devices there."""
        nodes = NodeColumns(self.cluster)
        assert self.plugin.pre_filter(state, pod, nodes) is None
        reasons = [""] * len(nodes)
        for reject in self.plugin.filter(state, pod, nodes):
            for row, is_rejected in enumerate(reject.mask):  # type: ignore[arg-type]  # always a column here
                if is_rejected:
                    reasons[row] += reject.status.message
        results = state.read("DynamicResources").results
        devices = []
        for row in range(len(nodes)):
            found = results.at(row)
            allocations = () if found is None else found.allocations
            devices.append(
                [
                    f"{one.request} {one.pool}/{one.device}"
                    for each in allocations
                    for one in each.devices.results
                ]
            )
        scores = [int(score) for score in self.plugin.score(state, pod, nodes)]
        differ = len({score for score, reason in zip(scores, reasons, strict=True) if not reason}) > 1
        assert self.plugin.has_uniform_score(state, pod) is not differ
        return list(zip(reasons, scores, devices, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_cached_results_equal_fresh_ones(seed: int) -> None:
    play = Play(seed)
    for _ in range(6):
        play.put_slice()
    for _ in range(60):
        for _ in range(play.rng.randrange(3)):
            play.happen()
        play.schedule()


def devices_everywhere() -> Play:
    play = Play(0)
    for name in NAMES:
        devices = (make_device(f"gpu-{number}") for number in range(4))
        play.cluster.objects.put(make_resource_slice(f"slice-{name}", *devices, node=name))
    return play


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of nodes of each search."""
    counts: list[int] = []
    search = NodeResults._search

    def counted(self: NodeResults, rows: Any) -> None:
        if rows:
            counts.append(len(rows))
        search(self, rows)

    monkeypatch.setattr(NodeResults, "_search", counted)
    return counts


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        pytest.param((0, 0, 0), [4, 1, 1], id="pods of one signature"),
        pytest.param((0, 1, 0), [4, 4, 1], id="claims that ask for something else"),
        pytest.param((0, 5, 0), [4, 1, 1], id="classes that differ in nothing but their name"),
    ],
)
def test_only_nodes_whose_devices_changed_are_searched_again(
    which: tuple[int, ...], expected: list[int], searched: list[int]
) -> None:
    play = devices_everywhere()
    for number, spec in enumerate(which):
        claim = make_resource_claim(f"x{number}", *SPECS[spec])
        play.cluster.objects.put(claim)
        entry = PodResourceClaim(name="r", resource_claim_name=claim.name)
        pod = make_pod(f"x{number}", resource_claims=(entry,))
        state = CycleState.of(play.shared[spec].signature)
        nodes = NodeColumns(play.cluster)
        play.plugin.pre_filter(state, pod, nodes)
        assert list(play.plugin.filter(state, pod, nodes)) == []
        play.plugin.reserve(state, pod, "b")
        play.write(state, pod, claim)
    assert searched == expected


@pytest.mark.parametrize(("cache", "expected"), [(True, [4, 1]), (False, [4, 4])])
def test_pods_that_name_different_claims_share_results(
    cache: bool, expected: list[int], searched: list[int]
) -> None:
    core = SchedulingCore(cache=cache)
    core.cluster.objects.put(make_device_class("gpu"))
    for name in NAMES:
        core.cluster.set_node(make_node(name))
        core.cluster.objects.put(
            make_resource_slice(f"slice-{name}", make_device("x"), make_device("y"), node=name)
        )
    for number in range(2):
        core.cluster.objects.put(make_resource_claim(f"c{number}", *SPECS[0]))
        entry = PodResourceClaim(name="r", resource_claim_name=f"c{number}")
        decision = core.decide(make_pod(f"p{number}", resource_claims=(entry,)))
        allocated = make_allocated_device("x", decision.node_name)
        core.cluster.objects.put(make_resource_claim(f"c{number}", *SPECS[0], allocated=[allocated]))
    assert searched == expected


def test_an_error_names_the_class_of_the_claim() -> None:
    """The results of claims whose classes differ only in their names are shared, errors excepted."""
    play = devices_everywhere()
    for name in ("bad", "worse"):
        play.cluster.objects.put(make_device_class(name, "1 +"))
        claim = make_resource_claim("mine", make_device_request("r", name))
        play.cluster.objects.put(claim)
        pod = make_pod("p", resource_claims=(PodResourceClaim(name="r", resource_claim_name="mine"),))
        state, nodes = CycleState.of(play.shared[0].signature), NodeColumns(play.cluster)
        assert play.plugin.pre_filter(state, pod, nodes) is None
        (reject,) = play.plugin.filter(state, pod, nodes)
        assert reject.status.message.startswith(f"class {name}: selector #0: CEL compile error")


def test_nodes_with_a_device_plugin_need_no_devices(searched: list[int]) -> None:
    """What the claim for extended resources asks for differs between nodes, and so do the results."""
    play = devices_everywhere()
    cluster, name = play.cluster, "example.com/gpu"
    cluster.objects.put(make_device_class("served", extended_resource=name))
    cluster.set_node(make_node("a", resources={name: "3"}))
    cluster.set_node(make_node("e", resources={"example.com/other": "0"}))
    for requests, expected in (
        ({name: "1"}, ["", "", "", "", "cannot allocate all claims"]),
        (
            {name: "1", "example.com/other": "1"},
            [*["cannot fit resource"] * 4, "cannot allocate all claims"],
        ),
    ):
        pod, state, nodes = make_pod("p", requests=requests), CycleState(), NodeColumns(cluster)
        assert play.plugin.pre_filter(state, pod, nodes) is None
        reasons = [""] * len(nodes)
        for reject in play.plugin.filter(state, pod, nodes):
            for row in np.nonzero(np.asarray(reject.mask))[0]:
                reasons[row] += reject.status.message
        assert reasons == expected
        results = state.read("DynamicResources").results
        served = [(found := results.at(row)) is not None and bool(found.variant.mappings) for row in range(5)]
        assert served == [row in (1, 2, 3) and len(requests) == 1 for row in range(5)]
    assert searched == [4, 1]


def test_only_a_node_that_changed_is_read_again() -> None:
    """Which nodes list a resource is a column, not read from all Node objects."""
    cluster, name = Cluster(), "example.com/other"
    for number in range(100):
        cluster.set_node(make_node(f"n{number}", resources={name: "0"} if number % 2 else {}))
    read: list[Any] = []

    class NodesRead(list[Any]):
        def __getitem__(self, row: Any) -> Any:
            read.append(row)
            return super().__getitem__(row)

        def __iter__(self) -> Any:
            read.extend(range(len(self)))
            return super().__iter__()

    cluster.nodes.node = NodesRead(cluster.nodes.node)
    cluster.set_node(make_node("n7"))
    read_by_set_node = list(read)
    ((_, never), (needed, rows)) = needed_resources(NodeColumns(cluster), {name: 1})
    assert needed == ()
    assert np.flatnonzero(rows).tolist() == [row for row in range(1, 100, 2) if row != 7]
    assert (never == ~rows).all()
    assert set(read_by_set_node) == {7}
    assert read == read_by_set_node
