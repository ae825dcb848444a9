"""ResourceClaims in the newest version that the API server has sent, by watch or as the response to a write.

The scheduler writes claims itself (`claim_binder.py`), and the watch delivers its own writes later. So the
response to a write is used at once (`assume`), and a watch event with an older version is ignored. Versions
that are no numbers have no order: of those the versions that our own writes replaced are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Object, is_older_version, version_number
from bayplan.framework.events import Action
from bayplan.scheduler.context import Context
from bayplan.scheduler.handlers import ObjectHandler


class ClaimHandler(ObjectHandler):
    """Handles events of ResourceClaims."""

    def __init__(self, context: Context, resource: str, changed: Callable[[], None]) -> None:
        super().__init__(context, resource, changed)
        self._claims = context.cluster.objects.of(ResourceClaim)
        self._replaced: dict[str, Collection[str]] = {}
        """By uid: versions without order that a write replaced, until the watch delivers another one."""

    def added(self, item: Object) -> None:
        self._put(item)

    def updated(self, old: Object, new: Object) -> None:
        self._put(new)

    def deleted(self, item: Object) -> None:
        known = self._known(item)
        if known is not None and known.uid == item.uid:
            self._replaced.pop(item.uid, None)
            super().deleted(known)

    def assume(self, claim: ResourceClaim, replaced: Collection[str] = ()) -> bool:
        """Stores the version that the API server returned for a write, which replaced these versions.

        False if the watch has not delivered the claim yet, or has deleted it: it may no longer exist.
        """
        known = self._known(claim)
        if known is None or known.metadata.uid != claim.metadata.uid:
            return False
        self._update(known, claim)
        if any(version_number(version) is None for version in replaced):
            self._replaced[claim.uid] = replaced
        return True

    def freed(self, claim: ResourceClaim) -> None:
        """Notifies the queue that the allocation of this claim, which was in flight, will not be written."""
        known = self._known(claim)
        without = replace(claim, status=replace(claim.status, allocation=None))
        self._notify_queue(Action.UPDATE, claim, without if known is None else known)

    def _put(self, item: Object) -> None:
        known = self._known(item)
        if known is None:
            super().added(item)
        elif known.metadata.uid != item.metadata.uid:
            super().deleted(known)
            super().added(item)
        elif not self._replaced or not self._is_replaced(item):
            self._update(known, item)

    def _is_replaced(self, item: Object) -> bool:
        """Whether the watch delivers a version that a write has replaced. After these come newer ones."""
        uid = item.metadata.uid
        if item.metadata.resource_version in self._replaced.get(uid, ()):
            return True
        self._replaced.pop(uid, None)
        return False

    def _update(self, known: Object, item: Object) -> None:
        """Stores the item if it is newer. Usually the watch delivers a version that is known already."""
        was, now = known.metadata.resource_version, item.metadata.resource_version
        if was != now and not is_older_version(now, was):
            super().updated(known, item)

    def _known(self, item: Object) -> ResourceClaim | None:
        meta = item.metadata
        return self._claims.get(meta.name, meta.namespace)
