"""Namespaces: emptied before they are deleted, filled when they are created, and their quotas.

Every namespace has the ServiceAccount `default` and the ConfigMap with the CA of the API server: clients wait
for them before they use a new namespace, and Helm charts and operators expect the account.

The status of a ResourceQuota says what is allowed, and what is used. What is created is charged at once, by
admission (`server/quotas.py`). `ResourceQuotas` counts again when a quota is created or changed, and when
something that was charged is deleted or has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import ObjectChange, names_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper, own_key
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from bayplan.embedded.server.quotas import counted
from bayplan.errors import NotFoundError

_FINALIZER: Final = "kubernetes"
_RETRY_SECONDS: Final = 1.0
"""Seconds between reconciles of a namespace that is not empty yet: pods may take long to end."""

_CONDITIONS: Final = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}
"""Reason and message where there is no problem."""

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
        again, left = self._empty(key)
        self._report(namespace, left)
        if again is not None:
            return again
        namespace = self.cluster.find(NAMESPACES, key)
        assert namespace is not None, "nothing else removes its finalizer"
        finalizers = [each for each in namespace["spec"].get("finalizers") or () if each != _FINALIZER]
        namespace["spec"]["finalizers"] = finalizers
        self.api.update(NAMESPACES, namespace, subresource="finalize")
        return None

    def _empty(self, namespace: str) -> tuple[float | None, list[tuple[Resource, Document]]]:
        """Deletes the remaining objects, some per call. Returns when to continue, and what is left; None if
        nothing is.

        Pods go first: what protects them (NetworkPolicies, quotas, accounts) stays as long as they run.
        """
        others = (each for each in self.api.catalog if each.namespaced and each.stored_as is None)
        left: list[tuple[Resource, Document]] = []
        deleted = 0
        for resource in (PODS, *others):
            for document in list(self.api.documents(resource, namespace)):
                if deleted == _MAX_DELETED:
                    return 0.0, left
                if b'"deletionTimestamp"' not in document.body:
                    deleted += 1
                    with suppress(NotFoundError):  # the deletion of another took it along
                        self.api.delete(resource, *names_of(document.key))
                if (kept := self.api.store.find(resource, document.key)) is not None:
                    left.append((resource, kept))
            if resource == PODS and left:
                break
        return _RETRY_SECONDS if left else None, left

    def _report(self, namespace: Content, left: Sequence[tuple[Resource, Document]]) -> None:
        """Writes the conditions that say what a deletion waits for."""
        # namespace/deletion/status_condition_utils.go: ProcessContentTotals, updateConditions
        resources = Counter(f"{resource.plural}.{resource.group}" for resource, _ in left)
        finalizers = Counter(
            name for _, document in left for name in document.parse()["metadata"].get("finalizers") or ()
        )
        problems = {}
        if resources:
            counts = (f"{name} has {count} resource instances" for name, count in sorted(resources.items()))
            text = f"Some resources are remaining: {', '.join(counts)}"
            problems["NamespaceContentRemaining"] = ("SomeResourcesRemain", text)
        if finalizers:
            counts = (f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
            text = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
            problems["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
        status = namespace.setdefault("status", {})
        known = {one["type"]: one for one in status.get("conditions") or ()}
        conditions = dict(known)
        for kind, fine in _CONDITIONS.items():
            reason, message = problems.get(kind, fine)
            facts = {"status": str(kind in problems), "reason": reason, "message": message}
            before = known.get(kind) or {}
            if any(before.get(field) != text for field, text in facts.items()):
                changed = before.get("status") != facts["status"]
                since = self.api.now() if changed else before["lastTransitionTime"]
                conditions[kind] = {"type": kind, "lastTransitionTime": since, **facts}
        if conditions != known:
            status["conditions"] = list(conditions.values())
            self.api.update(NAMESPACES, namespace, subresource="status")


ACCOUNT: Final = "default"
ROOT_CA: Final = "kube-root-ca.crt"


class NamespaceDefaults(Controller):
    """Makes the objects that belong to a namespace, and makes them again if they are deleted or changed."""

    name: ClassVar = "namespace-defaults"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NAMESPACES: own_key, SERVICE_ACCOUNTS: self._object, CONFIG_MAPS: self._object}

    def _object(self, change: ObjectChange) -> Iterable[str]:
        namespace, _, name = change.key.partition("/")
        return (namespace,) if name in (ACCOUNT, ROOT_CA) and change.before is not None else ()

    def reconcile(self, key: str) -> float | None:
        namespace = self.cluster.find(NAMESPACES, key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return None
        if self.api.store.find(SERVICE_ACCOUNTS, f"{key}/{ACCOUNT}") is None:
            self.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": ACCOUNT}}, key)
        if self.api.root_ca:
            self._write_root_ca(key)
        return None

    def _write_root_ca(self, namespace: str) -> None:
        data = {"ca.crt": self.api.root_ca}
        found = self.cluster.find(CONFIG_MAPS, f"{namespace}/{ROOT_CA}")
        if found is None:
            self.api.create(CONFIG_MAPS, {"metadata": {"name": ROOT_CA}, "data": data}, namespace)
        elif found.get("data") != data:
            self.api.update(CONFIG_MAPS, {**found, "data": data}, namespace)


_RESYNC_SECONDS: Final = 300.0
"""After this time every quota is counted again, because clients can write its status. It is the default of
kube-controller-manager."""


class ResourceQuotas(Controller):
    """Keeps the status of quotas."""

    name: ClassVar = "resourcequota-controller"
    batch_seconds: ClassVar = 0.2

    def watches(self) -> dict[Resource, KeyMapper]:
        return {RESOURCE_QUOTAS: self._quota}

    def watches_all(self) -> KeyMapper:
        return self._object

    def _quota(self, change: ObjectChange) -> Iterable[str]:
        """Only a spec that is new: the status changes with every object that is charged."""
        if change.after is None:
            return ()
        is_same = change.before is not None and change.before.parse().get("spec") == change.after.parse().get(
            "spec"
        )
        return () if is_same else (change.key,)

    def _object(self, change: ObjectChange) -> Iterable[str]:
        if not change.resource.namespaced or not _may_take_less(change):
            return ()
        namespace = change.key.partition("/")[0]
        quotas = self.api.store.table(RESOURCE_QUOTAS).of_namespace(namespace)
        return [document.key for document in quotas]

    def reconcile(self, key: str) -> float | None:
        quota = self.cluster.find(RESOURCE_QUOTAS, key)
        if quota is None or "deletionTimestamp" in quota["metadata"]:
            return None
        status = counted(self.api, quota)
        if status != quota.get("status"):
            quota["status"] = status
            self.api.update(RESOURCE_QUOTAS, quota, subresource="status")
        return _RESYNC_SECONDS


def _may_take_less(change: ObjectChange) -> bool:
    if change.after is None:
        return True
    if change.before is None:
        return False
    if change.resource == PODS:
        return change.after.record(Pod).is_finished and not change.before.record(Pod).is_finished
    return change.resource in (PERSISTENT_VOLUME_CLAIMS, SERVICES)
