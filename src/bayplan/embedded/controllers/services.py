"""EndpointSlices: every Service with a selector has the addresses of its pods.

`bayplan.controllers.services` says what the slices are; there is no traffic, so this is for clients that read
them (`kubectl describe service`, operators that wait for their webhook).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.pods import is_controlled_by, is_ready
from bayplan.controllers.services import endpoint_slices
from bayplan.embedded.controllers.cluster import ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, own_key
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import ENDPOINT_SLICES, PODS, SERVICES, Resource
from bayplan.errors import NotFoundError

_ZONE = "topology.kubernetes.io/zone"


class EndpointSlices(Controller):
    """Reconciles the slices of Services."""

    name: ClassVar = "endpoint-slice-controller"
    batch_seconds: ClassVar = 0.2

    def watches(self) -> dict[Resource, KeyMapper]:
        return {SERVICES: own_key, PODS: self._pod, ENDPOINT_SLICES: self._slice}

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        if _reachable(change.before) == _reachable(change.after):
            return ()
        documents = [document for document in (change.before, change.after) if document is not None]
        labels = [document.record(Pod).labels for document in documents]
        services = self.api.store.table(SERVICES).of_namespace(change.key.partition("/")[0])
        return [each.key for each in services if any(_selects(each.parse(), found) for found in labels)]

    def _slice(self, change: ObjectChange) -> Iterable[str]:
        """A slice that somebody deleted or changed."""
        if change.before is None:
            return ()
        owners = change.before.parse()["metadata"].get("ownerReferences") or ()
        namespace = change.key.partition("/")[0]
        return [f"{namespace}/{owner['name']}" for owner in owners if owner["kind"] == SERVICES.kind]

    def reconcile(self, key: str) -> float | None:
        service = self.cluster.find(SERVICES, key)
        if service is None or "deletionTimestamp" in service["metadata"]:
            return None  # the slices are collected as garbage
        namespace = service["metadata"]["namespace"]
        known = {
            each["metadata"]["name"]: each
            for each in self.cluster.owned(ENDPOINT_SLICES, service["metadata"]["uid"])
            if is_controlled_by(each, service)
        }
        for wanted in self._wanted(service):
            old = known.pop(wanted["metadata"]["name"], None)
            if old is None:
                self.api.create(ENDPOINT_SLICES, wanted, namespace)
            elif any(old.get(field) != wanted[field] for field in ("endpoints", "ports")):
                self.api.update(ENDPOINT_SLICES, {**old, **wanted, "metadata": old["metadata"]}, namespace)
        for name in known:
            with suppress(NotFoundError):
                self.api.delete(ENDPOINT_SLICES, name, namespace)
        return None

    def _wanted(self, service: Content) -> list[Content]:
        if not service["spec"].get("selector") or service["spec"].get("type") == "ExternalName":
            return []
        pods = [
            document.parse()
            for document in self.api.documents(PODS, service["metadata"]["namespace"])
            if _selects(service, document.record(Pod).labels)
        ]
        return endpoint_slices(service, pods, self._zone_of)

    def _zone_of(self, node: str) -> str:
        return self.api.admission.topology_labels(node).get(_ZONE, "")


def _selects(service: Content, labels: dict[str, str]) -> bool:
    selector = service["spec"].get("selector")
    return bool(selector) and all(labels.get(key) == text for key, text in selector.items())


def _reachable(document: Document | None) -> tuple[object, ...]:
    """What of a pod its endpoints depend on; its address does not change while it runs."""
    if document is None:
        return ()
    pod = document.record(Pod)
    return pod.uid, pod.status.phase, is_ready(pod), pod.is_terminating, pod.labels
