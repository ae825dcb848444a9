"""Keeps a copy of all objects of a kind, and calls a handler for every change.

It lists, then watches from there. A watch that ends is resumed. After a watch that is too old or fails, it
lists again, and reports the differences from the copy as if they had been watched. So whatever events are
lost, the copy becomes correct, and nothing is reported twice.

After a failure it retries with backoff. Only a watch that is too old (410) is different, unless there was
another failure in the last two minutes: it lists at once.

An object that cannot be read is quarantined: it is logged once and counted, and its last readable version
stays in the copy; if there is none, the substitute of `api/reading.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar, cast

from bayplan.api.check import quantity_check, quantity_problems
from bayplan.api.cluster_api import Change, ClusterAPI, WatchEvent
from bayplan.api.meta import Object, version_number
from bayplan.api.reading import Unreadable, fills_node, last_version, stand_in, with_readable_quantities
from bayplan.client.api_errors import OnceLogger, explained
from bayplan.errors import APIError, GoneError, QuantityError

FIRST_BACKOFF_SECONDS: Final = 0.8
MAX_BACKOFF_SECONDS: Final = 30.0
BACKOFF_RESET_SECONDS: Final = 120.0

_DELETED: Final = Change.DELETED
_BOOKMARK: Final = Change.BOOKMARK

ObjectT = TypeVar("ObjectT", bound=Object)
ObjectT_contra = TypeVar("ObjectT_contra", bound=Object, contravariant=True)

_log = logging.getLogger(__name__)


class Handler(Protocol[ObjectT_contra]):
    """Called for every change, in order."""

    def added(self, item: ObjectT_contra) -> None: ...
    def updated(self, old: ObjectT_contra, new: ObjectT_contra) -> None: ...
    def deleted(self, item: ObjectT_contra) -> None: ...


class _Both(Generic[ObjectT]):
    """Two handlers, one after the other."""

    def __init__(self, first: Handler[ObjectT], second: Handler[ObjectT]) -> None:
        self._first = first
        self._second = second

    def added(self, item: ObjectT) -> None:
        self._first.added(item)
        self._second.added(item)

    def updated(self, old: ObjectT, new: ObjectT) -> None:
        self._first.updated(old, new)
        self._second.updated(old, new)

    def deleted(self, item: ObjectT) -> None:
        self._first.deleted(item)
        self._second.deleted(item)


class Informer(Generic[ObjectT]):
    """One kind of objects. `run` continues until it is cancelled.

    With `optional`, a kind that the server does not serve counts as synced, without objects; otherwise
    `synced` waits for it.
    """

    def __init__(
        self,
        api: ClusterAPI,
        kind: type[ObjectT],
        handler: Handler[ObjectT],
        *,
        rng: random.Random | None = None,
        optional: bool = False,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.problem = ""
        """Why the last list or watch failed, and what to do about it; empty if it succeeded."""
        self.resource_version = ""
        """Everything up to this resourceVersion has been handled."""
        self.observe: Callable[[float], None] | None = None
        """Called with the seconds that it took to handle each list and each batch of changes."""
        self._api = api
        self.handler = handler
        """Called for every change. It may be replaced by one that passes on what it gets."""
        self._rng = rng or random.Random(0)
        self._optional = optional
        self._problems = OnceLogger(_log, logging.WARNING)
        self.unreadable: dict[tuple[str, str], Unreadable] = {}
        """Objects that are unreadable in their current version."""
        self._objects: dict[tuple[str, str], ObjectT] = {}
        self._indexes: dict[str, dict[tuple[str, str], dict[str, ObjectT]]] = {}
        """By label key, for keys that were queried; then by namespace and value, and by name."""
        self._backoff = FIRST_BACKOFF_SECONDS
        self._failed_at = float("-inf")

    @cached_property
    def _check(self) -> Callable[[ObjectT], object]:
        """Made for the first object: most kinds have none, and making it takes a moment."""
        return quantity_check(self.kind)

    def report_also(self, handler: Handler[ObjectT]) -> None:
        """Calls another handler after the first one. It has to come before the first list."""
        self.handler = _Both(self.handler, handler)

    def get(self, name: str, namespace: str = "") -> ObjectT | None:
        return self._objects.get((namespace, name))

    def all(self) -> list[ObjectT]:
        return list(self._objects.values())

    def version(self) -> str:
        """The resourceVersion up to which everything has been handled; empty before the first list."""
        return self.resource_version

    def is_up_to(self, version: str) -> bool:
        """Whether everything up to this resourceVersion has been handled."""
        ours, theirs = version_number(self.resource_version), version_number(version)
        return theirs is None or (ours is not None and ours >= theirs)

    def with_label(self, namespace: str, key: str, value: str) -> Collection[ObjectT]:
        """All objects with this label. The first query for a key creates an index."""
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = {}
            for item in self._objects.values():
                if key in item.labels:
                    index.setdefault((item.namespace, item.labels[key]), {})[item.name] = item
        return index.get((namespace, value), {}).values()

    async def run(self) -> None:
        while True:
            try:
                items, version = await self._api.list(self.kind)
                started = perf_counter()
                self.replace(items, version)
                if self.observe is not None:
                    self.observe(perf_counter() - started)
                self.problem = ""
                self.synced.set()
                await self._watch()
            except GoneError as error:
                if self._is_first_failure():
                    _log.info("watch of %s is too old, listing again: %s", self.kind.__name__, error)
                else:
                    self._problems.log(
                        f"watches of {self.kind.__name__} keep expiring, listing with backoff: {error}"
                    )
                    await self._back_off()
            except APIError as error:
                self._is_first_failure()
                self._failed(error)
                await self._back_off()

    def _failed(self, error: APIError) -> None:
        known, self.problem = self.problem, explained(error)
        if self._optional and error.code == 404:
            self.replace((), "")
            self.synced.set()
            if known != self.problem:
                _log.info(
                    "the API server does not serve %s, continuing without it: %s", self.kind.__name__, error
                )
        else:
            self._problems.log(f"cannot list or watch {self.kind.__name__}, trying again: {self.problem}")

    async def _watch(self) -> None:
        """Watches, and resumes the watch as long as it ends without an error."""
        while True:
            opened = asyncio.get_running_loop().time()
            has_events = False
            async for batch in self._api.watch(self.kind, self.resource_version):
                has_events = True
                if self._problems.unresolved:
                    self._problems.resolved(f"{self.kind.__name__} can be watched again")
                started = perf_counter()
                self.apply(batch)
                if self.observe is not None:
                    self.observe(perf_counter() - started)
            if not has_events and asyncio.get_running_loop().time() - opened < 1.0:
                raise APIError(f"watch of {self.kind.__name__} ended at once")

    def _is_first_failure(self) -> bool:
        """Records a failure; whether it is the first one in a while, so that backoff starts again."""
        now = asyncio.get_running_loop().time()
        is_first = now - self._failed_at > BACKOFF_RESET_SECONDS
        if is_first:
            self._backoff = FIRST_BACKOFF_SECONDS
        self._failed_at = now
        return is_first

    async def _back_off(self) -> None:
        seconds = self._backoff * (1 + self._rng.random())
        self._backoff = min(2 * self._backoff, MAX_BACKOFF_SECONDS)
        await asyncio.sleep(seconds)

    def replace(self, items: Sequence[ObjectT], version: str) -> None:
        """Replaces the copy by a new list; objects missing in it have been deleted.

        The handler is called when the copy is complete: handlers that read several objects see a consistent
        state.
        """
        deleted = dict(self._objects)
        read = []
        for received in items:
            known = self._objects.get((received.namespace, received.name))
            if (item := self._read(received, known)) is not None:
                deleted.pop((item.namespace, item.name), None)
                read.append(item)
        listed = {(item.namespace, item.name) for item in items} if self.unreadable else set()
        for key in self.unreadable.keys() - listed:
            del self.unreadable[key]
        for item in deleted.values():
            self._remove(item)
        replaced = []
        for item in read:
            old = self._objects.get((item.namespace, item.name))
            self._store(old, item)
            replaced.append((old, item))
        for old, item in replaced:
            self._notify(old, item)
        self.resource_version = version

    def apply(self, batch: Sequence[WatchEvent[ObjectT]]) -> None:
        objects = self._objects
        for event in batch:
            item = event.object
            if item is not None:
                meta = item.metadata
                known = objects.get((meta.namespace, meta.name))
                if known is not None and is_older_version(
                    meta.resource_version, known.metadata.resource_version
                ):
                    pass  # The event is outdated, or about an earlier object of the same name.
                elif event.change is _DELETED:
                    self._remove(item)
                elif event.change is not _BOOKMARK:
                    self._change(known, item)
            self.resource_version = event.resource_version

    def _change(self, known: ObjectT | None, received: ObjectT) -> None:
        item = self._read(received, known)
        if item is not None:
            self._store(known, item)
            self._notify(known, item)
        elif known is not None:
            self._remove(known)

    def _read(self, received: ObjectT, known: ObjectT | None) -> ObjectT | None:
        """The object to store in the copy: the received one, or a substitute. None to store nothing."""
        if not self.unreadable and type(received) is not Unreadable:
            try:
                self._check(received)
            except QuantityError:
                pass
            else:
                return received
        item = with_readable_quantities(received)
        key = (item.metadata.namespace, item.metadata.name)
        if type(item) is not Unreadable:
            if self.unreadable and self.unreadable.pop(key, None) is not None:
                _log.info("%s %s can be read again", self.kind.__name__, item.key)
            return cast(ObjectT, item)
        last = None if known is None or item.uid not in ("", known.uid) else last_version(known, item)
        before = self.unreadable.get(key)
        if before is None or (before.uid, before.fields) != (item.uid, item.fields):
            _log.error(
                "%s %s cannot be read: %s: %s; %s",
                self.kind.__name__,
                item.key,
                item.fields[0],
                item.problem,
                _consequence(item, is_known=last is not None),
            )
        self.unreadable[key] = item
        if last is not None and not item.is_usable:
            return last
        return cast(ObjectT | None, stand_in(item))

    def _store(self, old: ObjectT | None, item: ObjectT) -> None:
        """Adds an object to the copy, or replaces it."""
        self._objects[item.metadata.namespace, item.metadata.name] = item
        if self._indexes:
            if old is not None:
                self._unindex(old)
            self._index(item)

    def _notify(self, old: ObjectT | None, item: ObjectT) -> None:
        if old is None:
            self.handler.added(item)
            return
        was, now = old.metadata, item.metadata
        if was.uid != now.uid:
            # Deleted and created again with the same name, without an event for the deletion.
            self.handler.deleted(old)
            self.handler.added(item)
        elif was.resource_version != now.resource_version or not now.uid:
            self.handler.updated(old, item)

    def _remove(self, item: ObjectT) -> None:
        # The handler knows the object in the copy; the object of the event may be newer.
        key = (item.metadata.namespace, item.metadata.name)
        was_unreadable = self.unreadable.pop(key, None) is not None
        known = self._objects.pop(key, None)
        if known is not None:
            if self._indexes:
                self._unindex(known)
            is_other = was_unreadable or item.uid != known.uid or type(item) is Unreadable
            if is_other or quantity_problems(item):
                item = known
            self.handler.deleted(item)

    def _index(self, item: ObjectT) -> None:
        for index, entry in self._index_entries(item):
            index.setdefault(entry, {})[item.name] = item

    def _unindex(self, item: ObjectT) -> None:
        for index, entry in self._index_entries(item):
            here = index[entry]
            del here[item.name]
            if not here:
                del index[entry]

    def _index_entries(
        self, item: ObjectT
    ) -> Iterator[tuple[dict[tuple[str, str], dict[str, ObjectT]], tuple[str, str]]]:
        """The indexes that contain an object, with its key in each."""
        labels = item.labels
        for key, index in self._indexes.items():
            if key in labels:
                yield index, (item.namespace, labels[key])


def is_older_version(theirs: str, ours: str) -> bool:
    """Whether a resourceVersion is older than another one; False if they have no order."""
    if theirs >= ours and len(theirs) == len(ours):
        # Of numbers of equal length the one that sorts later is greater.
        return False
    new, old = version_number(theirs), version_number(ours)
    return new is not None and old is not None and new < old


def _consequence(item: Unreadable, *, is_known: bool) -> str:
    if item.is_usable:
        return "this time counts as 1970"
    if is_known:
        return "the last version that could be read is used"
    if fills_node(item):
        return "its node takes no other pods"
    return "it is ignored" if stand_in(item) is None else "the rest of it is used"
