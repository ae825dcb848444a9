"""Pods that were rejected or are gated, until an event may make them schedulable.

They are indexed by the plugins that rejected them, so that an event visits only pods whose rejecting plugin
registered it: the cost of an event is proportional to the pods it may concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from bayplan.api.pod import Pod
from bayplan.scheduling_queue.queued import QueuedPod

Rejector = tuple[str, str]
"""A profile and the name of one of its plugins."""

IndexKey = tuple[str, ...]
"""A rejector, or a rejector and the key of an object that its pods wait for."""

KeysOf = Callable[[Rejector, Pod], Iterable[str]]


def _no_keys(rejector: Rejector, pod: Pod) -> Iterable[str]:
    return ()


class UnschedulablePods:
    """Waiting pods by key and by rejector.

    `keys_of` returns the keys that a pod waits for which a plugin rejected (`WaitingKeysPlugin`).
    """

    label = "unschedulable"

    def __init__(self, keys_of: KeysOf = _no_keys) -> None:
        self._keys_of = keys_of
        self.pods: dict[str, QueuedPod] = {}
        self._index: dict[IndexKey, dict[str, QueuedPod]] = {}
        self._oldest = inf
        """No pod has been here since before this time."""

    def __len__(self) -> int:
        return len(self.pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self.pods.values())

    @property
    def gated_count(self) -> int:
        return sum(1 for info in self.pods.values() if info.gating_plugin)

    def put(self, info: QueuedPod) -> None:
        """Adds the pod, or updates its index entries if it is already here."""
        self.unindex(info)
        profile, key = info.profile, info.key
        info.sub_queue = self
        info.index_keys = tuple(self._index_keys(profile, info))
        self.pods[key] = info
        for index_key in info.index_keys:
            self._index.setdefault(index_key, {})[key] = info
        self._oldest = min(self._oldest, info.waits_since)

    def _index_keys(self, profile: str, info: QueuedPod) -> Iterator[IndexKey]:
        for plugin in info.rejectors:
            rejector = (profile, plugin)
            yield rejector
            for key in dict.fromkeys(self._keys_of(rejector, info.pod)):
                yield (profile, plugin, key)

    def reindex(self, info: QueuedPod) -> None:
        """Updates the index after a change of what the pod waits for, unless the pod is not in the index."""
        if info.index_keys and info.index_keys != tuple(self._index_keys(info.profile, info)):
            self.put(info)

    def remove(self, info: QueuedPod) -> None:
        self.unindex(info)
        info.sub_queue = None
        del self.pods[info.key]
        if not self.pods:
            self._oldest = inf

    def rejected_by(self, index_keys: Iterable[IndexKey]) -> list[QueuedPod]:
        """The pods that at least one of these plugins rejected, each once."""
        groups = [group for index_key in index_keys if (group := self._index.get(index_key))]
        if len(groups) == 1:
            return list(groups[0].values())
        found: dict[str, QueuedPod] = {}
        for group in groups:
            found.update(group)
        return list(found.values())

    def earliest_overdue(self, max_stay: float) -> float | None:
        """A time before which no pod has been here for longer than `max_stay`."""
        return self._oldest + max_stay if self.pods else None

    def overdue(self, now: float, max_stay: float) -> list[QueuedPod]:
        """The pods that have been here for longer than that."""
        if not self.pods or now - self._oldest <= max_stay:
            return []
        self._oldest = min(info.waits_since for info in self.pods.values())
        return [info for info in self.pods.values() if now - info.waits_since > max_stay]

    def unindex(self, info: QueuedPod) -> None:
        """Removes a pod from the index, so that events do not reach it until it is put in again."""
        for index_key in info.index_keys:
            group = self._index[index_key]
            del group[info.key]
            if not group:
                del self._index[index_key]
        info.index_keys = ()
