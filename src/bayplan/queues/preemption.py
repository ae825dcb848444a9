"""CapacityPreemption: a queue below its guarantee takes from queues above theirs.

A pod that has room in its queue but finds no node may evict pods of other queues, if its queue is owed what
it asks for, after the delay of its queue. Victims are chosen as by DefaultPreemption (all that one node needs
or none, PodDisruptionBudgets first), among the pods that `victims.py` allows: of equal or lower priority
within the fences, and only as long as every queue keeps its guarantee. So a victim cannot take back from its
preemptor: its own queue is not owed anything.

This plugin takes the place of DefaultPreemption where capacity queues are configured: priority alone evicts
no pod, because a queue would then lose what it was guaranteed to a pod of its own or of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bayplan.api.pod import Pod
from bayplan.framework.outcome import FilterOutcome, Nomination, PostFilterResult
from bayplan.framework.state import CycleState
from bayplan.framework.status import unschedulable
from bayplan.preemption.plugin import PreemptionPlugin
from bayplan.preemption.victims import MayEvict
from bayplan.queues import victims
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts
from bayplan.queues.tree import Queue, Task
from bayplan.queues.usage import created_at
from bayplan.queues.yunikorn.pods import facts

NOT_OWED: Final = "preemption: queue {queue} is not owed what the pod asks for"
TOO_EARLY: Final = "preemption: queue {queue} may take from others {seconds:g} s after a pod was created"
NEVER: Final = "preemption: not eligible due to preemptionPolicy=Never."


class CapacityPreemption(PreemptionPlugin):
    """Preempts pods of queues above their guarantee for a queue below its own."""

    queues: CapacityQueues | None = None
    """Set by the scheduler."""

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        queues = self.queues
        if queues is None:
            return PostFilterResult(unschedulable("preemption: there are no capacity queues"))
        known = facts(pod)
        if not known.may_preempt:
            return PostFilterResult(unschedulable(NEVER))
        leaf = queues.group_of(pod).queue
        delay = leaf.policy.preemption_delay
        remaining = created_at(pod) + delay - self.handle.now()
        if remaining > 0:
            self.handle.call_later(remaining, lambda: self.handle.activate([pod]))
            return PostFilterResult(
                unschedulable(TOO_EARLY.format(queue=leaf.path, seconds=delay)), Nomination("")
            )
        if not victims.is_owed(self._candidates(pod, leaf), queues.amounts_of(pod)):
            return PostFilterResult(unschedulable(NOT_OWED.format(queue=leaf.path)), Nomination(""))
        return super().post_filter(state, pod, outcome)

    def _candidates(self, pod: Pod, leaf: Queue) -> victims.Candidates:
        assert self.queues is not None
        return victims.candidates(leaf, self.queues.amounts_of(pod), pod.priority)

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        queues = self.queues
        assert queues is not None
        asked, leaf = queues.amounts_of(pod), queues.group_of(pod).queue
        by_key = {task.key: task for task in self._candidates(pod, leaf).tasks}

        def allowed(row: int, pods: Sequence[Pod]) -> Sequence[Pod]:
            tasks = [task for each in pods if (task := by_key.get(each.uid)) is not None]
            chosen = within_guarantees(leaf, asked, tasks)
            return [each for each in pods if each.uid in chosen]

        return allowed


def within_guarantees(asking: Queue, asked: Amounts, tasks: Sequence[Task]) -> set[str]:
    """The keys of the tasks that may all go together, so that every queue keeps its guarantee."""
    world, chosen = victims.Hypothesis(asking), set()
    for task in sorted(tasks, key=victims.victim_key):
        queue = task.group.queue
        if victims.may_lose(world, queue, asked) and victims.keeps_guarantee(world, queue, task.amounts):
            world.remove(queue, task.amounts)
            chosen.add(task.key)
    return chosen
