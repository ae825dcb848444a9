"""Schedules pending pods of a what-if cluster, one after the other as the scheduler would take them.

Most pods are *plain*: nothing has to be reserved, delayed or written before they are bound, and they find a
node at the first attempt. For these the scheduling cycle alone gives the result. From the first pod on for
which that is not so, the scheduler runs (`engine.py`): its queue, hints, Permit, preemption and bindings.
Both give the same placements: a pod that is bound without delay affects later ones only through the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from bayplan.answers.sources.loaded import skip_reason
from bayplan.answers.sources.warnings import MissingObjects, Reason, Warning, selects_namespaces
from bayplan.answers.whatif.controllers import Controllers, device_assumption, volume_assumption
from bayplan.answers.whatif.engine import Clock, Profiles, Run
from bayplan.answers.whatif.outcomes import Outcome, Placement, Placements, unique
from bayplan.answers.whatif.state import State
from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.runtime.extension_points import sort_key_of
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.groups import group_key

if TYPE_CHECKING:
    from bayplan.answers.whatif.admission import Admission

_NO_NAMESPACES: Final = (
    "affinity terms of pods with a namespaceSelector match pods of no other namespace, which may also affect "
    "the pods that they would match"
)
_LEFT_OUT: Final = "its PodGroup {key} was left out: {why}"
_TERMINATING: Final = "pods that are being deleted ({count:,}) still count as using their resources"


class Scheduling:
    """Schedules pods of one state with one configuration."""

    def __init__(
        self,
        state: State,
        profiles: Profiles,
        clock: Clock,
        *,
        seed: int = 0,
        listed: frozenset[str] = frozenset(),
        warnings: Sequence[Warning] = (),
    ) -> None:
        self.state = state
        self.profiles = profiles
        self.controllers = Controllers(state.store)
        state.reactions.append(self.controllers)
        self._clock = clock
        self._seed = seed
        self._listed = listed
        self._warnings = tuple(warnings)
        self._missing: MissingObjects | None = None
        changes = self.state.columns.changes
        self._missing_freshness = changes.freshness((changes.objects, changes.kind(ResourceClaim)))
        self._terms_freshness = changes.freshness((changes.terms,))
        self._select_namespaces = False

    def schedule(self, pods: Sequence[Pod], left_out: Mapping[str, str]) -> Placements:
        """Schedules these pending pods. The result is in their order; pods that are evicted come last.

        `left_out`: pod groups whose members are skipped, with the reason.
        """
        core = self.profiles.core()
        found: dict[str, Placement] = {}
        evicted: tuple[str, ...] = ()
        with self.profiles.failures.collected() as failures:
            left = self._plain(core, self._in_queue_order(core, pods, left_out, found), found)
            if left:
                run = Run(self.state, self.profiles, self.controllers, self._seed)
                found.update(run.run(left, self._clock))
                evicted = run.evicted
        order = {pod.key: None for pod in pods}
        placements = [found[key] for key in (*order, *(key for key in found if key not in order))]
        warnings = self.warnings_for(pods, preempts=bool(evicted))
        return Placements(tuple(placements), warnings, evicted, tuple(failures.values()))

    def warnings_for(self, pods: Sequence[Pod], *, preempts: bool = False) -> tuple[Warning, ...]:
        """What results for these pods rest on."""
        core, missing = self.profiles.core(), self._missing_objects()
        found = [*self._warnings, *self.profiles.warnings]
        if "admission" in self.__dict__:
            found += self.admission.warnings
        if missing.lacks_kind("Namespace") and (
            any(map(selects_namespaces, pods)) or self._assigned_select_namespaces()
        ):
            found += missing.of_kind("Namespace", _NO_NAMESPACES)
        terminating = int(self.state.columns.pods.terminating.read.sum())
        if terminating:
            found.append(Warning(_TERMINATING.format(count=terminating), reason=Reason.NOT_RUN))
        for pod in pods:
            framework = core.framework_for(pod)
            if framework is not None:
                found += missing.of_pod(pod, framework.profile, preempts=preempts, runs_permit=True)
            found += self._assumptions(pod)
        return unique(found)

    def _assigned_select_namespaces(self) -> bool:
        """Whether a term of an assigned pod selects namespaces by their labels.

        Computed again only if terms have appeared or disappeared: this is called for every answer.
        """
        with self._terms_freshness as stale:
            if stale != ():
                selectors = (one.term.namespace_selector for one in self.state.columns.terms)
                self._select_namespaces = any(not (one.is_nothing or one.is_empty) for one in selectors)
        return self._select_namespaces

    def _assumptions(self, pod: Pod) -> list[Warning]:
        """What controllers and drivers are assumed to do for the pod."""
        store = self.state.store
        latest = store.find(Pod, pod.name, pod.namespace) or pod
        texts = [
            volume_assumption(latest, store) if latest.spec.volumes else "",
            device_assumption(latest, store) if latest.spec.resource_claims else "",
        ]
        return [Warning(text, pod.key, Reason.NOT_RUN) for text in texts if text]

    def missing_kind(self, kind: str, effect: str) -> list[Warning]:
        """A warning if no object of a kind was loaded although the cluster may have some."""
        return self._missing_objects().of_kind(kind, effect)

    def lacks_kind(self, kind: str) -> bool:
        """Whether no object of a kind was loaded although the cluster may have some."""
        return self._missing_objects().lacks_kind(kind)

    @cached_property
    def admission(self) -> Admission:
        """Made when it is needed: the rules of an API server take time to import."""
        from bayplan.answers.whatif.admission import Admission

        return Admission(self.state.store, self.lacks_kind)

    def _missing_objects(self) -> MissingObjects:
        if self._missing is None or not self._missing_freshness.is_current:
            known: list[Object] = [
                item
                for kind in self.state.store.kinds()
                if kind not in (Pod, Node)
                for item in self.state.store.all(kind)
            ]
            self._missing = MissingObjects(known, self._listed)
            self._missing_freshness.mark_current()
        return self._missing

    def _in_queue_order(
        self,
        core: SchedulingCore,
        pods: Sequence[Pod],
        left_out: Mapping[str, str],
        found: dict[str, Placement],
    ) -> list[Pod]:
        """The pods in the order in which the queue has them; the others get their result here."""
        ours = []
        for pod in pods:
            if left_out and (key := str(group_key(pod))) in left_out:
                reason = _LEFT_OUT.format(key=key, why=left_out[key])
                found[pod.key] = Placement(pod.key, Outcome.SKIPPED, reason=reason)
            elif core.framework_for(pod) is None or pod.is_terminating or pod.is_finished:
                found[pod.key] = Placement(pod.key, Outcome.SKIPPED, reason=skip_reason(pod, core))
            else:
                ours.append(pod)
        if not ours:
            return []
        first = next(iter(core.frameworks.values()))
        sort_key = sort_key_of(first.profile)
        return sorted(ours, key=lambda pod: sort_key(pod, 0.0))

    def _plain(self, core: SchedulingCore, pods: list[Pod], found: dict[str, Placement]) -> list[Pod]:
        """Schedules pods until one is not plain. Returns that one and all later ones."""
        store, state = self.state.store, self.state
        for index, pod in enumerate(pods):
            framework = core.frameworks[pod.spec.scheduler_name]
            if not self.profiles.is_plain(framework.profile, pod):
                return pods[index:]
            gated = skip_reason(pod, core)
            if gated:
                found[pod.key] = Placement(pod.key, Outcome.GATED, reason=gated)
                continue
            start = core.search_start.index
            decision = core.place(pod)
            if decision.fits:
                store.bind(pod.name, pod.namespace, decision.node_name)
                state.deliver()
                found[pod.key] = Placement(pod.key, Outcome.SCHEDULED, decision.node_name)
                continue
            is_last = index == len(pods) - 1
            answer = decision.post_filter
            if not is_last or not decision.status.is_rejection or (answer is not None and answer.eviction):
                core.search_start.index = start
                return pods[index:]
            found[pod.key] = Placement(pod.key, Outcome.UNSCHEDULABLE, reason=decision.message)
        return []
