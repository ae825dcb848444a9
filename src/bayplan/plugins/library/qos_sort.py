"""QOSSort: among pods of equal priority, Guaranteed pods are scheduled before Burstable and BestEffort ones.

A QueueSort plugin in place of PrioritySort, as in the scheduler-plugins project. Among pods of the same
priority and class the one that has waited longest comes first.

https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from __future__ import annotations

from bayplan.plugin import Plugin, Pod, QueueSortPlugin
from bayplan.plugin.objects import qos_class


class QOSSort(Plugin, QueueSortPlugin):
    """Orders the queue by priority, class and time."""

    def sort_key(self, pod: Pod, timestamp: float) -> tuple[int, int, float]:
        return -pod.priority, qos_class(pod), timestamp
