"""SchedulingGates: a pod with gates is not scheduled until all of them are removed.

Controllers that know that a pod cannot run yet (a quota, a queue of jobs) add a gate, so that the scheduler
does not try without success. Gates can only be removed, each by the controller that owns it.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    Plugin,
    Pod,
    PreEnqueuePlugin,
    Resource,
    Status,
    event_with_hint,
    unresolvable,
)

REASON: Final = "waiting for scheduling gates: [{gates}]"


class SchedulingGates(Plugin, PreEnqueuePlugin):
    """Keeps gated pods out of the queue."""

    pre_enqueue_field: ClassVar = "scheduling_gates"

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(
                Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, self.is_itself
            )
        ]

    def is_itself(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        return new.uid == pod.uid

    def pre_enqueue(self, pod: Pod) -> Status | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        return unresolvable(REASON.format(gates=" ".join(gate.name for gate in gates)))
