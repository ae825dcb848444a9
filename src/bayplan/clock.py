"""One clock: what changed in the cluster, when, and in which row.

A change belongs to a topic, and every change gets the next number of one counter as its time. `Changes`
lists the topics. Most are about the whole cluster (`Topic`); a `Log` also remembers what exactly changed: the
row of the node table, or the object.

A value that is derived from the cluster has a `Freshness`: the topics it depends on and the time when it was
last brought up to date. Its owner brings it up to date in a `with` statement, which tells what is stale:

    nothing it depends on is newer            → nothing to do
    a log it depends on is newer              → those rows
    another topic is newer, or the log was    → everything
    trimmed beyond that time

and marks the value as current at the end, but not after an exception. Objects that changed are asked for with
`recorded`. A derived value that others are derived from has a topic of its own, on the same clock. No other
module compares times (`tests/test_clock.py`). Indexes built this way are in `state/derived.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Generic, TypeVar

from bayplan.api.meta import Object

T = TypeVar("T")

NEVER: Final = -1
"""The time of a value that was never computed: before every change."""

MAX_HISTORY: Final = 16384
"""The maximum number of entries of a log; above it the older half is dropped. An older value is computed from
scratch, which costs no more than processing so many changes."""

COUNT_HISTORY: Final = 1024
"""The same for one count of pods (`PodCount`, `TermCarriers`), of which there may be thousands."""


class Clock:
    """Counts changes. `now` is the time of the last one."""

    __slots__ = ("now", "topics_changed_at")

    def __init__(self) -> None:
        self.now = 0
        self.topics_changed_at = 0
        """The time of the last change that is not an entry of a log. While pods come and go there is none, so
        that a value has no topics to compare but its logs."""


class Topic:
    """Something that derived values depend on, and when it last changed."""

    __slots__ = ("changed_at", "clock")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.changed_at = 0

    def change(self) -> None:
        """Records a change."""
        clock = self.clock
        self.changed_at = clock.topics_changed_at = clock.now = clock.now + 1


class Log(Topic, Generic[T]):
    """A topic that records what changed: rows, or objects. An item may occur several times."""

    __slots__ = ("_complete_since", "_items", "_max", "_times")

    def __init__(self, clock: Clock, max_history: int | None = None) -> None:
        super().__init__(clock)
        self._max = MAX_HISTORY if max_history is None else max_history
        self._items: list[T] = []
        self._times: list[int] = []
        self._complete_since = 0

    def record(self, item: T) -> None:
        """Records a change of this item."""
        clock = self.clock
        self.changed_at = now = clock.now = clock.now + 1
        self._items.append(item)
        self._times.append(now)
        if len(self._items) > self._max:
            self.trim()

    def trim(self) -> None:
        """Drops the older half."""
        drop = (len(self._items) + 1) // 2
        if drop:
            self._complete_since = self._times[drop - 1]
            del self._items[:drop], self._times[:drop]

    def history(self) -> Sequence[T] | None:
        """All changes since the beginning, oldest first; None if the log does not reach back that far."""
        return self.since(0)

    def since(self, time: int) -> Sequence[T] | None:
        """What changed after this time, oldest first; None if the log does not reach back that far."""
        if time < self._complete_since:
            return None
        times = self._times
        if times and times[-1] > time and (len(times) == 1 or times[-2] <= time):
            # The usual case: one pod was added.
            return self._items[-1:]
        return self._items[bisect_right(times, time) :]


class Freshness:
    """When a derived value was last brought up to date, and what it depends on.

    Everything is stale after a change of the `topics`; the recorded rows are stale after a change of the
    `rows`; what a change of the `objects` means is up to the owner, who asks for them (`recorded`).

        with freshness as stale:    # none, some rows, or everything (None)
            ...                     # if this raises an exception, the value remains stale
    """

    __slots__ = ("_all_logs", "_clock", "_rows", "_time", "_topics", "_whole_logs")

    def __init__(
        self,
        clock: Clock,
        topics: Sequence[Topic] = (),
        rows: Sequence[Log[int]] = (),
        objects: Sequence[Topic] = (),
    ) -> None:
        self._clock = clock
        plain: list[Topic] = []
        logs: list[Topic] = []
        for topic in topics:
            (logs if isinstance(topic, Log) else plain).append(topic)
        self._topics = plain
        self._whole_logs = logs
        """Logs after whose changes everything is stale."""
        self._rows = tuple(rows)
        self._all_logs = (*logs, *rows, *objects)
        self._time = NEVER

    def stale_rows(self) -> Sequence[int] | None:
        """The rows to compute again: none, some, or everything (None)."""
        time = self._time
        if time == self._clock.now:
            return ()
        if time == NEVER:
            return None
        if self._clock.topics_changed_at > time:
            for topic in self._topics:
                if topic.changed_at > time:
                    return None
        for log in self._whole_logs:
            if log.changed_at > time:
                return None
        rows: Sequence[int] = ()
        for log in self._rows:
            if log.changed_at > time:
                found = log.since(time)
                if found is None:
                    return None
                rows = [*rows, *found] if rows else found
        return rows

    def recorded(self, log: Log[T]) -> Sequence[T] | None:
        """What one log has recorded since the value was up to date, oldest first.

        None: read everything, because the value was never up to date or the log does not reach back that far.
        """
        return () if log.changed_at <= self._time else log.since(self._time)

    @property
    def is_current(self) -> bool:
        """Whether nothing that the value depends on has changed. If so, it is as good as computed now."""
        time, clock = self._time, self._clock
        if time == clock.now:
            return True
        if clock.topics_changed_at > time:
            for topic in self._topics:
                if topic.changed_at > time:
                    return False
        for log in self._all_logs:
            if log.changed_at > time:
                return False
        if time == NEVER:
            return False
        # Topics that changed before are not compared again.
        self._time = clock.now
        return True

    @property
    def is_now(self) -> bool:
        """Whether nothing at all has changed since."""
        return self._time == self._clock.now

    def mark_current(self) -> None:
        """The value is up to date. Call it when the work is done, or use `with`."""
        self._time = self._clock.now

    def __enter__(self) -> Sequence[int] | None:
        return self.stale_rows()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._time = self._clock.now


class Changes:
    """The topics of one cluster.

    | topic | changes when |
    |---|---|
    | usage (rows) | a pod was added to the row or removed from it |
    | nodes (rows) | the Node object of the row changed, or another that belongs to it (`belongs_to_nodes`) |
    | nominations (rows) | a nomination to the row was added or removed, or the order of its pods changed |
    | size | the node table has more rows than before |
    | order | a node was added or removed |
    | topology | a node was added or removed, or its labels or taints changed; the node table grew |
    | images | a node was added or removed, or its images changed |
    | terms | the set of (anti-)affinity terms that assigned pods carry changed |
    | queries | counts of pods were dropped (`PodCounts`) and have to be requested again |
    | objects | an object of another kind than pods and nodes changed, unless it `is_per_pod` |
    | kind(K) (objects) | an object of kind K was added, changed or removed |
    """

    def __init__(self) -> None:
        self.clock = clock = Clock()
        self.usage: Log[int] = Log(clock)
        self.nodes: Log[int] = Log(clock)
        self.nominations: Log[int] = Log(clock)
        self.size = Topic(clock)
        self.order = Topic(clock)
        self.topology = Topic(clock)
        self.images = Topic(clock)
        self.terms = Topic(clock)
        self.queries = Topic(clock)
        self.objects = Topic(clock)
        self._kinds: dict[type[Object], ObjectLog] = {}

    def kind(self, kind: type[Object]) -> ObjectLog:
        """The changes of objects of one kind: each the object before (or None) and after (or None)."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = Log(self.clock)
        return found

    def kinds(self, kinds: Sequence[type[Object]]) -> list[Topic]:
        return [self.kind(kind) for kind in kinds]

    def times(self) -> list[int]:
        """When each topic changed last: equal as long as none of them changes."""
        return [topic.changed_at for topic in vars(self).values() if isinstance(topic, Topic)]

    def freshness(
        self, topics: Sequence[Topic] = (), rows: Sequence[Log[int]] = (), objects: Sequence[Topic] = ()
    ) -> Freshness:
        """The freshness of a value that depends on these topics and is not computed yet."""
        return Freshness(self.clock, topics, rows, objects)


ObjectLog = Log[tuple[Object | None, Object | None]]
