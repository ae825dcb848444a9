"""Pods and Nodes as the JSON that extenders are sent, without apiVersion and kind.

An extender that is not nodeCacheCapable gets every feasible node for every pod, which is megabytes of JSON.
Nodes rarely change between two pods, so a node is encoded once per Node object and then only copied.

Our records have only the fields that scheduling reads, but an extender may need others. The code that reads
from the API server can keep what it received and provide it as `RawObjects`; otherwise the record is encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
from msgspec import Raw

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.extender.view import ClusterView

_ENCODER: Final = msgspec.json.Encoder()
_ENTRIES: Final = msgspec.json.Decoder(dict[str, Raw])
_TYPE_KEYS: Final = ("apiVersion", "kind")
_SLACK: Final = 64
"""The number of deleted nodes that may remain in the cache before they are removed."""


class RawObjects(Protocol):
    """Objects as the API server sent them."""

    def json_of(self, item: Pod | Node) -> bytes | None:
        """The JSON that this object (same uid and resourceVersion) was decoded from, if it was kept."""


class ObjectJSON:
    """JSON of the pods and nodes of one cluster; shared by all extenders."""

    def __init__(self, view: ClusterView, raw: RawObjects | None = None) -> None:
        self._view = view
        self._raw = raw
        self._cache: dict[str, tuple[Node, Raw]] = {}

    def pod(self, pod: Pod) -> Raw:
        """Encoded for each call: a pod is sent a few times at most."""
        return self._encoded(pod)

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
                entry = cache[name] = (node, self._encoded(node))
            found.append(entry[1])
        if len(cache) > view.node_count + _SLACK:
            self._cache = {name: entry for name, entry in cache.items() if view.node(name) is not None}
        return found

    def _encoded(self, item: Pod | Node) -> Raw:
        whole = None if self._raw is None else self._raw.json_of(item)
        return _encoded_record(item) if whole is None else _without_type(whole)


def _same_version(old: Node, new: Node) -> bool:
    """Whether two Node objects were decoded from the same version, as after a second list."""
    a, b = old.metadata, new.metadata
    return bool(a.resource_version) and a.resource_version == b.resource_version and a.uid == b.uid


def _encoded_record(item: Pod | Node) -> Raw:
    """Records omit empty fields, but spec and status are present in every object of the API."""
    parts = {"metadata": item.metadata, "spec": item.spec, "status": item.status}
    return Raw(_ENCODER.encode(parts))


def _without_type(whole: bytes) -> Raw:
    """Objects from a watch have apiVersion and kind, those from a list do not; extenders expect the
    latter."""
    entries = _ENTRIES.decode(whole)
    if entries.keys().isdisjoint(_TYPE_KEYS):
        return Raw(whole)
    return Raw(_ENCODER.encode({key: entry for key, entry in entries.items() if key not in _TYPE_KEYS}))
