"""The messages of the extender protocol, in both directions.

What we write has capitalised keys, all of them, with `null` for what is not set. Pods and Nodes in them are
encoded before (`node_json.py`) and only copied. What we read may be spelled in many ways (`reading.py`); the
two answers that can be large have a fast path for the usual spelling.

This module does not know which extender sent a message: `extender.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
from msgspec import Raw

from bayplan.extender.reading import checked, decoded, in_any_case, members, mismatch, read

_ENCODER: Final = msgspec.json.Encoder()
_RAW_LIST: Final = msgspec.json.Decoder(list[Raw])


class Message(msgspec.Struct, frozen=True, rename="pascal"):
    """Base class of what we write: keys as the protocol capitalises them, none omitted."""

    def encode(self) -> bytes:
        return _ENCODER.encode(self)


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes as the API lists them."""

    metadata: dict[str, str] = {}
    items: Sequence[Raw]


class ExtenderArgs(Message, frozen=True):
    """The request of filter and prioritize. Either `nodes` or `node_names` is set."""

    pod: Raw
    nodes: NodeList | None = None
    node_names: Sequence[str] | None = None


class Victims(Message, frozen=True):
    """Pods that would be evicted from a node, for extenders that are not nodeCacheCapable."""

    pods: Sequence[Raw]
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class MetaPod(Message, frozen=True):
    uid: str = msgspec.field(name="UID")


class MetaVictims(Message, frozen=True):
    """The same pods, by uid."""

    pods: Sequence[MetaPod]
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class ExtenderPreemptionArgs(Message, frozen=True):
    """The request of preempt. One of the two maps is set."""

    pod: Raw
    node_name_to_victims: Mapping[str, Victims] | None = None
    node_name_to_meta_victims: Mapping[str, MetaVictims] | None = None


class ExtenderBindingArgs(Message, frozen=True):
    """The request to bind a pod."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """The answer to filter. Of whole Nodes only the names are read."""

    nodes: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: dict[str, str] = field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[str, str] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def decode(cls, data: bytes) -> ExtenderFilterResult:
        return read(data, cls._decode)

    @classmethod
    def _decode(cls, data: bytes) -> ExtenderFilterResult:
        keys = members(data, "")
        nodes = keys.get("nodes")
        return cls(
            nodes=None if nodes is None else _names_of_nodes(nodes),
            node_names=_strings(keys, "NodeNames"),
            failed_nodes=_messages(keys, "FailedNodes"),
            failed_and_unresolvable_nodes=_messages(keys, "FailedAndUnresolvableNodes"),
            error=_error(keys),
        )


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    host: str
    score: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


@dataclass(frozen=True, slots=True)
class HostPriorityList:
    """The answer to prioritize: a bare array."""

    entries: tuple[HostPriority, ...] = ()

    @classmethod
    def decode(cls, data: bytes) -> HostPriorityList:
        return read(data, cls._decode)

    @classmethod
    def _decode(cls, data: bytes) -> HostPriorityList:
        try:
            return cls(_USUAL_PRIORITIES.decode(data))
        except msgspec.ValidationError:
            entries = checked(msgspec.json.decode(data), list, "") or ()
            return cls(tuple(_host_priority(entry, f"[{i}]") for i, entry in enumerate(entries)))


@dataclass(frozen=True, slots=True)
class VictimUIDs:
    """The remaining victims of a node."""

    uids: tuple[str, ...] = ()
    num_pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class ExtenderPreemptionResult:
    """The answer to preempt, by node name in the order of the answer."""

    node_name_to_meta_victims: dict[str, VictimUIDs] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> ExtenderPreemptionResult:
        return read(data, cls._decode)

    @classmethod
    def _decode(cls, data: bytes) -> ExtenderPreemptionResult:
        name = "NodeNameToMetaVictims"
        victims = checked(decoded(members(data, ""), name), dict, name) or {}
        return cls({node: _victim_uids(left, f"{name}[{node}]") for node, left in victims.items()})


@dataclass(frozen=True, slots=True)
class ExtenderBindingResult:
    """The answer to bind: an error, or empty."""

    error: str = ""

    @classmethod
    def decode(cls, data: bytes) -> ExtenderBindingResult:
        return read(data, lambda answer: cls(_error(members(answer, ""))))


class _NamedMeta(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]


class _NamedNode(msgspec.Struct, frozen=True):
    metadata: _NamedMeta


class _NamedNodes(msgspec.Struct, frozen=True):
    """Nodes spelled as the API does, each with a name; everything else, which can be megabytes, is
    skipped."""

    items: list[_NamedNode]


_USUAL_NODES: Final = msgspec.json.Decoder(_NamedNodes)
_USUAL_PRIORITIES: Final = msgspec.json.Decoder(tuple[HostPriority, ...])


def _names_of_nodes(nodes: Raw) -> tuple[str, ...]:
    try:
        return tuple([node.metadata.name for node in _USUAL_NODES.decode(nodes).items])
    except msgspec.ValidationError:
        return _names_in_any_case(nodes)


def _names_in_any_case(nodes: Raw) -> tuple[str, ...]:
    items = members(nodes, "Nodes").get("items")
    if items is None:
        return ()
    try:
        raws = _RAW_LIST.decode(items)
    except msgspec.ValidationError as error:
        raise mismatch(msgspec.json.decode(items), list, "Nodes.items") from error
    names: list[str] = []
    for i, node in enumerate(raws):
        place = f"Nodes.items[{i}]"
        metadata = members(node, place).get("metadata")
        keys = {} if metadata is None else members(metadata, f"{place}.metadata")
        names.append(checked(decoded(keys, "name"), str, f"{place}.metadata.name") or "")
    return tuple(names)


def _strings(keys: Mapping[str, Raw], name: str) -> tuple[str, ...] | None:
    values = checked(decoded(keys, name), list, name)
    if values is None:
        return None
    return tuple(
        value if type(value) is str else checked(value, str, f"{name}[{i}]") or ""
        for i, value in enumerate(values)
    )


def _messages(keys: Mapping[str, Raw], name: str) -> dict[str, str]:
    messages = checked(decoded(keys, name), dict, name) or {}
    return {node: checked(text, str, f"{name}[{node}]") or "" for node, text in messages.items()}


def _error(keys: Mapping[str, Raw]) -> str:
    return checked(decoded(keys, "Error"), str, "Error") or ""


def _host_priority(entry: Any, place: str) -> HostPriority:
    keys = in_any_case(entry, place)
    return HostPriority(
        checked(keys.get("host"), str, f"{place}.Host") or "",
        checked(keys.get("score"), int, f"{place}.Score") or 0,
    )


def _victim_uids(left: Any, place: str) -> VictimUIDs:
    keys = in_any_case(left, place)
    pods = checked(keys.get("pods"), list, f"{place}.Pods") or ()
    uids = (
        checked(in_any_case(pod, f"{place}.Pods[{i}]").get("uid"), str, f"{place}.Pods[{i}].UID") or ""
        for i, pod in enumerate(pods)
    )
    violations = checked(keys.get("numpdbviolations"), int, f"{place}.NumPDBViolations") or 0
    return VictimUIDs(tuple(uids), violations)
