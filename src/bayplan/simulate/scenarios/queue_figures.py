"""What a simulation measures of capacity queues: who waits in which queue, shares, and how equal these are.

Shares are those that decide which queue is next. A queue competes while pods of it wait, and no limit keeps
out the one that has waited longest. Fairness is Jain's index of the shares of the queues that compete: 1 if
all are equal, 1/n if one of n has everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from bayplan.api.pod import Pod
from bayplan.queues.model import Blocking
from bayplan.simulate.scenarios.pods import SimulatedPod

if TYPE_CHECKING:
    from bayplan.queues.active import CapacityQueues

NO_QUEUE: Final = "(no queue)"
"""The queue of pods that no queue takes."""


class QueueSample(NamedTuple):
    """The leaves of the tree at one time."""

    shares: dict[str, float]
    """By queue."""
    competing: tuple[str, ...]
    """Queues whose pods wait although they have room."""


class QueueFigures:
    """Collects the figures of capacity queues. Nothing here changes what they do."""

    def __init__(self, queues: CapacityQueues) -> None:
        self._queues = queues
        self.pods: dict[str, list[SimulatedPod]] = {}
        """By queue, in the order of arrival."""
        self.samples: list[QueueSample] = []
        self._new: dict[str, tuple[SimulatedPod, Pod]] = {}
        """By uid: pods whose queue was not asked for yet. Their group may be created after them."""
        self._waiting: dict[str, dict[str, Pod]] = {}
        """By queue and uid: pods without a node."""

    def arrived(self, pod: SimulatedPod, stored: Pod) -> None:
        self._new[pod.uid] = (pod, stored)

    def left(self, pod: SimulatedPod) -> None:
        """The pod got a node, or ended without one."""
        self._place(pod.uid)
        self._waiting.get(pod.queue, {}).pop(pod.uid, None)

    def limit_of(self, stored: Pod) -> str:
        """The limit that a pod waits for, without amounts; "" if it has room."""
        found = self._queues.blocking(stored)
        return found.without_amounts() if isinstance(found, Blocking) else found or ""

    def sample(self) -> None:
        for uid in list(self._new):
            self._place(uid)
        self._queues.refresh()
        leaves = [queue for queue in self._queues.partition.root.downwards() if queue.is_leaf]
        competing = (name for name, pods in sorted(self._waiting.items()) if pods and self._competes(pods))
        self.samples.append(
            QueueSample(
                {self._queues.name_of(leaf): self._queues.share(leaf) for leaf in leaves}, tuple(competing)
            )
        )

    def _place(self, uid: str) -> None:
        found = self._new.pop(uid, None)
        if found is not None:
            pod, stored = found
            pod.queue = self._queues.queue_of(stored) or NO_QUEUE
            self.pods.setdefault(pod.queue, []).append(pod)
            if not pod.node_name:
                self._waiting.setdefault(pod.queue, {})[uid] = stored

    def _competes(self, pods: dict[str, Pod]) -> bool:
        return self._queues.blocking(next(iter(pods.values()))) is None


def jain_index(shares: Sequence[float]) -> float:
    """How equal shares are: 1 if all are, 1/n if one of n has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
