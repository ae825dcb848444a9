"""An API server that serves whatever bytes it is given: no validation, no sockets, in virtual time.

It is below the client, in place of the connections, so that everything from listing to informers is the
real thing. It also checks bindings: whether the pod was bound already, and whether the node had room for it.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from math import inf
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from bayplan.api.kinds import KINDS
from bayplan.api.meta import version_number
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.reading import ObjectT, Unreadable, read_object, readable, with_readable_quantities
from bayplan.client.access import Access
from bayplan.client.decoding import INITIAL_EVENTS_END
from bayplan.client.informer import is_older_version
from bayplan.client.requests import Connections
from bayplan.client.short_requests import ShortRequestPool
from bayplan.client.streams import StreamPool
from bayplan.client.transport import ApiResponse, Headers, LostError, Request
from tests.faults.cluster import room_of, sum_of

FINISHED = ("Succeeded", "Failed")


class FakeServer:
    """Raw documents by collection and key, and their watches."""

    def __init__(self, *, streams: bool) -> None:
        self.problems: list[str] = []
        self._bound: set[str] = set()
        """Keys of pods whose binding was acknowledged, and that were not changed otherwise since then."""
        self._streams = streams
        self._documents: dict[str, dict[str, bytes]] = defaultdict(dict)
        self._watchers: dict[str, list[asyncio.Queue[bytes]]] = defaultdict(list)
        self._version = 1

    # What the fuzzer does

    def put(self, collection: str, key: str, data: bytes, change: str = "") -> None:
        """Stores a document as it is, and sends a change to the watchers.

        A change without a resourceVersion, or with an older one than the stored document, is sent but not
        stored: versions come from the store and rise, so what clients ignore for its version was never the
        state of the cluster.
        """
        self._version += 1
        if not change or _is_later(data, self._documents[collection].get(key, b"")):
            self._store(collection, key, None if change == "DELETED" else data)
        if change:
            frame = b'{"type":"%s","object":%s}\n' % (change.encode(), data.replace(b"\n", b" "))
            for watcher in self._watchers[collection]:
                watcher.put_nowait(frame)

    def _store(self, collection: str, key: str, data: bytes | None) -> None:
        if collection == _PODS:
            self._bound.discard(key)  # whatever it is now, it may be without a node again
        if data is None:
            self._documents[collection].pop(key, None)
        else:
            self._documents[collection][key] = data

    def pods(self) -> dict[str, Any]:
        """Pods that can be parsed as JSON objects, by key."""
        parsed = {key: _parsed(data) for key, data in self._documents[_PODS].items()}
        return {key: pod for key, pod in parsed.items() if isinstance(pod, dict)}

    # What the client does

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        path = urlsplit(request.target).path
        collection, rest = _split(path)
        if not rest:
            return ApiResponse(201, "", request.body or b"{}")  # an event, or what a group has
        key, _, part = rest.partition("//")
        data = self._documents[collection].get(key)
        if data is None:
            return ApiResponse(404, "", _status(404, "NotFound"))
        if part == "binding":
            return self._bind(key, data, json.loads(request.body))
        if request.method == "DELETE":
            self.put(collection, key, self._stamped(json.loads(data)), "DELETED")
        return ApiResponse(200, "", data)

    def _bind(self, key: str, data: bytes, binding: dict[str, Any]) -> ApiResponse:
        if key in self._bound:
            self.problems.append(f"{key} is bound twice: the first binding was acknowledged")
        pod = json.loads(data)
        # If it has become unreadable, the scheduler binds its last version.
        spec = pod["spec"] if isinstance(pod.get("spec"), dict) else {}
        if spec.get("nodeName"):
            return ApiResponse(409, "", _status(409, "Conflict"))
        node = binding["target"]["name"]
        pod["spec"] = {**spec, "nodeName": node}
        self.put(_PODS, key, self._stamped(pod), "MODIFIED")
        self._bound.add(key)
        self._check_room(key, node)
        return ApiResponse(201, "", b"{}")

    def _stamped(self, document: dict[str, Any]) -> bytes:
        """The document with a later version than it has."""
        self._version += 1
        metadata = document["metadata"]
        own = version_number(str(metadata.get("resourceVersion"))) or 0
        metadata["resourceVersion"] = str(max(self._version, own + 1))
        return json.dumps(document).encode()

    def _check_room(self, key: str, node_name: str) -> None:
        """No resource that the pod requests is assigned beyond the node's capacity."""
        raw = self._documents[_NODES].get(node_name)
        if raw is None:
            self.problems.append(f"{key} is bound to {node_name}, which does not exist")
            return
        node, bound = _read(Node, raw), _read(Pod, self._documents[_PODS][key])
        if node is None or bound is None:
            return  # it has become unreadable: the scheduler may still have its last version
        here = [pod for pod in self._readable_pods() if pod.spec.node_name == node_name]
        requested, total = sum_of([bound]), sum_of(here)
        # A fraction of anything but CPU counts as a whole one, as in Kubernetes.
        room = {
            name: size if name == "cpu" else -(-size // 1000) * 1000 for name, size in room_of(node).items()
        }
        for name, amount in requested.items():
            if amount > 0 and total[name] > room.get(name, 0):
                self.problems.append(
                    f"{key} overcommits {node_name}: {name} {total[name]} of {room.get(name, 0)}"
                )

    def _readable_pods(self) -> list[Pod]:
        pods = (_read(Pod, data) for data in self._documents[_PODS].values())
        return [pod for pod in pods if pod is not None and pod.status.phase not in FINISHED]

    async def open(self, request: Request, headers: Headers, seconds: float) -> FakeStream:
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        collection, _ = _split(parts.path)
        documents = list(self._documents[collection].values())
        if "watch" not in query:
            metadata = b'{"metadata":{"resourceVersion":"%d"},"items":[' % self._version
            return FakeStream(200, [metadata + b",".join(documents) + b"]}"])
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        first: list[bytes] = []
        if "sendInitialEvents" in query:
            if not self._streams:
                return FakeStream(422, [_status(422, "Invalid")])
            first = [b'{"type":"ADDED","object":%s}\n' % data.replace(b"\n", b" ") for data in documents]
            marks = {"resourceVersion": str(self._version), "annotations": {INITIAL_EVENTS_END: "true"}}
            first.append(json.dumps({"type": "BOOKMARK", "object": {"metadata": marks}}).encode() + b"\n")
        self._watchers[collection].append(queue)
        return FakeStream(200, first, queue)

    def forget(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""


class FakeStream:
    """An answer in pieces, and then whatever comes."""

    retry_after = ""

    def __init__(self, status: int, pieces: list[bytes], then: asyncio.Queue[bytes] | None = None) -> None:
        self.status = status
        self._pieces = pieces
        self._then = then

    async def read(self, seconds: float) -> bytes:
        if self._pieces:
            return self._pieces.pop(0)
        if self._then is None:
            return b""
        try:
            async with asyncio.timeout(seconds):
                return await self._then.get()
        except TimeoutError as error:
            raise LostError("no response") from error

    async def read_all(self, seconds: float, max_bytes: float = inf) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def close(self) -> None:
        """Nothing is open."""


class FakeConnections(Connections):
    """Connections that lead to a FakeServer."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        super().__init__(Access("http://fuzz.invalid"))
        self.streams = cast(StreamPool, server)

    def short(self, response_delay: float = 0.0) -> ShortRequestPool:
        return cast(ShortRequestPool, self._server)


_PODS = KINDS["Pod"].collection()
_NODES = KINDS["Node"].collection()


def _read(kind: type[ObjectT], data: bytes) -> ObjectT | None:
    """The object as the scheduler reads it; None where it cannot use it."""
    try:
        item = with_readable_quantities(read_object(kind, data))
    except msgspec.DecodeError:
        return None
    return None if isinstance(item, Unreadable) and not item.is_usable else readable(item)


def _parsed(data: bytes) -> Any:
    """None for what is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _is_later(data: bytes, stored: bytes) -> bool:
    """Whether a document has a version, and one that a server could give it after the stored document."""
    version = _version(data)
    return version != "" and not is_older_version(version, _version(stored))


def _version(data: bytes) -> str:
    """Empty if the document has none."""
    match _parsed(data):
        case {"metadata": {"resourceVersion": str(version)}}:
            return version
    return ""


def _split(path: str) -> tuple[str, str]:
    """The collection of all namespaces, and the key in it: `namespace/name`, then `//` and a subresource."""
    words = [unquote(word) for word in path.strip("/").split("/")]
    root, words = (words[:2], words[2:]) if words[0] == "api" else (words[:3], words[3:])
    namespace = ""
    if not words:
        return path, ""  # what a group has
    if words[0] == "namespaces" and len(words) > 2:
        namespace, words = words[1] + "/", words[2:]
    plural, *rest = words
    key = f"{namespace}{rest[0]}" if rest else ""
    part = f"//{rest[1]}" if len(rest) > 1 else ""
    return "/".join(["", *root, plural]), key + part


def _status(code: int, reason: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "code": code, "reason": reason}).encode()
