"""The messages of the extender protocol: ours written, theirs read.

What we write has capitalised keys, all of them, with `null` for what is not set. Pods and Nodes inside are
JSON that was made before (`node_json.py`) and is only copied. What we read is forgiving the way Go's decoder
is, because extenders were written against it: keys match in any case, unknown ones are ignored, null stands
for "nothing", and what follows the first JSON value does not count. A value of the wrong type is an error
that names its field, in our own words.

Nothing here knows who sent a message: `extender.py` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from bayplan.extender.errors import MalformedAnswerError

_INT64: Final = range(-(2**63), 2**63)
_RAW_LIST: Final = msgspec.json.Decoder(list[Raw])
_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = b"null"
_BROKEN: Final = (ValueError, RecursionError)
"""What decoders raise for broken JSON: msgspec's and json's errors are ValueErrors, as is broken UTF-8."""

AnswerT = TypeVar("AnswerT")


class Message(msgspec.Struct, frozen=True, rename="pascal"):
    """Base of what we write: keys as the protocol capitalises them, none left out."""

    def encode(self) -> bytes:
        return _ENCODER.encode(self)


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes as the API lists them."""

    metadata: dict[str, str] = {}
    items: Sequence[Raw]


class ExtenderArgs(Message, frozen=True):
    """The question of filter and prioritize. One of `nodes` and `node_names` is set."""

    pod: Raw
    nodes: NodeList | None = None
    node_names: Sequence[str] | None = None


class Victims(Message, frozen=True):
    """Pods that would be evicted from a node, for extenders without a cache of their own."""

    pods: Sequence[Raw]
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class MetaPod(Message, frozen=True):
    uid: str = msgspec.field(name="UID")


class MetaVictims(Message, frozen=True):
    """The same pods, by uid."""

    pods: Sequence[MetaPod]
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class ExtenderPreemptionArgs(Message, frozen=True):
    """The question of preempt. One of the two maps is set."""

    pod: Raw
    node_name_to_victims: Mapping[str, Victims] | None = None
    node_name_to_meta_victims: Mapping[str, MetaVictims] | None = None


class ExtenderBindingArgs(Message, frozen=True):
    """The order to bind a pod."""

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
        return _read(data, cls._decode)

    @classmethod
    def _decode(cls, data: bytes) -> ExtenderFilterResult:
        keys = _known(_object(data, ""))
        nodes = keys.get("nodes")
        return cls(
            nodes=None if nodes is None else _names_of_nodes(nodes),
            node_names=_strings(keys, "NodeNames"),
            failed_nodes=_messages(keys, "FailedNodes"),
            failed_and_unresolvable_nodes=_messages(keys, "FailedAndUnresolvableNodes"),
            error=_error(keys),
        )


@dataclass(frozen=True, slots=True)
class HostPriority:
    host: str
    score: int


@dataclass(frozen=True, slots=True)
class HostPriorityList:
    """The answer to prioritize: a bare array."""

    entries: tuple[HostPriority, ...] = ()

    @classmethod
    def decode(cls, data: bytes) -> HostPriorityList:
        entries = _checked(_read(data, msgspec.json.decode), list, "") or ()
        return cls(tuple(_host_priority(entry, f"[{i}]") for i, entry in enumerate(entries)))


@dataclass(frozen=True, slots=True)
class VictimUIDs:
    """What is left of a node's victims."""

    uids: tuple[str, ...] = ()
    num_pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class ExtenderPreemptionResult:
    """The answer to preempt, by node name in the order of the answer."""

    node_name_to_meta_victims: dict[str, VictimUIDs] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> ExtenderPreemptionResult:
        return _read(data, cls._decode)

    @classmethod
    def _decode(cls, data: bytes) -> ExtenderPreemptionResult:
        name = "NodeNameToMetaVictims"
        keys = _known(_object(data, ""))
        victims = _checked(_plain(keys, name), dict, name) or {}
        return cls({node: _victim_uids(left, f"{name}[{node}]") for node, left in victims.items()})


@dataclass(frozen=True, slots=True)
class ExtenderBindingResult:
    """The answer to bind: an error, or none."""

    error: str = ""

    @classmethod
    def decode(cls, data: bytes) -> ExtenderBindingResult:
        return cls(_read(data, lambda answer: _error(_known(_object(answer, "")))))


def _read(data: bytes, read: Callable[[bytes], AnswerT]) -> AnswerT:
    """What `read` makes of an answer, or of its first JSON value where something follows that.

    (A handler that forgets to return after writing an error writes two, and kube-scheduler does not mind.)
    """
    try:
        return read(data)
    except _BROKEN as error:
        try:
            return read(_first_value(data))
        except _BROKEN:
            raise MalformedAnswerError("", f"the answer is not JSON: {_why(data, error)}") from error


def _first_value(data: bytes) -> bytes:
    """Without what follows it, and with a replacement character for bytes that are no UTF-8, as in Go."""
    text = data.decode(errors="replace").lstrip(" \t\r\n")
    return text[: json.JSONDecoder().raw_decode(text)[1]].encode()


def _why(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "it is empty"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _object(data: bytes | Raw, name: str) -> dict[str, Raw]:
    """The entries of a JSON object, undecoded; null has none."""
    try:
        return {} if bytes(data).strip() == _NULL else _RAW_OBJECT.decode(data)
    except msgspec.ValidationError as error:
        raise _mismatch(msgspec.json.decode(data), dict, name) from error


def _known(entries: Mapping[str, Raw]) -> dict[str, Raw]:
    """The entries under lower-case keys, without those that are null. The last of several spellings wins."""
    return {key.lower(): value for key, value in entries.items() if bytes(value) != _NULL}


def _plain(keys: Mapping[str, Raw], name: str) -> Any:
    raw = keys.get(name.lower())
    return None if raw is None else msgspec.json.decode(raw)


def _strings(keys: Mapping[str, Raw], name: str) -> tuple[str, ...] | None:
    values = _checked(_plain(keys, name), list, name)
    if values is None:
        return None
    return tuple(
        value if type(value) is str else _checked(value, str, f"{name}[{i}]") or ""
        for i, value in enumerate(values)
    )


def _messages(keys: Mapping[str, Raw], name: str) -> dict[str, str]:
    messages = _checked(_plain(keys, name), dict, name) or {}
    return {node: _checked(text, str, f"{name}[{node}]") or "" for node, text in messages.items()}


def _error(keys: Mapping[str, Raw]) -> str:
    return _checked(_plain(keys, "Error"), str, "Error") or ""


def _names_of_nodes(nodes: Raw) -> tuple[str, ...]:
    """Names of the Nodes in a NodeList; the rest of them, which can be megabytes, is skipped over."""
    items = _known(_object(nodes, "Nodes")).get("items")
    if items is None:
        return ()
    try:
        raws = _RAW_LIST.decode(items)
    except msgspec.ValidationError as error:
        raise _mismatch(msgspec.json.decode(items), list, "Nodes.items") from error
    names: list[str] = []
    for i, node in enumerate(raws):
        place = f"Nodes.items[{i}]"
        metadata = _known(_object(node, place)).get("metadata")
        keys = {} if metadata is None else _known(_object(metadata, f"{place}.metadata"))
        names.append(_checked(_plain(keys, "name"), str, f"{place}.metadata.name") or "")
    return tuple(names)


def _host_priority(entry: Any, place: str) -> HostPriority:
    keys = _any_case(entry, place)
    return HostPriority(
        _checked(keys.get("host"), str, f"{place}.Host") or "",
        _checked(keys.get("score"), int, f"{place}.Score") or 0,
    )


def _victim_uids(left: Any, place: str) -> VictimUIDs:
    keys = _any_case(left, place)
    pods = _checked(keys.get("pods"), list, f"{place}.Pods") or ()
    uids = (
        _checked(_any_case(pod, f"{place}.Pods[{i}]").get("uid"), str, f"{place}.Pods[{i}].UID") or ""
        for i, pod in enumerate(pods)
    )
    violations = _checked(keys.get("numpdbviolations"), int, f"{place}.NumPDBViolations") or 0
    return VictimUIDs(tuple(uids), violations)


def _any_case(value: Any, place: str) -> dict[str, Any]:
    entries = _checked(value, dict, place) or {}
    return {key.lower(): entry for key, entry in entries.items() if entry is not None}


def _checked(value: Any, wanted: type, place: str) -> Any:
    """The value, if it is null or of the type that the protocol gives it."""
    if value is None or type(value) is wanted:
        if wanted is int and value is not None and value not in _INT64:
            raise MalformedAnswerError(place, f"{value} does not fit into 64 bits")
        return value
    raise _mismatch(value, wanted, place)


_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number with a fraction",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _mismatch(value: Any, wanted: type, place: str) -> MalformedAnswerError:
    actual = _TYPE_NAMES.get(type(value), "null")
    return MalformedAnswerError(place, f"expected {_TYPE_NAMES[wanted]}, got {actual}")
