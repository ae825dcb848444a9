"""What is sent with writes, byte for byte where that matters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bayplan.api.cluster_api import Event, Lease, LeaseMeta, LeaseSpec, PodStatusPatch
from bayplan.api.meta import Condition, Object, ObjectMeta, ObjectReference
from bayplan.api.pod import (
    ContainerExtendedResourceRequest,
    Pod,
    PodExtendedResourceClaimStatus,
    PodStatus,
)
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec
from bayplan.client import bodies

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
EARLIER = datetime(2026, 1, 31, 11, 0, 0, tzinfo=UTC)


def pod(*conditions: Condition, nominated: str = "") -> Pod:
    meta = ObjectMeta(name="a", namespace="x", uid="u", generation=4)
    return Pod(metadata=meta, status=PodStatus(conditions=conditions, nominated_node_name=nominated))


def scheduled(status: str, message: str, **fields: Any) -> Condition:
    return Condition(type="PodScheduled", status=status, reason="Unschedulable", message=message, **fields)


READY = Condition(type="Ready", status="True")


def test_a_binding() -> None:
    assert bodies.binding(pod(), "n1") == (
        b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a","namespace":"x","uid":"u"},'
        b'"target":{"kind":"Node","name":"n1"}}'
    )


@pytest.mark.parametrize(
    ("known", "wanted", "expected"),
    [
        pytest.param(
            pod(),
            PodStatusPatch(scheduled("False", "m", observed_generation=4)),
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "m",
                        "observedGeneration": 4,
                        "lastProbeTime": None,
                        "lastTransitionTime": "2026-01-31T12:00:00Z",
                    }
                ]
            },
            id="the first condition",
        ),
        pytest.param(
            pod(READY),
            PodStatusPatch(Condition(type="DisruptionTarget", status="True")),
            {
                "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DisruptionTarget"}],
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "lastProbeTime": None,
                        "lastTransitionTime": "2026-01-31T12:00:00Z",
                    }
                ],
            },
            id="a further condition comes last",
        ),
        pytest.param(
            pod(scheduled("False", "old", last_transition_time=EARLIER), READY),
            PodStatusPatch(scheduled("False", "new")),
            {
                "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "Ready"}],
                "conditions": [{"type": "PodScheduled", "message": "new"}],
            },
            id="another message: only that",
        ),
        pytest.param(
            pod(scheduled("True", "", last_transition_time=EARLIER, observed_generation=3)),
            PodStatusPatch(scheduled("False", "m", observed_generation=4)),
            {
                "$setElementOrder/conditions": [{"type": "PodScheduled"}],
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": "m",
                        "observedGeneration": 4,
                        "lastTransitionTime": "2026-01-31T12:00:00Z",
                    }
                ],
            },
            id="another status: since now",
        ),
        pytest.param(
            pod(scheduled("False", "m", observed_generation=3)),
            PodStatusPatch(scheduled("False", "m", observed_generation=4)),
            None,
            id="another generation alone is no change",
        ),
        pytest.param(
            pod(scheduled("False", "m")),
            PodStatusPatch(Condition(type="PodScheduled", status="False", reason="Unschedulable")),
            {
                "$setElementOrder/conditions": [{"type": "PodScheduled"}],
                "conditions": [{"type": "PodScheduled", "message": None}],
            },
            id="a removed field is null",
        ),
        pytest.param(
            pod(), PodStatusPatch(nominated_node_name="n1"), {"nominatedNodeName": "n1"}, id="a nomination"
        ),
        pytest.param(
            pod(nominated="n1"),
            PodStatusPatch(nominated_node_name=""),
            {"nominatedNodeName": None},
            id="a nomination cleared",
        ),
        pytest.param(pod(), PodStatusPatch(), None, id="nothing"),
    ],
)
def test_the_patch_of_a_pod_status(
    known: Pod, wanted: PodStatusPatch, expected: dict[str, Any] | None
) -> None:
    body = bodies.pod_status(known, wanted, lambda: NOW.timestamp() + 0.7)
    assert (None if body is None else json.loads(body)) == (
        None if expected is None else {"metadata": {"uid": known.uid}, "status": expected}
    )


def test_the_patch_of_upstream_byte_for_byte_but_for_the_uid() -> None:
    known = pod(scheduled("False", "0/2 nodes are available", last_transition_time=EARLIER))
    body = bodies.pod_status(
        known, PodStatusPatch(scheduled("False", "0/3 nodes are available")), lambda: 0.0
    )
    assert body == (
        b'{"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"PodScheduled"}],'
        b'"conditions":[{"message":"0/3 nodes are available","type":"PodScheduled"}]}}'
    )


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        pytest.param(NOW, b"2026-01-31T12:00:00.000000Z", id="a whole second"),
        pytest.param(NOW.replace(microsecond=1200), b"2026-01-31T12:00:00.001200Z", id="a part of one"),
    ],
)
def test_times_in_microseconds_have_six_digits(moment: datetime, written: bytes) -> None:
    """The API server rejects any other number of them."""
    event = bodies.whole(Event(metadata=ObjectMeta(name="e"), event_time=moment, note='"eventTime":"x"'))
    lease = bodies.whole(Lease(metadata=LeaseMeta(name="l"), spec=LeaseSpec(renew_time=moment)))
    assert b'"eventTime":"' + written + b'"' in event
    assert b'"renewTime":"' + written + b'"' in lease
    assert json.loads(event)["note"] == '"eventTime":"x"'


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(
            PersistentVolume(metadata=ObjectMeta(name="v")),
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}},
            id="of the core group",
        ),
        pytest.param(
            Lease(),
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
            id="of another group, and empty",
        ),
    ],
)
def test_a_whole_object_has_its_kind(item: Object, expected: dict[str, Any]) -> None:
    assert json.loads(bodies.whole(item)) == expected


VOLUME = PersistentVolume(
    metadata=ObjectMeta(name="v", uid="u", resource_version="5", annotations={"a": "1"}, labels={"l": "1"}),
    spec=PersistentVolumeSpec(claim_ref=ObjectReference(name="c", namespace="x"), access_modes=("RWO",)),
)
PRECONDITION = {"resourceVersion": "5", "uid": "u"}


def changed(**fields: Any) -> PersistentVolume:
    return msgspec.structs.replace(VOLUME, **fields)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(VOLUME, {}, id="nothing"),
        pytest.param(
            changed(metadata=msgspec.structs.replace(VOLUME.metadata, annotations={"b": "2"})),
            {"metadata": {**PRECONDITION, "annotations": {"a": None, "b": "2"}}},
            id="an annotation removed and one added",
        ),
        pytest.param(
            changed(spec=PersistentVolumeSpec(access_modes=("RWO",))),
            {"metadata": PRECONDITION, "spec": {"claimRef": None}},
            id="a removed field",
        ),
        pytest.param(
            changed(spec=msgspec.structs.replace(VOLUME.spec, access_modes=("RWO", "RWX"))),
            {"metadata": PRECONDITION, "spec": {"accessModes": ("RWO", "RWX")}},
            id="a list is replaced",
        ),
        pytest.param(
            changed(metadata=msgspec.structs.replace(VOLUME.metadata, resource_version="9", generation=7)),
            {},
            id="what the server writes is left to it",
        ),
        pytest.param(
            changed(status=msgspec.convert({"phase": "Bound"}, type(VOLUME.status))), {}, id="the status too"
        ),
    ],
)
def test_what_changes_between_two_versions(new: PersistentVolume, expected: dict[str, Any]) -> None:
    assert bodies.changes(VOLUME, new) == expected


def test_the_parts_that_a_scheduler_writes() -> None:
    paths = (("metadata", "annotations"), ("spec", "claimRef"))
    assert bodies.parts_patch(VOLUME, paths) == {
        "metadata": {**PRECONDITION, "annotations": {"a": "1"}},
        "spec": {"claimRef": {"name": "c", "namespace": "x"}},
    }
    claim = PersistentVolumeClaim(metadata=ObjectMeta(name="c"))
    assert bodies.parts_patch(claim, paths[:1]) == {"metadata": {"annotations": None}}


def test_the_claim_for_extended_resources() -> None:
    mapping = ContainerExtendedResourceRequest(
        container_name="c", resource_name="example.com/gpu", request_name="container-0-request-0"
    )
    claim = PodExtendedResourceClaimStatus(request_mappings=(mapping,), resource_claim_name="a-x")
    body = bodies.pod_status(pod(), PodStatusPatch(extended_resource_claim=claim), NOW.timestamp)
    assert body is not None
    assert json.loads(body) == {
        "metadata": {"uid": "u"},
        "status": {
            "extendedResourceClaimStatus": {
                "requestMappings": [
                    {
                        "containerName": "c",
                        "resourceName": "example.com/gpu",
                        "requestName": "container-0-request-0",
                    }
                ],
                "resourceClaimName": "a-x",
            }
        },
    }
