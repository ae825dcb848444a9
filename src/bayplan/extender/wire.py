"""The messages of the extender protocol, in both directions.

What we write has capitalised keys, all of them, with `null` for what is not set. An extender that is not
nodeCacheCapable gets every feasible node for every pod, which is megabytes of JSON. Nodes rarely change
between two pods, so a node is encoded once per Node object and then only copied (`NodeJSON`). Our records
have only the fields that scheduling reads, and an extender gets only these.

What we read is decoded the way Go's decoder does, because extenders were written against it: keys match in
any case, unknown ones are ignored, null means absent, and anything after the first JSON value is ignored. A
value of the wrong type is an error that names its field, in our own words. The two answers that can be large
have a fast path for the usual spelling.

This module does not know which extender sent a message: `extender.py` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Raw

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.state.cluster import Cluster

_ENCODER: Final = msgspec.json.Encoder()
_RAW_LIST: Final = msgspec.json.Decoder(list[Raw])


# Requests


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


# Answers


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


ResponseT = TypeVar("ResponseT")

# Reading JSON as Go does

_INT64: Final = range(-(2**63), 2**63)
_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_NULL: Final = b"null"
_DECODE_ERRORS: Final = (ValueError, RecursionError)
"""What decoders raise for invalid JSON: msgspec's and json's errors are ValueErrors, as is invalid UTF-8."""

_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number with a fraction",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class MalformedResponseError(BayplanError):
    """An answer is not JSON, or a field has the wrong type. Callers that know the extender add its name."""

    field: str
    """The field, as the protocol spells it (`FailedNodes[n1]`); empty for the answer as a whole."""
    problem: str

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem


def read(data: bytes, decode: Callable[[bytes], ResponseT]) -> ResponseT:
    """The result of `decode` for an answer, or for its first JSON value if more follows.

    (A handler that forgets to return after writing an error writes two, and kube-scheduler accepts that.)

    Raises:
        MalformedResponseError: it is not JSON, or not of the expected form.
    """
    try:
        return decode(data)
    except _DECODE_ERRORS as error:
        try:
            return decode(_first_value(data))
        except _DECODE_ERRORS:
            raise MalformedResponseError("", f"the response is not JSON: {_why(data, error)}") from error


def members(data: bytes | Raw, place: str) -> dict[str, Raw]:
    """The members of a JSON object, undecoded, under lower-case keys and without those that are null.

    Of several spellings of a key the last one wins. null itself has no members.
    """
    try:
        entries = _RAW_OBJECT.decode(data)
    except msgspec.ValidationError as error:
        value = msgspec.json.decode(data)
        if value is None:
            return {}
        raise mismatch(value, dict, place) from error
    return {key.lower(): entry for key, entry in entries.items() if not _is_null(entry)}


def decoded(keys: Mapping[str, Raw], name: str) -> Any:
    """The value of one member; None if it is absent."""
    raw = keys.get(name.lower())
    return None if raw is None else msgspec.json.decode(raw)


def in_any_case(value: Any, place: str) -> dict[str, Any]:
    """The members of an object that is already decoded, in the form of `members`."""
    entries = checked(value, dict, place) or {}
    return {key.lower(): entry for key, entry in entries.items() if entry is not None}


def checked(value: Any, wanted: type, place: str) -> Any:
    """The value, if it is null or has the type that the protocol requires."""
    if value is None or type(value) is wanted:
        if wanted is int and value is not None and value not in _INT64:
            raise MalformedResponseError(place, f"{value} does not fit into 64 bits")
        return value
    raise mismatch(value, wanted, place)


def mismatch(value: Any, wanted: type, place: str) -> MalformedResponseError:
    actual = _TYPE_NAMES.get(type(value), "null")
    return MalformedResponseError(place, f"expected {_TYPE_NAMES[wanted]}, got {actual}")


def _is_null(raw: Raw) -> bool:
    # The length first: a list of nodes is not copied only to check its type.
    return memoryview(raw).nbytes == len(_NULL) and bytes(raw) == _NULL


def _first_value(data: bytes) -> bytes:
    """Without what follows it, and with a replacement character for bytes that are not UTF-8, as in Go."""
    text = data.decode(errors="replace").lstrip(" \t\r\n")
    return text[: json.JSONDecoder().raw_decode(text)[1]].encode()


def _why(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "it is empty"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


# Pods and nodes in requests

_SLACK: Final = 64
"""The number of deleted nodes that may remain in the cache before they are removed."""


class ClusterView:
    """The nodes of a cluster by name, and their pods, as of the scheduling cycle that calls extenders."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def node_count(self) -> int:
        return self._cluster.node_count

    def node(self, name: str) -> Node | None:
        nodes = self._cluster.nodes
        row = nodes.row_of.get(name)
        return None if row is None else nodes.node[row]

    def pods_on(self, name: str) -> Iterable[Pod]:
        """The pods on an existing node."""
        return self._cluster.pods_on(self._cluster.nodes.row_of[name])


class NodeJSON:
    """The JSON of the nodes of one cluster; shared by all extenders."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._cache: dict[str, tuple[Node, Raw]] = {}

    def nodes(self, names: Iterable[str]) -> list[Raw]:
        """The nodes with these names.

        Raises:
            KeyError: there is no node with that name.
        """
        view, cache = self._view, self._cache
        found: list[Raw] = []
        for name in names:
            node = view.node(name)
            if node is None:
                raise KeyError(name)
            entry = cache.get(name)
            if entry is None or not (entry[0] is node or _same_version(entry[0], node)):
                entry = cache[name] = (node, encoded_object(node))
            found.append(entry[1])
        if len(cache) > view.node_count + _SLACK:
            self._cache = {name: entry for name, entry in cache.items() if view.node(name) is not None}
        return found


def _same_version(old: Node, new: Node) -> bool:
    """Whether two Node objects were decoded from the same version, as after a second list."""
    a, b = old.metadata, new.metadata
    return bool(a.resource_version) and a.resource_version == b.resource_version and a.uid == b.uid


def encoded_object(item: Pod | Node) -> Raw:
    """Records omit empty fields, but spec and status are present in every object of the API."""
    return Raw(_ENCODER.encode({"metadata": item.metadata, "spec": item.spec, "status": item.status}))
