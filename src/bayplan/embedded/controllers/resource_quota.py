"""ResourceQuotas: their status says what is allowed, and what is used.

What is created is charged at once, by admission (`server/quotas.py`). This counts again when a quota is made
or changed, and when something that was charged is deleted or has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES, Resource
from bayplan.embedded.server.quotas import counted


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
        return None


def _may_take_less(change: ObjectChange) -> bool:
    if change.after is None:
        return True
    if change.before is None:
        return False
    if change.resource == PODS:
        return change.after.record(Pod).is_finished and not change.before.record(Pod).is_finished
    return change.resource in (PERSISTENT_VOLUME_CLAIMS, SERVICES)
