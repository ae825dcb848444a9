"""ResourceClaims as they are now: the newest version that the API server has shown or answered.

The scheduler writes claims itself (`claim_binder.py`), and the watch shows its own writes later. What a write
was answered with counts at once (`assume`), and a watch event with an older version changes nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.api.meta import Object
from bayplan.api.resource_claims import ResourceClaim
from bayplan.framework.events import Action
from bayplan.scheduler.handlers import ObjectHandler


class ClaimHandler(ObjectHandler):
    """Handles events of ResourceClaims."""

    def added(self, item: Object) -> None:
        self._put(item)

    def updated(self, old: Object, new: Object) -> None:
        self._put(new)

    def deleted(self, item: Object) -> None:
        known = self._known(item)
        if known is not None and known.uid == item.uid:
            super().deleted(known)

    def assume(self, claim: ResourceClaim) -> bool:
        """The API server answered a write with this version. False where the watch has not shown the claim
        yet, or no longer: it is not known then whether the claim still exists."""
        known = self._known(claim)
        if known is None or known.uid != claim.uid:
            return False
        self._put(claim)
        return True

    def freed(self, claim: ResourceClaim) -> None:
        """An allocation (of this claim) that was in flight will not be written."""
        known = self._context.cluster.objects.of(ResourceClaim).get(claim.name, claim.namespace)
        without = replace(claim, status=replace(claim.status, allocation=None))
        self._tell(Action.UPDATE, claim, without if known is None else known)

    def _put(self, item: Object) -> None:
        known = self._known(item)
        if known is None:
            super().added(item)
        elif known.uid != item.uid:
            super().deleted(known)
            super().added(item)
        elif _version(item) > _version(known):
            super().updated(known, item)

    def _known(self, item: Object) -> Object | None:
        return self._context.cluster.objects.of(ResourceClaim).get(item.name, item.namespace)


def _version(item: Object) -> int:
    """Versions of one object are numbers that grow."""
    text = item.metadata.resource_version
    return int(text) if text.isdecimal() else 0
