"""The cluster behind a Kubernetes API server, as the scheduler sees it, and its events and version.

This file only translates verbs to requests. `list_watch.py` reads, `bodies.py` creates request bodies,
`requests.py` sends requests and interprets responses.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self

import msgspec

from bayplan.api.cluster_api import ClusterAPI, Event, ObjectT, PodStatusPatch, WatchEvent
from bayplan.api.devices import ResourceClaim
from bayplan.api.kinds import KINDS, Kind
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.releases import Release, nearest_release
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.client import bodies
from bayplan.client.access import Access
from bayplan.client.decoding import decode_object
from bayplan.client.list_watch import IDLE_SECONDS, WatchStream, list_all, open_watch
from bayplan.client.requests import (
    MERGE_PATCH,
    REQUEST_SECONDS,
    STRATEGIC_MERGE_PATCH,
    Connections,
    Requests,
    make_bucket,
)
from bayplan.errors import APIError, ConflictError

DEFAULT_QPS: Final = 50.0
DEFAULT_BURST: Final = 100
EVENT_RESPONSE_SECONDS: Final = 0.02
"""Responses to events are read after this time, a whole batch at once: nothing waits for them."""

_ANNOTATIONS: Final = ("metadata", "annotations")
_WRITTEN: Final[dict[type[Object], tuple[tuple[str, str], ...]]] = {
    PersistentVolume: (_ANNOTATIONS, ("spec", "claimRef")),
    PersistentVolumeClaim: (_ANNOTATIONS,),
}
"""The parts of objects that a scheduler changes. Updates send only these, in one request."""


class KubernetesCluster(ClusterAPI):
    """A cluster over HTTP.

    Args:
        access: address and credentials (`kubeconfig.load_access`), or the connections of another client.
        qps, burst: the rate limit of requests; negative qps: no limit.
        component: what the client is for, as part of the User-Agent.
        request_seconds: timeout of a short request.
        idle_seconds: a watch that receives nothing for this time counts as lost.
        may_write: called right before each write; if it returns False, the write raises NotLeadingError.
        now: seconds since the epoch.
        rng: for timeouts of watches and for backoff.
    """

    def __init__(
        self,
        access: Access | Connections,
        *,
        qps: float = DEFAULT_QPS,
        burst: int = DEFAULT_BURST,
        component: str = "scheduler",
        request_seconds: float = REQUEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        may_write: Callable[[], bool] | None = None,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.connections = Connections(access, now=now) if isinstance(access, Access) else access
        self.requests = Requests(
            self.connections,
            make_bucket(qps, burst),
            component=component,
            seconds=request_seconds,
            may_write=may_write,
        )
        self._may_write = may_write
        self._idle_seconds = idle_seconds
        self._now = now
        self._rng = rng or random.Random()
        self._versions: dict[type[Object], str] = {}
        """The last resourceVersion received of each kind."""
        self._open: dict[type[Object], tuple[str, WatchStream[Any]]] = {}
        """Watches that were opened by a list and are not used yet, with their first resourceVersion."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all watches and requests, and those of other clients with the same connections."""
        for _, watch in self._open.values():
            watch.close()
        self._open.clear()
        await self.connections.close()

    # Reading

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        self._drop_watch(kind)
        known = self._versions.get(kind, "")
        listed = await list_all(self.requests, kind, known, self._rng, self._idle_seconds)
        self._versions[kind] = listed.resource_version
        if listed.watch is not None:
            self._open[kind] = (listed.resource_version, listed.watch)
        return listed.items, listed.resource_version

    async def watch(
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        begin, watch = self._open.pop(kind, ("", None))
        if watch is None or begin != resource_version:
            if watch is not None:
                watch.close()
            watch = await open_watch(self.requests, kind, resource_version, self._rng, self._idle_seconds)
        try:
            while events := await watch.next():
                self._versions[kind] = events[-1].resource_version
                yield events
        finally:
            watch.close()

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return decode_object(kind, await self.requests.send("GET", KINDS.of(kind).item(name, namespace)))

    def _drop_watch(self, kind: type[Object]) -> None:
        _, watch = self._open.pop(kind, ("", None))
        if watch is not None:
            watch.close()

    # Writing

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        # Must not be sent twice: if the first one took effect, the second one gets a conflict.
        await self.requests.send(
            "POST", f"{_path(pod)}/binding", bodies.binding(pod, node_name, annotations), repeatable=False
        )

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        body = bodies.pod_status(pod, patch, self._now)
        if body is not None:
            await self.requests.send(
                "PATCH", f"{_path(pod)}/status", body, content_type=STRATEGIC_MERGE_PATCH
            )

    async def delete_pod(self, pod: Pod) -> None:
        await self.requests.send("DELETE", _path(pod), bodies.DELETE_OPTIONS)

    async def create(self, item: Object) -> Object:
        path = KINDS.of(type(item)).collection(item.namespace)
        answer = await self.requests.send("POST", path, bodies.whole(item), repeatable=False)
        return decode_object(type(item), answer)

    async def update(self, item: Object) -> Object:
        """Writes the changes of an object; fields that our records do not have stay unchanged.

        The status is not written. ConflictError if the object has changed since it was read.
        """
        kind = type(item)
        if KINDS.of(kind).written_whole:
            answer = await self.requests.send("PUT", _path(item), bodies.whole(item), repeatable=False)
            return decode_object(kind, answer)
        written = _WRITTEN.get(kind)
        if written is None:
            current = await self.get(kind, item.name, item.namespace)
            _check_unchanged(item, current)
        else:
            current = await self._patch(kind, item, bodies.parts_patch(item, written))
        rest = bodies.changes(current, item)
        return await self._patch(kind, item, rest) if rest else current

    async def update_status(self, item: Object) -> Object:
        path = f"{_path(item)}/status"
        answer = await self.requests.send("PUT", path, bodies.whole(item), repeatable=False)
        return decode_object(type(item), answer)

    async def delete(self, item: Object) -> None:
        await self.requests.send("DELETE", _path(item), bodies.DELETE_OPTIONS)

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        body = bodies.released_claim(claim, uid)
        answer = await self.requests.send(
            "PATCH", f"{_path(claim)}/status", body, content_type=STRATEGIC_MERGE_PATCH
        )
        return decode_object(ResourceClaim, answer)

    async def _patch(self, kind: type[ObjectT], item: Object, patch: dict[str, Any]) -> ObjectT:
        answer = await self.requests.send(
            "PATCH", _path(item), bodies.encode(patch), content_type=MERGE_PATCH, repeatable=False
        )
        return decode_object(kind, answer)

    def events(self, *, qps: float = DEFAULT_QPS, burst: int = DEFAULT_BURST) -> EventWriter:
        """The event sink of a recorder: uses the same connections, with a separate rate limit."""
        bucket = make_bucket(qps, burst)
        return EventWriter(
            Requests(
                self.connections,
                bucket,
                seconds=self.requests.seconds,
                response_delay=EVENT_RESPONSE_SECONDS,
                may_write=self._may_write,
            )
        )


def _path(item: Object) -> str:
    return KINDS.of(type(item)).item(item.name, item.namespace)


def _check_unchanged(item: Object, current: Object) -> None:
    wanted, found = item.metadata, current.metadata
    if wanted.uid not in ("", found.uid) or wanted.resource_version not in ("", found.resource_version):
        raise ConflictError(
            f'Operation cannot be fulfilled on {KINDS.of(type(item)).plural} "{item.name}": '
            "the object has been modified; please apply your changes to the latest version and try again"
        )


_CORE_EVENTS: Final = Kind(Event, "events")

_log = logging.getLogger(__name__)


# Events


class EventWriter:
    """Writes events in events.k8s.io/v1 if the server has it when the first one is written, else in core/v1.

    They have a client of their own (a rate limit and a User-Agent), as upstream: a backlog of events must not
    delay bindings. `bayplan.scheduler.recorder` writes through `create_event` and `patch_event`.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._discovery: asyncio.Task[bool] | None = None

    async def create_event(self, event: Event) -> None:
        if await self._is_served():
            # Repeating it is safe: the second time the name already exists.
            await self._requests.send(
                "POST", KINDS.of(Event).collection(event.namespace), bodies.whole(event)
            )
        else:
            await self.create_core_event(event)

    async def create_core_event(self, event: Event) -> None:
        """In core/v1, whatever the server supports: events about leases have always used it."""
        await self._requests.send(
            "POST", _CORE_EVENTS.collection(event.namespace), bodies.encode(_core_event(event))
        )

    async def patch_event(self, event: Event) -> None:
        """Writes only the event's series."""
        series = event.series
        assert series is not None, "an event that was not repeated is created"
        if await self._is_served():
            resource, body = KINDS.of(Event), bodies.encode({"series": series})
        else:
            last = series.last_observed_time
            change = {"count": series.count, "lastTimestamp": _second(last), "message": event.note}
            resource, body = _CORE_EVENTS, bodies.encode(change)
        path = resource.item(event.name, event.namespace)
        await self._requests.send("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)

    async def _is_served(self) -> bool:
        """Whether events.k8s.io/v1 is served. Requested once; concurrent writers share the response."""
        if self._discovery is None:
            self._discovery = asyncio.ensure_future(self._discover())
        if self._discovery.done():
            return self._discovery.result()
        return await asyncio.shield(self._discovery)

    async def _discover(self) -> bool:
        try:
            await self._requests.send("GET", KINDS.of(Event).root)
        except APIError as error:
            _log.info("writing core/v1 events because events.k8s.io/v1 is not available: %s", error)
            return False
        return True


def _core_event(event: Event) -> dict[str, Any]:
    at = _second(event.event_time)
    regarding = event.regarding
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": msgspec.to_builtins(event.metadata),
        "involvedObject": {} if regarding is None else msgspec.to_builtins(regarding),
        "reason": event.reason,
        "message": event.note,
        "type": event.type,
        "source": {"component": event.reporting_controller},
        "reportingComponent": event.reporting_controller,
        "reportingInstance": "",
        "firstTimestamp": at,
        "lastTimestamp": at if event.series is None else _second(event.series.last_observed_time),
        "count": 1 if event.series is None else event.series.count,
    }


def _second(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)


# The version of the server

VERSION_PATH: Final = "/version"


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The response to GET /version."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    """`v1.37.1`."""

    def nearest_release(self) -> tuple[Release, bool]:
        """The release to decide as, and whether it is the server's own."""
        return nearest_release(self.major, self.minor)


async def read_version(requests: Requests) -> ServerVersion:
    """Requests the version.

    Raises:
        APIError: there is no response, or it is not a version.
    """
    answer = await requests.send("GET", VERSION_PATH)
    try:
        return msgspec.json.decode(answer, type=ServerVersion)
    except msgspec.DecodeError as error:
        raise APIError(f"{VERSION_PATH}: {error}") from error
