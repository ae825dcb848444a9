"""Deletion of namespaces: everything in it goes, and then the namespace."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.embedded.controllers.cluster import Seen, names_of
from bayplan.embedded.controllers.controller import Concerns, Controller
from bayplan.embedded.server.kinds import NAMESPACES, Resource
from bayplan.errors import NotFoundError

_FINALIZER: Final = "kubernetes"
_AGAIN: Final = 1.0
"""Seconds between reconciles of a namespace that is not empty yet: pods may take long to end."""

_AT_ONCE: Final = 500
"""Objects processed per call; the rest follow, so that other tasks run."""


class Namespaces(Controller):
    """Empties namespaces that are being deleted."""

    name: ClassVar = "namespace-controller"

    def watches(self) -> dict[Resource, Concerns]:
        return {NAMESPACES: self._namespace}

    def _namespace(self, seen: Seen) -> Iterable[str]:
        return (seen.key,) if seen.after is not None and b'"deletionTimestamp"' in seen.after.body else ()

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
        """Deletes what is left, or some of it. Returns when to go on; None if nothing is left."""
        left = deleted = 0
        for resource in self.api.catalog:
            if not resource.namespaced or resource.stored_as is not None:
                continue
            for document in list(self.api.documents(resource, namespace)):
                if deleted == _AT_ONCE:
                    return 0.0
                if b'"deletionTimestamp"' not in document.body:
                    deleted += 1
                    with suppress(NotFoundError):  # the deletion of another took it along
                        self.api.delete(resource, *names_of(document.key))
                left += self.api.store.find(resource, document.key) is not None
        return _AGAIN if left else None
