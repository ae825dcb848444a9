"""A controller maps changes to keys and reconciles keys; with its events, conditions and status updates.

`reconcile` is a plain function of the store: it reads the actual state, compares it with the desired state,
and writes the difference. It does not wait, and may be called at any time and any number of times. It returns
when to reconcile again even if nothing changes.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, ClassVar, Final

from bayplan.api.meta import Content
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.server.kinds import EVENTS, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError

KeyMapper = Callable[[ObjectChange], Iterable[str]]
"""Maps a change to the keys that have to be reconciled."""


class Controller(ABC):
    """One of the loops that reconcile the cluster with its objects."""

    name: ClassVar[str]
    """The component in events and logs."""
    batch_seconds: ClassVar[float] = 0.0
    """Seconds to wait for more changes before a reconcile, for controllers whose reconciles are slow."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api: ObjectAPI = cluster.api
        self.events = Recorder(cluster.api, self.name)

    @abstractmethod
    def watches(self) -> dict[Resource, KeyMapper]:
        """The resources it watches, and the keys of their changes."""

    def watches_all(self) -> KeyMapper | None:
        """For the few that watch every resource, custom ones included."""
        return None

    @abstractmethod
    def reconcile(self, key: str) -> float | None:
        """Reconciles one key. Returns the seconds until the next time, None: at the next change.

        An error means that it failed; it is retried after a while.
        """


def own_key(change: ObjectChange) -> Iterable[str]:
    """A change of an object concerns that object."""
    return (change.key,)


def earliest(*delays: float | None) -> float | None:
    """The shortest of several delays; None if there is none."""
    return min((delay for delay in delays if delay is not None), default=None)


_log = logging.getLogger(__name__)

_REMEMBERED: Final = 4096
"""Events whose count may still be incremented, as in client-go's correlator."""
_MAX_NOTE: Final = 1024

_Same = tuple[str, str, str]


class Recorder:
    """Writes the events of one component."""

    def __init__(self, api: ObjectAPI, component: str) -> None:
        self._api = api
        self._component = component
        self._known: OrderedDict[_Same, tuple[str, str, int]] = OrderedDict()

    def normal(self, about: Content, reason: str, message: str) -> None:
        self._record(about, "Normal", reason, message)

    def warning(self, about: Content, reason: str, message: str) -> None:
        self._record(about, "Warning", reason, message)

    def _record(self, about: Content, kind: str, reason: str, message: str) -> None:
        message = message[:_MAX_NOTE]
        same = (about["metadata"]["uid"], reason, message)
        known = self._known.pop(same, None)
        if known is not None:
            name, namespace, count = known
            with suppress(NotFoundError):  # it was deleted: create it again
                change = {"count": count + 1, "lastTimestamp": self._api.now()}
                self._api.patch(EVENTS, name, namespace, change)
                self._known[same] = name, namespace, count + 1
                return
        self._write(about, kind, reason, message, same)

    def _write(self, about: Content, kind: str, reason: str, message: str, same: _Same) -> None:
        meta, now = about["metadata"], self._api.now()
        namespace = meta.get("namespace") or "default"
        event: dict[str, Any] = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": namespace},
            "involvedObject": {
                "kind": about["kind"],
                "namespace": meta.get("namespace", ""),
                "name": meta["name"],
                "uid": meta["uid"],
                "apiVersion": about["apiVersion"],
                "resourceVersion": meta["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        # An event that cannot be written (its namespace is being deleted) must not fail the reconcile.
        try:
            created = self._api.create(EVENTS, event, namespace)
        except StatusError as error:
            _log.debug("event %s about %s is not written: %s", reason, meta["name"], error)
            return
        self._known[same] = created["metadata"]["name"], namespace, 1
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def counts(**fields: int) -> dict[str, int]:
    """Counts as on the wire: a zero is omitted."""
    return {name: number for name, number in fields.items() if number}


def write_status(api: ObjectAPI, resource: Resource, content: Content, status: Content) -> Content:
    """Sets the status of an object, unless that would change nothing."""
    status = {name: part for name, part in status.items() if part is not None and part != []}
    if status == (content.get("status") or {}):
        return content
    return api.update(resource, {**content, "status": status}, subresource="status")


def with_condition(
    conditions: list[Content] | None, kind: str, status: str, reason: str, message: str, now: str, **more: Any
) -> list[Content]:
    """Conditions with one set; `lastTransitionTime` changes only with the status.

    If status and reason are the same, the old condition stays, whatever the message: a message may contain
    the name of a pod that could not be created, another one in each try, and writing it would cause the next
    try.
    """
    conditions = list(conditions or ())
    known = next((each for each in conditions if each["type"] == kind), None)
    if known is not None and (known.get("status"), known.get("reason")) == (status, reason):
        return conditions
    changed = now
    if known is not None and known.get("status") == status:
        changed = known.get("lastTransitionTime", now)
    new = {
        "type": kind,
        "status": status,
        "lastTransitionTime": changed,
        **more,
        "reason": reason,
        "message": message,
    }
    if known is None:
        return [*conditions, new]
    return [new if each is known else each for each in conditions]


def without_condition(conditions: list[Content] | None, kind: str) -> list[Content]:
    return [each for each in conditions or () if each["type"] != kind]
