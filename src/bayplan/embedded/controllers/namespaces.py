"""Deletes the objects of a namespace that is being deleted, and then the namespace."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.embedded.controllers.cluster import ObjectChange, names_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.kinds import NAMESPACES, Resource
from bayplan.errors import NotFoundError

_FINALIZER: Final = "kubernetes"
_RETRY_SECONDS: Final = 1.0
"""Seconds between reconciles of a namespace that is not empty yet: pods may take long to end."""

_MAX_DELETED: Final = 100
"""Objects processed per call; the rest follow, so that other tasks run."""


class Namespaces(Controller):
    """Empties namespaces that are being deleted."""

    name: ClassVar = "namespace-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NAMESPACES: self._namespace}

    def _namespace(self, change: ObjectChange) -> Iterable[str]:
        return (
            (change.key,) if change.after is not None and b'"deletionTimestamp"' in change.after.body else ()
        )

    def reconcile(self, key: str) -> float | None:
        namespace = self.cluster.find(NAMESPACES, key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return None
        again = self._empty(key)
        if again is not None:
            return again
        finalizers = [each for each in namespace["spec"].get("finalizers") or () if each != _FINALIZER]
        namespace["spec"]["finalizers"] = finalizers
        self.api.update(NAMESPACES, namespace, subresource="finalize")
        return None

    def _empty(self, namespace: str) -> float | None:
        """Deletes the remaining objects, some per call. Returns when to continue; None if nothing is left."""
        left = deleted = 0
        for resource in self.api.catalog:
            if not resource.namespaced or resource.stored_as is not None:
                continue
            for document in list(self.api.documents(resource, namespace)):
                if deleted == _MAX_DELETED:
                    return 0.0
                if b'"deletionTimestamp"' not in document.body:
                    deleted += 1
                    with suppress(NotFoundError):  # the deletion of another took it along
                        self.api.delete(resource, *names_of(document.key))
                left += self.api.store.find(resource, document.key) is not None
        return _RETRY_SECONDS if left else None
