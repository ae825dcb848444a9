"""PreEnqueue: plugins that keep a pod out of the active queue.

A gated pod is not scheduled and costs nothing. It is unschedulable until an event of the plugin that gates
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bayplan.api.pod import Pod
from bayplan.framework.status import Code, Status, describe, failure, traceback_of, wrong_result
from bayplan.runtime.failure_log import FailureLog
from bayplan.runtime.profile import Profile
from bayplan.scheduling_queue.observer import QueueObserver
from bayplan.scheduling_queue.queued import QueuedPod

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
        pod, observer = info.pod, self._observer
        profile = pod.spec.scheduler_name
        gates = self._gates.get(profile, ())
        if info.gating_plugin:
            gates = self._with_first.get((profile, info.gating_plugin), gates)
        if observer is None:
            rejection = first_rejection(gates, pod)
        else:
            started = observer.clock()
            sampled = observer.samples_plugins()
            rejection = _timed_rejection(gates, pod, observer) if sampled else first_rejection(gates, pod)
            observer.pre_enqueue(profile, observer.clock() - started)
        if rejection is None:
            # The plugin stays among those that rejected the pod until its next attempt fails: if another
            # plugin gates the pod meanwhile, events of this one still requeue it.
            info.gating_plugin = ""
            return True
        info.gating_plugin = plugin = rejection[0].plugin
        info.was_flushed = False
        if plugin not in info.unschedulable_plugins:
            info.unschedulable_plugins |= {plugin}
            if observer is not None:
                observer.unschedulable(plugin, profile, 1)
        return False

    def still_rejects(self, info: QueuedPod) -> bool:
        """Whether the plugin that gates the pod still rejects it. If not, all plugins have to be run."""
        gates = self._with_first.get((info.profile, info.gating_plugin))
        if not gates:
            return False
        observer = self._observer
        started = 0.0 if observer is None else observer.clock()
        if first_rejection(gates[:1], info.pod) is None:
            return False
        info.was_flushed = False
        if observer is not None:
            observer.pre_enqueue(info.profile, observer.clock() - started)
        return True


def first_rejection(gates: Iterable[Gate], pod: Pod) -> tuple[Gate, Status] | None:
    """The first of the plugins that rejects the pod, and its status. A plugin that fails rejects the pod."""
    for gate in gates:
        try:
            status = gate.check(pod)
            if status is None:
                continue
            answer: object = status
            if not isinstance(answer, Status):
                raise wrong_result("pre_enqueue", answer, 'return None or unschedulable("reason")')
        except Exception as error:
            text = f'running PreEnqueue plugin "{gate.plugin}": {describe(error, gate.instance)}'
            gate.failures.log(_log, f"pod {pod.key} stays gated: {text}", traceback_of(error))
            status = failure(text)
        if status.code is not _SUCCESS:
            return gate, status
    return None


def _timed_rejection(gates: Iterable[Gate], pod: Pod, observer: QueueObserver) -> tuple[Gate, Status] | None:
    for gate in gates:
        started = observer.clock()
        rejection = first_rejection((gate,), pod)
        code = _SUCCESS if rejection is None else rejection[1].code
        observer.pre_enqueue_plugin(gate.plugin, code.label, observer.clock() - started)
        if rejection is not None:
            return rejection
    return None
