"""Events of controllers, which `kubectl describe` shows.

A repeated event about the same object increments `count` instead of creating another event.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final

from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import EVENTS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError

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
