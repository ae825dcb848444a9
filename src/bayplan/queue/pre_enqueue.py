"""PreEnqueue: plugins that keep a pod out of the active queue.

A gated pod is not scheduled and costs nothing. It is unschedulable until an event of the plugin that gates
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bayplan.api.pod import Pod
from bayplan.framework.failures import describe, traceback_of, wrong_result
from bayplan.framework.status import Code, Status, failure
from bayplan.queue.observer import QueueObserver
from bayplan.queue.queued import QueuedPod
from bayplan.runtime.failure_log import FailureLog
from bayplan.runtime.profile import Profile

_log = logging.getLogger(__name__)

_SUCCESS = Code.SUCCESS


@dataclass(frozen=True, slots=True)
class Gate:
    """One PreEnqueue plugin."""

    plugin: str
    instance: object
    check: Callable[[Pod], Status | None]
    failures: FailureLog

    @classmethod
    def all_of(cls, profile: Profile) -> tuple[Gate, ...]:
        """Those of a profile, in order."""
        return tuple(
            cls(step.name, step.plugin, step.plugin.pre_enqueue, profile.failures)
            for step in profile.pre_enqueues
        )


class PreEnqueue:
    """The PreEnqueue plugins of all profiles."""

    def __init__(self, profiles: Iterable[Profile], observer: QueueObserver | None = None) -> None:
        self._observer = observer
        self._gates = {profile.scheduler_name: Gate.all_of(profile) for profile in profiles}
        self._with_first = {
            (profile, first.plugin): tuple(sorted(gates, key=lambda gate: gate is not first))
            for profile, gates in self._gates.items()
            for first in gates
        }
        """The same, once with each plugin first."""

    def run(self, info: QueuedPod) -> bool:
        """Runs the plugins, first the one that gated the pod before. True if none rejects the pod.

        The plugin that does is stored in the record.
        """
        observer = self._observer
        if observer is None:
            plugin = self._rejected_by(info, None)
        else:
            started = observer.clock()
            plugin = self._rejected_by(info, observer if observer.samples_plugins() else None)
            observer.pre_enqueue(info.profile, observer.clock() - started)
        info.gating_plugin = plugin
        if not plugin:
            # The plugin stays among those that rejected the pod until its next attempt fails: if another
            # plugin gates the pod meanwhile, events of this one still requeue it.
            return True
        info.was_flushed = False
        if plugin not in info.unschedulable_plugins:
            info.unschedulable_plugins |= {plugin}
            if observer is not None:
                observer.unschedulable(plugin, info.profile, 1)
        return False

    def still_rejects(self, info: QueuedPod) -> bool:
        """Whether the plugin that gates the pod still rejects it. If not, all plugins have to be run."""
        gates = self._with_first.get((info.profile, info.gating_plugin))
        if not gates:
            return False
        observer = self._observer
        started = 0.0 if observer is None else observer.clock()
        status = run_gate(gates[0], info.pod)
        if status is None or status.code is _SUCCESS:
            return False
        info.was_flushed = False
        if observer is not None:
            observer.pre_enqueue(info.profile, observer.clock() - started)
        return True

    def _rejected_by(self, info: QueuedPod, timed_by: QueueObserver | None) -> str:
        pod = info.pod
        profile = pod.spec.scheduler_name
        gates = self._gates.get(profile, ())
        if info.gating_plugin:
            gates = self._with_first.get((profile, info.gating_plugin), gates)
        for gate in gates:
            status = run_gate(gate, pod) if timed_by is None else _run_gate_timed(gate, pod, timed_by)
            if status is not None and status.code is not _SUCCESS:
                return gate.plugin
        return ""


def run_gate(gate: Gate, pod: Pod) -> Status | None:
    """The status that one plugin returns for a pod. A plugin that fails gates the pod."""
    try:
        answer: object = gate.check(pod)
        if answer is None or isinstance(answer, Status):
            return answer
        raise wrong_result("pre_enqueue", answer, 'return None or unschedulable("reason")')
    except Exception as error:
        text = f'running PreEnqueue plugin "{gate.plugin}": {describe(error, gate.instance)}'
        gate.failures.log(_log, f"pod {pod.key} stays gated: {text}", traceback_of(error))
        return failure(text)


def _run_gate_timed(gate: Gate, pod: Pod, observer: QueueObserver) -> Status | None:
    started = observer.clock()
    status = run_gate(gate, pod)
    code = _SUCCESS if status is None else status.code
    observer.pre_enqueue_plugin(gate.plugin, code.label, observer.clock() - started)
    return status
