"""Protection of pod groups: a PodGroup that is being deleted stays until its pods have ended.

The API server gives every new PodGroup a finalizer (`server/preparation.py`). Without this controller it
would never go. Groups of templates are the business of other controllers, which are not here: PodGroups are
created by users.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.kinds import POD_GROUPS, PODS, Resource
from bayplan.embedded.server.preparation import GROUP_PROTECTION


class PodGroupProtection(Controller):
    """Removes the finalizer once the group is being deleted and no pod that has not ended names it."""

    # podgroup_protection_controller.go
    name: ClassVar = "podgroup-protection-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        if self.api.catalog.find(POD_GROUPS.group, POD_GROUPS.version, POD_GROUPS.plural) is None:
            return {}
        return {POD_GROUPS: self._group, PODS: self._pod}

    def _group(self, change: ObjectChange) -> Iterable[str]:
        is_going = change.after is not None and b'"deletionTimestamp"' in change.after.body
        return (change.key,) if is_going else ()

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        """The group of a pod that was deleted or has ended."""
        before = change.before
        if before is None or b'"schedulingGroup"' not in before.body:
            return ()
        if change.after is not None and not change.after.record(Pod).is_finished:
            return ()
        return (group_key_of(before.record(Pod)),)

    def reconcile(self, key: str) -> float | None:
        group = self.cluster.find(POD_GROUPS, key)
        if group is None or "deletionTimestamp" not in group["metadata"]:
            return None
        finalizers = group["metadata"].get("finalizers") or []
        if GROUP_PROTECTION not in finalizers:
            return None
        pods = (document.record(Pod) for document in self.api.documents(PODS, group["metadata"]["namespace"]))
        if not any(group_key_of(pod) == key and not pod.is_finished for pod in pods):
            group["metadata"]["finalizers"] = [each for each in finalizers if each != GROUP_PROTECTION]
            self.api.update(POD_GROUPS, group)
        return None


def group_key_of(pod: Pod) -> str:
    """The key of the pod's group; empty if it has none."""
    named = pod.spec.scheduling_group
    return "" if named is None else f"{pod.namespace}/{named.pod_group_name or ''}"
