"""The result of each pod's latest attempt, as reported by the scheduler.

A pod counts as bound only after the binding: Permit may make it wait or reject it after the decision, and the
binding may fail. `report.py` combines this with the pods of the API server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bayplan.api.pod import Pod
from bayplan.scheduler.binding_progress import BindingProgress, BindingStep
from bayplan.scheduler.cycle import Decision

MAX_OUTCOMES: Final = 20_000
"""Maximum number of pods whose latest outcome is kept; then the oldest ones are dropped."""
MAX_NAMED: Final = 3
"""Victims of a preemption that are named."""


class State(Enum):
    """The state of a pod; the value is the title of its section."""

    BOUND = "Bound"
    WAITING = "Waiting at Permit"
    REJECTED = "Rejected after a node was found"
    ERROR = "Scheduling failed with an error"
    UNSCHEDULABLE = "Unschedulable"
    PENDING = "Not attempted yet"

    @property
    def label(self) -> str:
        """The state in a plain line."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The latest attempt for a pod. `node` is where it is bound, or where room is reserved for it."""

    pod: str
    uid: str
    state: State
    node: str
    reason: str
    time: float
    """Seconds since the epoch."""
    failures: int = 0
    """Attempts for this pod that failed, up to now."""


class Outcomes:
    """The latest outcome of each pod. `on_change` is called with every new one."""

    def __init__(
        self, on_change: Callable[[Outcome], None] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.scheduled = 0
        self.failed = 0
        """Attempts."""
        self.version = 0
        """Changes with every outcome."""
        self._on_change = on_change
        self._clock = clock
        self._latest: dict[str, Outcome] = {}
        self._binding: dict[str, str] = {}
        """By uid, why the node was chosen: of pods that are not bound yet."""

    def get(self, uid: str) -> Outcome | None:
        return self._latest.get(uid)

    def is_binding_for_the_first_time(self) -> bool:
        """Whether a pod without failed attempts is being bound, or waits at Permit."""
        return any(uid not in self._latest or not self._latest[uid].failures for uid in self._binding)

    # The scheduler calls these.

    def decided(self, decision: Decision) -> None:
        pod, found = decision.pod, decision.found
        if found is not None:
            self._binding[pod.uid] = why_there(decision)
            return
        state = State.UNSCHEDULABLE if decision.status.is_rejection else State.ERROR
        self._failed(pod, state, "", f"{_preemption(decision)}{decision.message}")

    def progressed(self, progress: BindingProgress) -> None:
        pod, node, plugins = progress.pod, progress.node_name, ", ".join(filter(None, progress.plugins))
        match progress.step:
            case BindingStep.BOUND:
                self.scheduled += 1
                self._set(pod, State.BOUND, node, self._binding.pop(pod.uid, ""))
            case BindingStep.WAITING:
                self._set(pod, State.WAITING, node, f"held by {plugins}")
            case BindingStep.REJECTED:
                by = f"{progress.point} plugin {plugins}" if plugins else progress.point
                self._failed(pod, State.REJECTED, node, f"{by}: {progress.reason}")
            case BindingStep.FAILED:
                reason = progress.reason or f"no plugin at {progress.point} bound it"
                self._failed(pod, State.ERROR, node, reason)

    def _failed(self, pod: Pod, state: State, node: str, reason: str) -> None:
        self.failed += 1
        self._binding.pop(pod.uid, None)
        self._set(pod, state, node, reason, failures=1)

    def _set(self, pod: Pod, state: State, node: str, reason: str, *, failures: int = 0) -> None:
        self.version += 1
        before = self._latest.pop(pod.uid, None)
        if before is not None:
            failures += before.failures
        elif len(self._latest) >= MAX_OUTCOMES:
            del self._latest[next(iter(self._latest))]
        outcome = Outcome(pod.key, pod.uid, state, node, reason, self._clock(), failures)
        self._latest[pod.uid] = outcome
        if self._on_change is not None:
            self._on_change(outcome)


def why_there(decision: Decision) -> str:
    """Why the node was chosen, in a few words."""
    pod, found = decision.pod, decision.found
    assert found is not None
    if found.evaluated == 1 and pod.status.nominated_node_name == found.node_name:
        return "scheduled after preemption"
    if found.feasible == 1:
        return "the only feasible node"
    return f"best of {found.feasible:,} feasible nodes"


def _preemption(decision: Decision) -> str:
    after = decision.post_filter
    if after is None or after.eviction is None:
        return ""
    names = [victim.key for victim in after.eviction.victims]
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"preempting {', '.join(names[:MAX_NAMED])}{more} on {after.eviction.node_name}. "
