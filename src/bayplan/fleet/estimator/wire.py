"""The messages of Karmada's scheduler-estimator protocol (proto3), read and written field by field.

There are few of them and they are small, so nothing is generated. Quantities, node selectors and
tolerations are messages of Kubernetes within bytes; Karmada 1.18 also sends them as messages in fields that
1.19 has reserved. Those are read if the new ones are missing, so that both versions are supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.meta import Quantity
from bayplan.embedded.server.schema.protobuf import (
    ProtobufError,
    as_varint,
    bytes_field,
    decode_message,
    read_fields,
)
from bayplan.errors import BayplanError
from bayplan.fleet.karmada.kinds import (
    Component,
    NodeClaim,
    ReplicaRequirements,
    decode_karmada,
)

SERVICE: Final = "github.com.karmada_io.karmada.pkg.estimator.service.Estimator"
OBJECT_KEY: Final = "object"
"""The metadata with the object that replicas are counted for: `kind=Deployment, name=shop/web`."""

Fields = dict[int, list[Any]]
"""The values of a message by field number."""


class WireError(BayplanError):
    """A message cannot be read."""


@dataclass(frozen=True, slots=True)
class AssumedWorkload:
    """A workload that Karmada has placed in the cluster a moment ago: its pods may not exist yet."""

    namespace: str
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class ReplicasRequest:
    cluster: str
    requirements: ReplicaRequirements | None
    assumed: tuple[AssumedWorkload, ...] = ()


@dataclass(frozen=True, slots=True)
class SetsRequest:
    cluster: str
    components: tuple[Component, ...]
    namespace: str
    assumed: tuple[AssumedWorkload, ...] = ()


@dataclass(frozen=True, slots=True)
class UnschedulableRequest:
    cluster: str
    kind: str
    namespace: str
    name: str
    threshold_nanos: int


def decode_replicas_request(data: bytes) -> ReplicasRequest:
    """Raises WireError: it is malformed."""
    found = _fields(data)
    requirements = _last(found, 2, b"")
    return ReplicasRequest(
        _text(found, 1), _requirements(requirements) if 2 in found else None, _assumed(found, 3)
    )


def decode_sets_request(data: bytes) -> SetsRequest:
    """Raises WireError: it is malformed."""
    found = _fields(data)
    components = tuple(_component(one) for one in found.get(2, ()))
    return SetsRequest(_text(found, 1), components, _text(found, 3), _assumed(found, 4))


def decode_unschedulable_request(data: bytes) -> UnschedulableRequest:
    """Raises WireError: it is malformed."""
    found = _fields(data)
    reference = _fields(_last(found, 2, b""))
    threshold = int(_last(found, 3, 0))
    if threshold >= 2**63:  # int64 is written as its two's complement
        threshold -= 2**64
    return UnschedulableRequest(
        _text(found, 1), _text(reference, 2), _text(reference, 3), _text(reference, 4), threshold
    )


def encode_count(count: int) -> bytes:
    """The response of every call: one int32 in field 1, absent if it is zero."""
    return b"" if not count else as_varint(1 << 3) + as_varint(count % 2**64)


def decode_count(data: bytes) -> int:
    """The same for a client. Raises WireError: it is malformed."""
    number = int(_last(_fields(data), 1, 0)) % 2**32
    return number - 2**32 if number >= 2**31 else number


# Parts of messages


def _requirements(data: bytes, *, of_component: bool = False) -> ReplicaRequirements:
    """ReplicaRequirements, or ComponentReplicaRequirements, which have no namespace."""
    found = _fields(data)
    priority_class, request = (3, 4) if of_component else (4, 5)
    requests = _quantities(found, request) or _quantities(found, 2)
    return ReplicaRequirements(
        node_claim=_node_claim(_last(found, 1, b"")) if 1 in found else None,
        resource_request=requests,
        namespace="" if of_component else _text(found, 3),
        priority_class_name=_text(found, priority_class),
    )


def _quantities(found: Fields, number: int) -> dict[str, Quantity]:
    """A map of names to messages Quantity, which have a text in field 1."""
    amounts: dict[str, Quantity] = {}
    for entry in found.get(number, ()):
        parts = _fields(entry)
        amounts[_text(parts, 1)] = _text(_fields(_last(parts, 2, b"")), 1) or "0"
    return amounts


def _node_claim(data: bytes) -> NodeClaim:
    found = _fields(data)
    entries = [_fields(entry) for entry in found.get(2, ())]
    affinity = _last(found, 4, b"") or _last(found, 1, b"")
    tolerations = found.get(5) or found.get(3) or []
    content: dict[str, Any] = {
        "nodeSelector": {_text(entry, 1): _text(entry, 2) for entry in entries},
        "tolerations": [_kubernetes("Toleration", one) for one in tolerations],
    }
    if affinity:
        content["hardNodeAffinity"] = _kubernetes("NodeSelector", affinity)
    return decode_karmada(NodeClaim, content)


def _component(data: bytes) -> Component:
    found = _fields(data)
    requirements = _requirements(_last(found, 2, b""), of_component=True) if 2 in found else None
    return Component(
        name=_text(found, 1), replica_requirements=requirements, replicas=int(_last(found, 3, 0))
    )


def _assumed(found: Fields, number: int) -> tuple[AssumedWorkload, ...]:
    workloads = [_fields(one) for one in found.get(number, ())]
    return tuple(
        AssumedWorkload(_text(one, 1), tuple(_component(part) for part in one.get(2, ())))
        for one in workloads
    )


def _kubernetes(name: str, data: bytes) -> dict[str, Any]:
    try:
        return decode_message(name, data)
    except ProtobufError as error:
        raise WireError(str(error)) from error


def _fields(data: Any) -> Fields:
    if not isinstance(data, bytes):
        raise WireError("a number where a message should be")
    found: Fields = {}
    try:
        for number, value in read_fields(data):
            found.setdefault(number, []).append(value)
    except IndexError as error:
        raise WireError(f"the message cannot be read: {error}") from error
    return found


def _last(found: Fields, number: int, default: Any) -> Any:
    return found[number][-1] if number in found else default


def _text(found: Fields, number: int) -> str:
    raw = _last(found, number, b"")
    try:
        return bytes(raw).decode()
    except (UnicodeDecodeError, TypeError) as error:
        raise WireError(f"field {number} is not text") from error


# What a client sends, for tests and for trying a server


def encode_replicas_request(
    cluster: str, requests: Mapping[str, str], *, node_selector: Mapping[str, str] | None = None
) -> bytes:
    """A request for replicas with these requests, as Karmada 1.19 sends it."""
    amounts = b"".join(
        bytes_field(5, bytes_field(1, name.encode()) + bytes_field(2, bytes_field(1, quantity.encode())))
        for name, quantity in requests.items()
    )
    claim = b"".join(
        bytes_field(2, bytes_field(1, key.encode()) + bytes_field(2, value.encode()))
        for key, value in (node_selector or {}).items()
    )
    return bytes_field(1, cluster.encode()) + bytes_field(
        2, (bytes_field(1, claim) if claim else b"") + amounts
    )
