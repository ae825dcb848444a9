"""PreemptionToleration: pods of some PriorityClasses are not preempted, or not at once.

It preempts as DefaultPreemption does, but spares pods whose PriorityClass tolerates preemption. Two
annotations of the class, those of the scheduler-plugins project, say when:

    minimum-preemptable-priority   pods of lower priority than this have to spare it; default: value + 1
    toleration-seconds             for so long after it was scheduled; negative: always; default: 0

"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from bayplan.plugin import CycleState, FilterOutcome, Pod
from bayplan.plugin.args import DefaultPreemptionArgs
from bayplan.plugin.objects import PriorityClass
from bayplan.plugin.preemption import MayEvict, PreemptionPlugin

ANNOTATIONS: Final = "preemption-toleration.scheduling.x-k8s.io/"
MINIMUM_PRIORITY: Final = ANNOTATIONS + "minimum-preemptable-priority"
TOLERATION_SECONDS: Final = ANNOTATIONS + "toleration-seconds"


class Policy(NamedTuple):
    """When pods of a class are spared."""

    minimum_priority: int
    seconds: int


class PreemptionToleration(PreemptionPlugin):
    """Preempts pods of lower priority that do not tolerate it."""

    args_type: ClassVar = DefaultPreemptionArgs
    kinds: ClassVar = (PriorityClass,)

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        def chosen(row: int, pods: Sequence[Pod]) -> Sequence[Pod]:
            return [
                other
                for other in pods
                if other.priority < pod.priority and not self.tolerates(outcome, other, pod)
            ]

        return chosen

    def tolerates(self, outcome: FilterOutcome, victim: Pod, preemptor: Pod) -> bool:
        """Whether the victim is spared from preemption by this pod."""
        name = victim.spec.priority_class_name
        found = outcome.cluster.objects.of(PriorityClass).get(name) if name else None
        if found is None:
            return False
        policy = policy_of(found)
        if policy is None or preemptor.priority >= policy.minimum_priority:
            return False
        if policy.seconds < 0:
            return True
        scheduled = [c for c in victim.status.conditions if c.type == "PodScheduled" and c.status == "True"]
        since = scheduled[0].last_transition_time if scheduled else None
        if since is None:
            # It was assigned a moment ago.
            return True
        return since.timestamp() + policy.seconds > self.handle.now()


def policy_of(priority_class: PriorityClass) -> Policy | None:
    """The policy of a class; None if an annotation is not a number: then nothing is tolerated."""
    annotations = priority_class.metadata.annotations
    minimum, seconds = annotations.get(MINIMUM_PRIORITY), annotations.get(TOLERATION_SECONDS)
    found: Policy | None = _parsed(priority_class.value, minimum, seconds)
    return found


@lru_cache(maxsize=256)
def _parsed(value: int, minimum: str | None, seconds: str | None) -> Policy | None:
    priority = value + 1 if minimum is None else _integer(minimum, 32)
    duration = 0 if seconds is None else _integer(seconds, 63)
    return None if priority is None or duration is None else Policy(priority, duration)


def _integer(text: str, bits: int) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None
