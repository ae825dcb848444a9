"""How an object goes: at once, or marked and then gone when all have agreed.

An object with finalizers is only marked (`deletionTimestamp`); who put a finalizer there takes it away when
it has done its part, and with the last one the object is gone. A pod that runs is marked too, and its kubelet
deletes it, with a grace period of 0, when it has stopped. A namespace waits for its own finalizers.

Dependents of a deleted object (ownerReferences) are the garbage collector's, a controller: this only leaves
word for it, as finalizers, where the deletion asks for the dependents to go first or to be left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from bayplan.api.defaults import DEFAULT_GRACE_PERIOD_SECONDS
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.documents import Content
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
    """How to delete. A uid or resourceVersion says which object is meant."""

    grace_period_seconds: int | None = None
    propagation: str | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    def check(self, resource: Resource, content: Content) -> None:
        """Refuses to delete another object than the one that is meant."""
        meta = content["metadata"]
        for field, wanted in (("uid", self.uid), ("resourceVersion", self.resource_version)):
            if wanted and wanted != meta[field]:
                raise statuses.failed_precondition(resource, meta["name"], field, wanted, meta[field])


def mark(resource: Resource, content: Content, options: DeleteOptions, clock: _Clock) -> bool:
    """Marks the object as being deleted, unless it can go at once, and says whether that changed it."""
    meta = content["metadata"]
    period = _grace_period(resource, content, options)
    changed = _leave_word(meta, options)
    if resource != kinds.PODS and is_over(resource, content):
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


def is_over(resource: Resource, content: Content) -> bool:
    """Whether nothing keeps an object any more that has been marked."""
    meta = content["metadata"]
    if meta.get("finalizers"):
        return False
    if resource == kinds.NAMESPACES:
        return not (content.get("spec") or {}).get("finalizers")
    return not meta.get("deletionGracePeriodSeconds")


def _grace_period(resource: Resource, content: Content, options: DeleteOptions) -> int:
    """Seconds that a pod is given to end. One that never started, or has ended, needs none."""
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


def _leave_word(meta: dict[str, Any], options: DeleteOptions) -> bool:
    """Finalizers for the garbage collector; a later deletion may change what an earlier one asked for."""
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
