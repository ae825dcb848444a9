"""The order in which capacity queues take pods, without queues: what that order alone costs.

    bayplan bench WithoutQueues --nodes 5000 --pods 100000 \\
      --plugin benchmarks/turns.py:TakeTurns --config benchmarks/turns.yaml

Queues let applications take turns, so that neighbours in the queue are not neighbours in memory. This plugin
gives the pods of the workload the same order by a sort key. What WithoutQueues takes with it, beyond what it
takes without, is the cost of the order; what CapacityQueues takes beyond that is the cost of the queues.
"""

from __future__ import annotations

from bayplan.bench.queues import APPLICATIONS_A_LEAF, PODS_AN_APPLICATION
from bayplan.plugin import Plugin, Pod, QueueSortPlugin

PODS_A_LEAF = PODS_AN_APPLICATION * APPLICATIONS_A_LEAF


class TakeTurns(Plugin, QueueSortPlugin):
    """One pod of each queue after the other."""

    def sort_key(self, pod: Pod, timestamp: float) -> tuple[int, int]:
        number = int(pod.name.rpartition("-m")[2])
        turn = number % PODS_A_LEAF
        return turn, number // PODS_A_LEAF
