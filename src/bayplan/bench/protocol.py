"""The interface between the benchmarks and what they measure.

The runner does not depend on the scheduler: it uses this protocol, which `core.py` implements with the
decision core and tests implement with a few lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod


class Outcome(Protocol):
    """The result of one attempt to schedule a pod.

    One of three: `node` is where the pod now counts as running; `victims` have to be evicted before it can be
    tried again; or neither, and it fits on no node.
    """

    @property
    def node(self) -> str | None: ...

    @property
    def victims(self) -> Sequence[Pod]: ...


class CoreUnderTest(Protocol):
    """A cluster and a scheduler for it, driven one call at a time."""

    @property
    def rows_evaluated(self) -> int:
        """Node rows that filters or scores were computed for, in total.

        Evaluating all of 5,000 nodes adds 5,000, evaluating the one row that changed adds 1. It shows whether
        cached results are used.
        """
        ...

    def add_namespace(self, namespace: Namespace) -> None: ...

    def add_node(self, node: Node) -> None: ...

    def schedule_one(self, pod: Pod) -> Outcome:
        """Schedules the pod and, if it fits, assumes it on the node.

        This call is measured: from the decoded pod to the assumed one. It may be called again with the same
        pod, after `evict`.
        """
        ...

    def evict(self, preemptor: Pod, outcome: Outcome) -> None:
        """Removes the outcome's victims from the cluster, and nominates the preemptor to their node."""
        ...
