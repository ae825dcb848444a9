"""What fields there are: cleaning objects, canonical quantities, and protobuf."""

from __future__ import annotations

import struct
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.documents import read_documents
from bayplan.api.quantity import canonical_quantity
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.embedded.server.catalog import Catalog, UnknownKindError
from bayplan.embedded.server.http.discovery import REVIEWS
from bayplan.embedded.server.kinds import BUILT_IN, LEASES, POD_DISRUPTION_BUDGETS, PODS, Resource
from bayplan.embedded.server.schema.protobuf import (
    MAGIC,
    ProtobufError,
    decode_protobuf,
    encode_protobuf,
)
from bayplan.embedded.server.schema.types import (
    NEWEST,
    TypeMismatchError,
    all_types,
    clean,
    described,
    description,
    named_type,
    type_of,
)


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda resource: resource.full_name)
def test_every_kind_has_its_fields(resource: Any) -> None:
    """At least those that all objects have."""
    fields = type_of(resource).fields or {}
    assert {"apiVersion", "kind", "metadata"} <= fields.keys()


@pytest.mark.parametrize("name", list(described()))
def test_what_is_described_is_there(name: str) -> None:
    """A field that was renamed, or misspelt, would not be described."""
    of, _, field_name = name.partition(".")
    if of == "*":
        assert any(field_name in (each.fields or {}) for each in all_types(NEWEST))
    else:
        assert not field_name or field_name in (named_type(of, NEWEST).fields or {})
    assert description(of, field_name).endswith(".")


def test_unknown_fields_are_named_and_left_out() -> None:
    pod = {"spec": {"containers": [{"name": "c", "colour": "red"}]}, "mood": {"good": True}}
    cleaned, unknown = clean(pod, type_of(PODS))
    assert cleaned == {"spec": {"containers": [{"name": "c"}]}}
    assert unknown == ["spec.containers[0].colour", "mood"]


@pytest.mark.parametrize(
    ("release", "unknown"), [(V1_36, ["spec.volumes[0].emptyDir.mode"]), (V1_37, [])], ids=str
)
def test_fields_are_those_of_the_release(release: Release, unknown: list[str]) -> None:
    pods = Catalog(release=release).of_kind("v1", "Pod")
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {"mode": 511}}]}}
    assert clean(pod, type_of(pods))[1] == unknown


def test_nulls_are_nothing() -> None:
    """`kubectl create --dry-run -o yaml` writes them."""
    pod = {"metadata": {"name": "a", "creationTimestamp": None}, "spec": {"nodeSelector": {"a": None}}}
    cleaned, _ = clean(pod, type_of(PODS))
    assert cleaned == {"metadata": {"name": "a"}, "spec": {"nodeSelector": {"a": ""}}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"priority": "1"}, "string into Go struct field PodSpec.spec.priority of type int32", id="text"
        ),
        pytest.param(
            {"priority": 2**31},
            "number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
            id="big",
        ),
        pytest.param(
            {"hostNetwork": 1}, "number into Go struct field PodSpec.spec.hostNetwork of type bool", id="bool"
        ),
        pytest.param(
            {"containers": {}},
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
            id="list",
        ),
        pytest.param(
            {"affinity": []},
            "array into Go struct field PodSpec.spec.affinity of type v1.Affinity",
            id="struct",
        ),
        pytest.param(
            {"nodeSelector": "x"},
            "string into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
            id="map",
        ),
    ],
)
def test_wrong_types_are_reported_in_gos_words(spec: Any, message: str) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        clean({"spec": spec}, type_of(PODS))
    assert str(caught.value) == f"json: cannot unmarshal {message}"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("512", "512"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("0", "0"),
        ("1e3", "1e3"),
        ("1E", "1E"),
        (3, "3"),
        (0.1, "100m"),
        ("-1500m", "-1500m"),
        ("100Mi", "100Mi"),
        ("512Ki", "512Ki"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
    ],
)
def test_quantities_are_written_as_a_server_writes_them(written: Any, canonical: str) -> None:
    assert canonical_quantity(written) == canonical


NO_DAY = "2025-02-29T00:00:00Z"


@pytest.mark.parametrize(
    ("resource", "content"),
    [
        (PODS, {"metadata": {"creationTimestamp": NO_DAY}}),
        (PODS, {"status": {"startTime": NO_DAY}}),
        (PODS, {"status": {"conditions": [{"lastTransitionTime": NO_DAY}]}}),
        (POD_DISRUPTION_BUDGETS, {"status": {"disruptedPods": {"p": NO_DAY}}}),
        (LEASES, {"spec": {"renewTime": "2025-02-29T00:00:00.000000Z"}}),
    ],
)
def test_days_that_do_not_exist_are_rejected_everywhere(resource: Resource, content: Any) -> None:
    with pytest.raises(TypeMismatchError, match=r'parsing time ".*": day out of range'):
        clean(content, type_of(resource))


def test_times_are_kept_in_utc() -> None:
    pod = {"metadata": {"creationTimestamp": "2027-01-15T08:00:00.5+02:00"}, "status": {"startTime": ZERO}}
    kept = {"metadata": {"creationTimestamp": "2027-01-15T06:00:00Z"}, "status": {}}
    assert clean(pod, type_of(PODS)) == (kept, [])


ZERO = "0001-01-01T00:00:00Z"
"""Go's zero time: there is none."""


def test_a_whole_number_written_as_a_fraction_is_none() -> None:
    for number in (1e3, 1e300):
        with pytest.raises(TypeMismatchError, match="cannot unmarshal number 1"):
            clean({"spec": {"terminationGracePeriodSeconds": number}}, type_of(PODS))


# Protobuf: written by hand, as Go's encoder writes it


def number(count: int) -> bytes:
    made = b""
    while count > 0x7F:
        made += bytes([count & 0x7F | 0x80])
        count >>= 7
    return made + bytes([count])


def field(tag: int, content: str | bytes) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return number(tag << 3 | 2) + number(len(data)) + data


def integer(tag: int, count: int) -> bytes:
    return number(tag << 3) + number(count % (1 << 64))


def enveloped(api_version: str, kind: str, raw: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def test_a_pod_in_protobuf() -> None:
    """Names, numbers, lists, maps, quantities and ports by name; what is empty is absent."""
    resources = field(8, field(2, field(1, "cpu") + field(2, field(1, "100m"))))
    probe = field(10, field(1, field(2, field(1, "/ready") + field(2, integer(1, 1) + field(3, "http")))))
    container = field(1, "c") + field(2, "nginx") + field(5, "") + resources + probe
    meta = field(1, "web") + field(2, "") + field(8, b"") + field(11, field(1, "app") + field(2, "web"))
    spec = field(2, container) + integer(4, 30) + field(10, "") + integer(25, -5) + integer(11, 0)
    decoded = decode_protobuf(enveloped("v1", "Pod", field(1, meta) + field(2, spec) + field(3, b"")))
    assert decoded == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "nginx",
                    "resources": {"requests": {"cpu": "100m"}},
                    "livenessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                }
            ],
            "terminationGracePeriodSeconds": 30,
            "priority": -5,
        },
    }


def test_zero_is_kept_where_it_is_not_the_same_as_absent() -> None:
    """A deployment of 0 replicas is not one without a number."""
    decoded = decode_protobuf(enveloped("apps/v1", "Deployment", field(2, integer(1, 0) + integer(5, 0))))
    assert decoded["spec"] == {"replicas": 0}


def test_times_and_secrets_in_protobuf() -> None:
    moment = field(2, integer(1, 1_800_000_000) + integer(2, 5_000))
    lease = decode_protobuf(enveloped("coordination.k8s.io/v1", "Lease", field(2, field(4, moment[2:]))))
    assert lease["spec"] == {"renewTime": "2027-01-15T08:00:00.000005Z"}
    secret = decode_protobuf(enveloped("v1", "Secret", field(2, field(1, "key") + field(2, b"\x00\xff"))))
    assert secret["data"] == {"key": "AP8="}


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 10**12])
def test_times_out_of_range_in_protobuf(seconds: int) -> None:
    raw = field(2, field(4, integer(1, seconds)))
    with pytest.raises(ProtobufError, match="cannot be read"):
        decode_protobuf(enveloped("coordination.k8s.io/v1", "Lease", raw))


def test_a_list_in_a_map_in_protobuf() -> None:
    """As reviews of access have it: a map of lists of texts."""
    extra = field(5, field(1, "scopes") + field(2, field(1, "a") + field(1, "b")))
    body = enveloped("authorization.k8s.io/v1", "SubjectAccessReview", field(2, field(3, "anna") + extra))
    assert decode_protobuf(body)["spec"] == {"user": "anna", "extra": {"scopes": ["a", "b"]}}


@pytest.mark.parametrize("resource", [*BUILT_IN, *REVIEWS.values()], ids=lambda resource: resource.full_name)
def test_every_kind_can_be_sent_in_protobuf(resource: Any) -> None:
    """kubectl sends all built-in kinds so, `auth can-i --list` among them."""
    body = enveloped(resource.api_version, resource.kind, field(1, field(1, "x")))
    assert decode_protobuf(body)["metadata"] == {"name": "x"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="no magic"),
        pytest.param(MAGIC, id="nothing behind it"),
        pytest.param(MAGIC + b"\xff" * 20, id="nonsense"),
        pytest.param(enveloped("v1", "Pod", b"\x0a\x7f"), id="cut off"),
        pytest.param(enveloped("v1", "Pod", struct.pack("<B", 0x0B)), id="an unknown wire type"),
        pytest.param(enveloped("v1", "Unknown", b""), id="an unknown kind"),
    ],
)
def test_broken_protobuf_is_an_error(body: bytes) -> None:
    """And nothing worse."""
    with pytest.raises(ProtobufError):
        decode_protobuf(body)


DEFINITION = b64decode(
    """
    azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEuYGCiEKEWdhbmdzLmV4
    YW1wbGUuY29tEgAaACIAKgAyADgAQgASsgYKC2V4YW1wbGUuY29tGhUKBWdhbmdzEgAaAmdnIgRHYW5nKgAiCk5hbWVzcGFj
    ZWQ6/QUKAnYxEAEYASKtBQqqBQoAEgAiACoGb2JqZWN0MgA6AFAAYAB6AJABAOoBoQQKBHNwZWMSmAQKABIAIgAqBm9iamVj
    dDIAOgBQAGAAegCQAQC6AQRzaXpl6gFECgZjb2xvdXISOgoAEgAiACoGc3RyaW5nMgA6AFAAYAB6AJABAKIBBwoFInJlZCKi
    AQkKByJncmVlbiKoAgC4AgDAAgDqAVkKBmxhYmVscxJPCgASACIAKgZvYmplY3QyADoAUABgAHoAkAEA8gEoCAESJAoAEgAi
    ACoGc3RyaW5nMgA6AFAAYAB6AJABAKgCALgCAMACAKgCALgCAMACAOoBhgEKB21lbWJlcnMSewoAEgAiACoFYXJyYXkyADoA
    UABgAHoAkAEAwgFVClMKABIAIgAqBm9iamVjdDIAOgBQAGAAegCQAQDqASwKBG5hbWUSJAoAEgAiACoGc3RyaW5nMgA6AFAA
    YAB6AJABAKgCALgCAMACAKgCALgCAMACAKgCALgCAMACAOoBLwoEbW9yZRInCgASACIAKgZvYmplY3QyADoAUABgAHoAkAEA
    qAIAsAIBuAIAwAIA6gEnCgVzaGFyZRIeCgASACIAKgAyADoAUABgAHoAkAEAqAIAuAIAwAIB6gFECgRzaXplEjwKABIAIgAq
    B2ludGVnZXIyADoAQgMKATNJAAAAAAAAJUBQAFkAAAAAAADwP2AAegCQAQCoAgC4AgDAAgCoAgC4AgDAAgDiAhoKDXNlbGYu
    c2l6ZSA+IDASBWZhbHNlGgAqAOoBXgoGc3RhdHVzElQKABIAIgAqBm9iamVjdDIAOgBQAGAAegCQAQDqAS0KBHNpemUSJQoA
    EgAiACoHaW50ZWdlcjIAOgBQAGAAegCQAQCoAgC4AgDAAgCoAgC4AgDAAgCoAgC4AgDAAgAqHgoAEhoKCi5zcGVjLnNpemUS
    DC5zdGF0dXMuc2l6ZTIhCgRTaXplEgdpbnRlZ2VyGgAiACgAMgouc3BlYy5zaXplOABQABoMEggKABIAIgAqACAAGgAiAA==
    """
)
"""A CustomResourceDefinition as client-go encodes it."""


def test_a_definition_in_protobuf() -> None:
    decoded = decode_protobuf(DEFINITION)
    (version,) = decoded["spec"]["versions"]
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
    }
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"] == {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10.5, "default": 3},
            "share": {"x-kubernetes-int-or-string": True},
            "colour": {"type": "string", "enum": ["red", "green"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "members": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "more": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-validations": [{"rule": "self.size > 0", "message": "false"}],
    }
    assert decode_protobuf(encode_protobuf(decoded)) == decoded


@pytest.mark.parametrize(
    "content",
    [document.content for document in read_documents(Path(__file__).parent / "manifests/chart.yaml")],
    ids=lambda content: content["kind"],
)
def test_what_is_encoded_is_decoded_again(content: dict[str, Any]) -> None:
    catalog = Catalog()
    try:
        of = type_of(catalog.of_kind(content["apiVersion"], content["kind"]))
    except UnknownKindError:
        pytest.skip("a custom resource")
    cleaned, _ = clean(content, of)
    decoded = decode_protobuf(encode_protobuf(cleaned))
    stored, _ = clean(decoded, of)
    for field_name, part in cleaned.items():
        assert stored.get(field_name) == part


def test_a_list_in_protobuf_has_its_items() -> None:
    pods = [{"metadata": {"name": name}, "spec": {"containers": []}} for name in "ab"]
    content = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": pods}
    parts = encode_protobuf(content)
    assert parts.startswith(MAGIC)
    assert parts.count(field(1, "a")) == parts.count(field(1, "b")) == parts.count(field(2, "7")) == 1
