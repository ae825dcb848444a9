"""From the wire to records, and the errors for objects that are wrong."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.decode import (
    decode_all,
    decode_json,
    decode_object,
    parse_objects,
    read_objects,
)
from bayplan.api.kinds import KINDS, Kind
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import DecodeError, InputError, QuantityError, SelectorError


def raw_pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def test_the_kinds_that_scheduling_reads() -> None:
    assert {kind.name for kind in KINDS if kind.in_files} == {
        *("Pod", "Node", "Namespace", "PersistentVolumeClaim", "PersistentVolume", "StorageClass"),
        *("CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "PodDisruptionBudget"),
        *(
            "PodGroup",
            "Queue",
            "CompositePodGroup",
            "ElasticQuota",
            "NodeResourceTopology",
            "PriorityClass",
            "Service",
            "ReplicationController",
            "ReplicaSet",
            "StatefulSet",
        ),
        *("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule", "DeviceClass"),
        *("Deployment", "DaemonSet", "Job", "RuntimeClass", "LimitRange", "ResourceQuota"),
        "HorizontalPodAutoscaler",
    }
    assert KINDS["Pod"].record is Pod


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.in_files], ids=lambda kind: kind.name)
def test_every_kind_is_read_from_its_group(kind: Kind) -> None:
    raw = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "x"}}
    assert type(decode_object(raw)) is kind.record


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, id="a kind of no use"
        ),
        pytest.param(
            {"apiVersion": "serving.knative.dev/v1", "kind": "Service"}, id="a kind of another group"
        ),
        pytest.param({"apiVersion": "apps/v1", "kind": "Pod"}, id="a kind in the wrong group"),
    ],
)
def test_other_kinds_are_passed_over(raw: dict[str, Any]) -> None:
    assert decode_object(raw) is None
    assert decode_all(raw) == []


def test_a_missing_version_is_forgiven() -> None:
    assert isinstance(decode_object({"kind": "Node", "metadata": {"name": "n"}}), Node)


def test_fields_keep_their_meaning() -> None:
    pod = decode_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "creationTimestamp": "2026-01-31T12:00:00Z", "futureField": {"x": 1}},
            "spec": {"containers": [{"ports": [{"hostIP": "::", "hostPort": 80}]}], "priority": 7},
            "status": {"nominatedNodeName": "n1"},
        }
    )
    assert isinstance(pod, Pod)
    assert pod.metadata.creation_timestamp == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert pod.spec.containers[0].ports[0].host_ip == "::"
    assert (pod.priority, pod.status.nominated_node_name) == (7, "n1")


def test_null_is_absent() -> None:
    pod = decode_object(
        {**raw_pod(tolerations=None, priority=None, containers=[{"ports": None}]), "status": None}
    )
    assert pod == decode_object(raw_pod(containers=[{}]))


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        pytest.param({"labels": {"a": None}}, {"a": ""}, id="a label without value is empty"),
        pytest.param(
            {"labels": {2: "x", True: "y", "b": None}}, {"2": "x", "true": "y", "b": ""}, id="odd keys"
        ),
        pytest.param({"labels": None}, {}, id="no labels"),
    ],
)
def test_null_inside_a_map_is_an_entry(metadata: Mapping[str, Any], labels: dict[str, str]) -> None:
    node = decode_object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", **metadata}})
    assert node is not None
    assert node.labels == labels


def test_a_request_for_null_is_a_request_for_zero() -> None:
    pod = decode_object(raw_pod(containers=[{"resources": {"requests": {"cpu": None}}}]))
    assert isinstance(pod, Pod)
    assert pod.spec.containers[0].resources.requests == {"cpu": "0"}


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        pytest.param(
            raw_pod(priority="high"),
            DecodeError,
            "f:3: Pod shop/web: spec.priority: expected an integer, got a string",
            id="text for a number",
        ),
        pytest.param(
            raw_pod(hostNetwork="true"),
            DecodeError,
            "f:3: Pod shop/web: spec.hostNetwork: expected true or false, got a string",
            id="text for truth",
        ),
        pytest.param(
            raw_pod(containers={"name": "a"}),
            DecodeError,
            "f:3: Pod shop/web: spec.containers: expected a list, got a mapping",
            id="a mapping for a list",
        ),
        pytest.param(
            raw_pod(containers=[{}, {"ports": [{"hostPort": 1.5}]}]),
            DecodeError,
            "f:3: Pod shop/web: spec.containers[1].ports[0].hostPort: expected an integer, got a number",
            id="deep inside",
        ),
        pytest.param(
            raw_pod(nodeSelector={"a": "x", "b": 1}),
            DecodeError,
            "f:3: Pod shop/web: spec.nodeSelector[b]: expected a string, got an integer",
            id="an entry of a map is named",
        ),
        pytest.param(
            raw_pod(overhead={"cpu": "1", "memory": [1]}),
            DecodeError,
            "f:3: Pod shop/web: spec.overhead[memory]: expected a number or a string, got a list",
            id="a list for a quantity",
        ),
        pytest.param(
            raw_pod(overhead={"cpu": True}),
            DecodeError,
            "f:3: Pod shop/web: spec.overhead[cpu]: expected a number or a string, got true or false",
            id="truth for a quantity",
        ),
        pytest.param(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web", "creationTimestamp": "yesterday"},
            },
            DecodeError,
            "f:3: Pod web: metadata.creationTimestamp: expected a time such as 2026-01-31T12:00:00Z",
            id="an invalid time",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "metadata": "web"},
            DecodeError,
            "f:3: Pod: metadata: expected a mapping, got a string",
            id="invalid metadata",
        ),
        pytest.param(
            {"metadata": {"name": "web"}}, DecodeError, "f:3: web: kind: it is missing", id="no kind"
        ),
        pytest.param(
            {"kind": 5}, DecodeError, "f:3: kind: expected a string, got an integer", id="a kind in numbers"
        ),
        pytest.param(
            raw_pod(containers=[{"resources": {"requests": {"cpu": "1x"}}}]),
            QuantityError,
            'f:3: Pod shop/web: spec.containers[0].resources.requests[cpu]: "1x" is not a quantity',
            id="an invalid quantity",
        ),
        pytest.param(
            raw_pod(
                topologySpreadConstraints=[{"labelSelector": {"matchExpressions": [{"operator": "Like"}]}}]
            ),
            SelectorError,
            "f:3: Pod shop/web: spec.topologySpreadConstraints[0].labelSelector: ",
            id="an invalid selector",
        ),
    ],
)
def test_what_is_wrong_is_named(raw: dict[str, Any], kind: type[InputError], message: str) -> None:
    with pytest.raises(kind) as caught:
        decode_object(raw, source="f", line=3)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        pytest.param(None, [], id="nothing"),
        pytest.param(raw_pod(), ["web"], id="one object"),
        pytest.param(
            {
                "kind": "List",
                "items": [raw_pod(), {"kind": "Secret"}, {"kind": "Node", "metadata": {"name": "n"}}],
            },
            ["web", "n"],
            id="a list of several kinds",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]},
            ["a"],
            id="a list whose items have no kind",
        ),
        pytest.param({"apiVersion": "v1", "kind": "PodList", "items": None}, [], id="an empty list"),
        pytest.param(
            {"kind": "List", "items": [{"kind": "List", "items": [raw_pod()]}]}, ["web"], id="a list of lists"
        ),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "WatchList"}, [], id="a kind that sounds like a list"
        ),
    ],
)
def test_lists(raw: object, names: list[str]) -> None:
    assert [obj.name for obj in decode_all(raw)] == names


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(
            [raw_pod()],
            "expected an API object (a mapping with apiVersion and kind), got a list",
            id="a list",
        ),
        pytest.param(
            "x", "expected an API object (a mapping with apiVersion and kind), got a string", id="text"
        ),
        pytest.param(
            {"kind": "List", "items": {}}, "List: items: expected a list, got a mapping", id="odd items"
        ),
        pytest.param({"kind": "List", "items": [5]}, "expected an API object", id="an odd item"),
    ],
)
def test_what_is_no_object(raw: object, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_all(raw)
    assert str(caught.value).startswith(message)


def test_json_of_a_known_kind() -> None:
    pod = decode_json(KINDS["Pod"], b'{"metadata": {"name": "a", "labels": null}, "spec": {"priority": 3}}')
    assert isinstance(pod, Pod)
    assert (pod.name, pod.labels, pod.priority) == ("a", {}, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"{", "Pod: invalid JSON: ", id="broken"),
        pytest.param(
            b'{"metadata": {"name": "a"}, "spec": {"priority": "x"}}',
            "Pod a: spec.priority: expected an integer, got a string",
            id="a field of the wrong type",
        ),
        pytest.param(b"[]", "Pod: expected a mapping, got a list", id="no object"),
        pytest.param(
            b'{"metadata": {"name": "a"}, "spec": {"tolerations": [null]}}',
            "Pod a: spec.tolerations[0]: ",
            id="a null in a list",
        ),
    ],
)
def test_bad_json(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_json(KINDS["Pod"], data)
    assert str(caught.value).startswith(message)


CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: web
  spec:
    containers:
    - resources:
        requests:
          cpu: 100m
"""


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CLUSTER)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'{"kind": "Namespace", "metadata": {"name": "x"}}'))
    assert [obj.name for obj in read_objects(tmp_path)] == ["n1", "web", "x"]
    assert read_objects(tmp_path / "a.yaml") == parse_objects(CLUSTER.encode())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            "100m", "1x", 'f:16: Pod web: spec.containers[0].resources.requests[cpu]: "1x"', id="a quantity"
        ),
        pytest.param(
            "100m", "[1]", "f:16: Pod web: spec.containers[0].resources.requests[cpu]: exp", id="a type"
        ),
        pytest.param(
            "cpu:", "cpu: 1\n          cpu:", 'f:17: the key "cpu" occurs twice', id="a key that occurs twice"
        ),
        pytest.param(
            "name: web", "name: ''", "f:11: Pod: metadata.name: the object has no name", id="no name"
        ),
        pytest.param("kind: Pod", "kind: ''", "f:9: web: kind: it is missing", id="no kind"),
        pytest.param("- api", "- x\n- api", "f:5: expected an API object", id="something else in a list"),
        pytest.param("web\n", "web\n  - x\n", "f:12: this is not YAML: while", id="broken YAML"),
    ],
)
def test_errors_in_files_have_lines(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_objects(CLUSTER.replace(old, new, 1).encode(), "f")
    assert str(caught.value).startswith(message)


def test_an_object_that_occurs_twice_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CLUSTER)
    (tmp_path / "b.yaml").write_text("\nkind: Pod\nmetadata: {name: web, namespace: default}")
    with pytest.raises(DecodeError) as caught:
        read_objects(tmp_path)
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    assert str(caught.value) == f"{second}:2: Pod default/web: the object occurs twice; first {first}:8"


def test_objects_that_will_get_their_names_later_may_have_equal_names() -> None:
    text = "kind: Pod\nmetadata: {generateName: web-}"
    assert len(parse_objects(f"{text}\n---\n{text}".encode())) == 2


def test_aliases_do_not_multiply_the_work() -> None:
    """Thirty lines that expand to a billion fields are rejected at once, as kubectl does."""
    layers = "\n".join(f"l{i}: &l{i} {{a: *l{i - 1}, b: *l{i - 1}}}" for i in range(1, 31))
    text = f"kind: Pod\nmetadata: {{name: web, labels: null}}\nl0: &l0 {{x: null}}\n{layers}"
    with pytest.raises(DecodeError, match="too many values; do aliases multiply"):
        parse_objects(text.encode())


def test_an_object_inside_itself_is_rejected() -> None:
    metadata: dict[str, Any] = {"name": "web"}
    metadata["labels"] = metadata
    with pytest.raises(DecodeError, match="web: it is nested too deeply, or contains itself"):
        decode_object({"kind": "Pod", "metadata": metadata})
