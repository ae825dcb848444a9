"""Every recorded allocation of kube-scheduler, device by device; `conformance/README.md` has the format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from bayplan.api.decode import decode_object
from bayplan.api.devices import DeviceClass, ResourceSlice
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.resource_claims import ResourceClaim, ResourceClaimSpec
from bayplan.devices import AllocationError, Allocator, DeviceState, NoFit

RECORDED = Path(__file__).parents[2] / "conformance/devices/allocations.jsonl.gz"
OTHER_RULES = {"resourceclaim not available on the node", "cannot schedule extended resource claim"}
"""Rejections that follow before devices are looked for."""

ObjectT = TypeVar("ObjectT", bound=Object)


def recorded(source: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        return [line for line in map(json.loads, lines) if line["source"] == source]


class Scenario:
    """The devices of a scenario and what pods claim of them."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._objects = [obj for item in raw["objects"] if (obj := decode_object(item)) is not None]
        self.nodes = self._of(Node)
        self.classes = {item.name: item for item in self._of(DeviceClass)}
        self._claims = {item.key: item for item in self._of(ResourceClaim)}
        self.state = DeviceState()
        for item in self._of(ResourceSlice):
            self.state.put_slice(item)
        for claim in self._claims.values():
            self.state.put_claim(claim.uid, claim.key, claim.status.allocation)

    def _of(self, kind: type[ObjectT]) -> list[ObjectT]:
        return [item for item in self._objects if isinstance(item, kind)]

    def claims_of(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Those that are not allocated yet."""
        created = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        for one in pod.spec.resource_claims:
            name = one.resource_claim_name or created.get(one.name)
            claim = self._claims[f"{pod.namespace}/{name}"] if name else None
            if claim is not None and claim.status.allocation is None:
                yield claim


def answers(
    allocator: Allocator, node: Node, claims: list[ResourceClaim]
) -> list[dict[str, Any]] | dict[str, Any]:
    """What the allocator says, in the form of the recording."""
    try:
        found = allocator.allocate(node, claims)
    except AllocationError as error:
        return {"code": "Error", "reasons": [str(error)]}
    if isinstance(found, NoFit):
        return {"code": "UnschedulableAndUnresolvable", "reasons": [found.reason]}
    written: list[dict[str, Any]] = json.loads(msgspec.json.encode(found))
    for result in written:
        for device in result.setdefault("devices", {}).get("results", ()):
            if "shareID" in device:
                device["shareID"] = "*"
    return written


def differences(line: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """For each node that was compared 1 and what is different, or ""."""
    scenario = Scenario(line["scenario"])
    for raw, expected in zip(line["scenario"]["pods"], line["expect"], strict=True):
        pod = decode_object(raw)
        assert isinstance(pod, Pod)
        if expected["preFilter"]["code"] != "Success":
            continue
        has_extended = any("/" in name for one in pod.spec.containers for name in one.resources.requests)
        claims = list(scenario.claims_of(pod))
        allocator = Allocator(scenario.state.inventory, scenario.state.allocated, scenario.classes.get)
        for node in scenario.nodes:
            rejected, fits = expected["filter"].get(node.name), expected["allocations"].get(node.name)
            if fits is None and (rejected is None or has_extended or rejected["reasons"][0] in OTHER_RULES):
                continue
            wanted = rejected or fits["results"]
            here = [*claims]
            if fits is not None and len(wanted) > len(claims):
                devices = {"requests": fits.get("requests") or []}
                spec = msgspec.convert({"devices": devices}, ResourceClaimSpec)
                here.append(ResourceClaim(spec=spec))
            found = answers(allocator, node, here)
            where = f"{line['scenario']['name']}, {pod.key} on {node.name}"
            yield 1, "" if found == wanted else f"{where}: {found}, recorded {wanted}"


@pytest.mark.parametrize(("source", "compared"), [("vec", 745), ("gen", 1347), ("st", 1944)])
def test_every_recorded_allocation_agrees(source: str, compared: int) -> None:
    found = [one for line in recorded(source) for one in differences(line)]
    assert [text for _, text in found if text] == []
    assert len(found) == compared
