"""Records of devices and claims: nothing that the scheduler writes back is lost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bayplan.api.check import check_object, quantity_problems
from bayplan.api.decode import decode_json, decode_object
from bayplan.api.defaults import with_defaults
from bayplan.api.devices import CapacityRequestPolicy, DeviceCapacity, ResourceClaim, ResourceClaimTemplate
from bayplan.api.kinds import KINDS
from bayplan.errors import QuantityError
from bayplan.testing.builders import make_device, make_resource_slice

CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {
        "name": "gpu",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "uid": "p",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "a",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": "true"}}],
                        "allocationMode": "ExactCount",
                        "count": 2,
                        "adminAccess": False,
                        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
                        "capacity": {"requests": {"memory": "1Gi"}},
                    },
                },
                {
                    "name": "b",
                    "firstAvailable": [{"name": "s", "deviceClassName": "x", "allocationMode": "All"}],
                },
            ],
            "constraints": [{"requests": ["a"], "matchAttribute": "d/x"}, {"distinctAttribute": "d/y"}],
            "config": [{"requests": ["a"], "opaque": {"driver": "d", "parameters": {"z": [1, None]}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "a",
                        "driver": "d",
                        "pool": "p",
                        "device": "0",
                        "adminAccess": True,
                        "tolerations": [{"operator": "Exists"}],
                        "bindingConditions": ["c"],
                        "bindingFailureConditions": ["f"],
                        "shareID": "s",
                        "consumedCapacity": {"memory": "1Gi"},
                    }
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "requests": ["a"],
                        "opaque": {"driver": "d", "parameters": {"k": 1}},
                    }
                ],
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                ]
            },
            "allocationTimestamp": "2026-01-02T03:04:05Z",
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
        "devices": [
            {
                "driver": "d",
                "pool": "p",
                "device": "0",
                "shareID": "s",
                "conditions": [
                    {
                        "type": "c",
                        "status": "True",
                        "reason": "R",
                        "message": "m",
                        "lastTransitionTime": "2026-01-02T03:04:05Z",
                        "observedGeneration": 1,
                    }
                ],
                "data": {"any": "thing"},
                "networkData": {"ips": ["10.0.0.1/8"], "interfaceName": "eth0"},
            }
        ],
    },
}


def test_a_claim_is_written_back_as_it_was_read() -> None:
    claim = decode_json(KINDS["ResourceClaim"], json.dumps(CLAIM))
    written = json.loads(msgspec.json.encode(claim))
    assert written == {key: part for key, part in CLAIM.items() if key not in ("apiVersion", "kind")}


def test_a_claim_lists_its_consumers() -> None:
    claim = decode_object(CLAIM)
    assert isinstance(claim, ResourceClaim)
    assert claim.is_reserved_for("p")
    assert not claim.is_reserved_for("q")


@pytest.mark.parametrize("template", [False, True])
def test_defaults_of_a_claim(template: bool) -> None:
    exactly = {"deviceClassName": "gpu", "tolerations": [{"key": "k"}]}
    alternatives = [{**exactly, "name": "s"}, {"name": "t", "allocationMode": "All"}]
    requests = [{"name": "a", "exactly": exactly}, {"name": "b", "firstAvailable": alternatives}]
    spec: dict[str, Any] = {"devices": {"requests": requests}}
    raw = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"spec": spec} if template else spec,
    }
    (done,) = with_defaults([obj for obj in [decode_object(raw)] if obj is not None])
    assert isinstance(done, ResourceClaim | ResourceClaimTemplate)
    claim = done.spec if isinstance(done, ResourceClaim) else done.spec.spec
    first, second = claim.devices.requests
    assert first.exactly is not None
    exact, subs = first.exactly, second.first_available
    assert (exact.allocation_mode, exact.count) == ("ExactCount", 1)
    assert [(one.allocation_mode, one.count) for one in subs] == [("ExactCount", 1), ("All", 0)]
    assert exact.tolerations[0].operator == subs[0].tolerations[0].operator == "Equal"
    assert with_defaults([done]) == [done]


@pytest.mark.parametrize(
    ("capacity", "field"),
    [
        (DeviceCapacity(value="1x"), "spec.devices[0].capacity[memory].value"),
        (
            DeviceCapacity(value=1, request_policy=CapacityRequestPolicy(valid_values=("1", "x"))),
            "spec.devices[0].capacity[memory].requestPolicy.validValues[1]",
        ),
    ],
)
def test_quantities_inside_maps_and_lists_are_checked(capacity: DeviceCapacity, field: str) -> None:
    item = make_resource_slice("s", make_device("d", capacity={"memory": capacity}), node="n")
    with pytest.raises(QuantityError) as caught:
        check_object(item)
    assert caught.value.field == field
    assert [problem.field for problem in quantity_problems(item)] == [field]
