"""Deletion of an object: immediate, or marked first.

An object with finalizers is only marked (`deletionTimestamp`); the owner of each finalizer removes it when it
is done, and the object is deleted with the last one. A running pod is marked, too, and its kubelet deletes it
with a grace period of 0 when it has stopped. A namespace waits for its own finalizers.

The garbage collector, a controller, processes the dependents of a deleted object (ownerReferences). This
module only adds the finalizers that request foreground deletion or orphaning from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from bayplan.api.meta import Content
from bayplan.api.pod_defaults import DEFAULT_GRACE_PERIOD_SECONDS
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.kinds import Resource

FOREGROUND: Final = "Foreground"
ORPHAN: Final = "Orphan"
BACKGROUND: Final = "Background"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"
ORPHAN_FINALIZER: Final = "orphan"

_FINALIZER_OF: Final = {FOREGROUND: FOREGROUND_FINALIZER, ORPHAN: ORPHAN_FINALIZER}


class _Clock(Protocol):
    def after(self, seconds: float) -> str: ...


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete. uid and resourceVersion are preconditions."""

    grace_period_seconds: int | None = None
    propagation: str | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    def check(self, resource: Resource, content: Content) -> None:
        """Raises an error if the object does not meet the preconditions."""
        meta = content["metadata"]
        for field, wanted in (("uid", self.uid), ("resourceVersion", self.resource_version)):
            if wanted and wanted != meta[field]:
                raise statuses.failed_precondition(resource, meta["name"], field, wanted, meta[field])


def mark(resource: Resource, content: Content, options: DeleteOptions, clock: _Clock) -> bool:
    """Marks an object as being deleted, unless it can be deleted at once. Returns whether that changed it."""
    meta = content["metadata"]
    period = _grace_period(resource, content, options)
    changed = _set_finalizers(meta, options)
    if resource != kinds.PODS and can_be_deleted(resource, content):
        return changed
    if "deletionTimestamp" in meta:
        # A second deletion may only shorten the time that is left.
        if resource == kinds.PODS and period < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionTimestamp"] = clock.after(period)
            meta["deletionGracePeriodSeconds"] = period
            return True
        return changed
    meta["deletionTimestamp"] = clock.after(period)
    if resource != kinds.NAMESPACES:
        meta["deletionGracePeriodSeconds"] = period
    if "generation" in meta:
        meta["generation"] += 1
    if resource == kinds.NAMESPACES:
        content["status"] = {**(content.get("status") or {}), "phase": "Terminating"}
    return True


def can_be_deleted(resource: Resource, content: Content) -> bool:
    """Whether a marked object can be deleted now."""
    meta = content["metadata"]
    if meta.get("finalizers"):
        return False
    if resource == kinds.NAMESPACES:
        return not (content.get("spec") or {}).get("finalizers")
    return not meta.get("deletionGracePeriodSeconds")


def _grace_period(resource: Resource, content: Content, options: DeleteOptions) -> int:
    """The grace period of a pod in seconds; 0 if it never started, or has ended."""
    if resource != kinds.PODS:
        return 0
    spec, status = content.get("spec") or {}, content.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    period = options.grace_period_seconds
    if period is None:
        period = spec.get("terminationGracePeriodSeconds")
    if period is None:
        period = DEFAULT_GRACE_PERIOD_SECONDS
    return period if period >= 0 else 1


def _set_finalizers(meta: dict[str, Any], options: DeleteOptions) -> bool:
    """Sets the finalizers for the garbage collector; a later deletion may replace those of an earlier one."""
    if options.propagation is None:
        return False
    finalizers = meta.get("finalizers") or []
    wanted = [name for name in finalizers if name not in _FINALIZER_OF.values()]
    if options.propagation in _FINALIZER_OF:
        wanted.append(_FINALIZER_OF[options.propagation])
    if wanted == finalizers:
        return False
    if wanted:
        meta["finalizers"] = wanted
    else:
        meta.pop("finalizers", None)
    return True
