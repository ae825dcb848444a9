"""What a benchmark needs of the thing it measures, and no more.

The runner knows nothing of the scheduler: it speaks this protocol, which `core.py` implements with the
decision core and tests implement with a few lines. A later way to measure (the whole scheduler against
the embedded API server) implements it too, and all workloads run against it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod


class Outcome(Protocol):
    """How one attempt to schedule a pod ended.

    One of three: `node` is where the pod now counts as running; `victims` have to go before it can be
    tried again; or neither, and it fits nowhere.
    """

    @property
    def node(self) -> str | None: ...

    @property
    def victims(self) -> Sequence[Pod]: ...


class CoreUnderTest(Protocol):
    """A cluster and a scheduler for it, driven one call at a time."""

    @property
    def rows_evaluated(self) -> int:
        """Node rows that filters or scores were computed for, since the beginning.

        A pass over all of 5,000 nodes adds 5,000, a pass over the one row that changed adds 1. It shows
        whether what is known is used again.
        """
        ...

    def add_namespace(self, namespace: Namespace) -> None: ...

    def add_node(self, node: Node) -> None: ...

    def schedule_one(self, pod: Pod) -> Outcome:
        """Decide where the pod goes and, if it fits, count it as running there (assume it).

        This call is what is measured: from the decoded pod to the assumed one. It may be called again
        with the same pod, after `evict`.
        """
        ...

    def evict(self, preemptor: Pod, outcome: Outcome) -> None:
        """Take the outcome's victims out of the cluster, and nominate the preemptor to their node."""
        ...
