"""PrioritySort: pods with a higher priority are scheduled first, among equals the one that has waited
longest.

The time in the queue counts, not the age: a pod that comes back from a failed attempt is behind those that
have not been tried yet.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

from bayplan.plugin import Plugin, Pod, QueueSortPlugin


class PrioritySort(Plugin, QueueSortPlugin):
    """Orders the queue."""

    def sort_key(self, pod: Pod, timestamp: float) -> tuple[int, float]:
        return -(pod.spec.priority or 0), timestamp
