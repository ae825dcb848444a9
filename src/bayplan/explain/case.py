"""A case: a cluster, and the pods on it that somebody wants to know about.

It comes from a scenario (`scenario.py`) or from API objects in files (`files.py`). Each pod is judged alone,
on the same cluster: the other pods that wait are not there, unless they are nominated to a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.api.check import object_key
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.config import KubeSchedulerConfiguration
from bayplan.errors import ConfigError, DecodeError
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.framework import Framework
from bayplan.scheduler.core import SchedulingCore

RUNS: Final = "it runs on {node}"
FINISHED: Final = "it has finished"
DELETED: Final = "it is being deleted"
OTHER_SCHEDULER: Final = 'schedulerName is "{scheduler}", and no profile has that name'
GATED: Final = "it is held back by {gates}"
NO_PROFILE: Final = "no profile is named {name!r}, only {known}"


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and what is asked about it."""

    name: str
    objects: Sequence[Object]
    pods: Sequence[Pod] | None = None
    """The pods to judge; None: those among `objects` that wait for a node."""
    config: KubeSchedulerConfiguration | None = None
    source: str = ""
    line: int | None = None

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    def core(
        self,
        config: KubeSchedulerConfiguration | None = None,
        *,
        cache: bool = True,
        plugins: Sequence[type[Plugin]] = (),
    ) -> SchedulingCore:
        """The cluster, ready to be asked. `config` takes the place of the case's own; `plugins` are added.

        Raises:
            ConfigError: its own configuration makes no sense.
        """
        try:
            core = SchedulingCore(config or self.config, cache=cache, plugins=(*BUILTIN_PLUGINS, *plugins))
        except ConfigError as error:
            if config is not None or not self.place:
                raise
            raise ConfigError(f"{self.place}: {error}") from None
        core.load(self.objects)
        return core

    def waiting(self, core: SchedulingCore) -> list[Pod]:
        """The pods to judge.

        Raises:
            DecodeError: one of those that the case names belongs to no profile.
        """
        if self.pods is None:
            return [pod for pod in self._pods() if not why_not_waiting(pod, core)]
        for pod in self.pods:
            if core.framework_for(pod) is None:
                raise DecodeError(
                    NO_PROFILE.format(name=pod.spec.scheduler_name, known=sorted(core.frameworks)),
                    source=self.source,
                    line=self.line,
                    object_key=object_key(pod),
                    field="spec.schedulerName",
                )
        return list(self.pods)

    def not_waiting(self, core: SchedulingCore) -> dict[str, str]:
        """The other pods by `namespace/name`, each with what it does instead of waiting."""
        asked = set() if self.pods is None else {pod.key for pod in self.pods}
        return {
            pod.key: why
            for pod in self._pods()
            if pod.key not in asked and (why := why_not_waiting(pod, core))
        }

    def held_back(self, core: SchedulingCore) -> dict[str, str]:
        """The pods that have no node and are not judged either, each with the reason."""
        without_node = {pod.key for pod in self._pods() if not pod.spec.node_name and not pod.is_finished}
        return {key: why for key, why in self.not_waiting(core).items() if key in without_node}

    @property
    def node_count(self) -> int:
        return sum(isinstance(item, Node) for item in self.objects)

    @property
    def running_count(self) -> int:
        return sum(bool(pod.spec.node_name) and not pod.is_finished for pod in self._pods())

    def _pods(self) -> list[Pod]:
        return [item for item in self.objects if isinstance(item, Pod)]


def why_not_waiting(pod: Pod, core: SchedulingCore) -> str:
    """What a pod does instead of waiting for a node from one of the core's profiles; "" where it waits."""
    if pod.is_finished:
        return FINISHED
    if pod.spec.node_name:
        return RUNS.format(node=pod.spec.node_name)
    if pod.is_terminating:
        return DELETED
    framework = core.framework_for(pod)
    if framework is None:
        return OTHER_SCHEDULER.format(scheduler=pod.spec.scheduler_name)
    gates = _held_back_by(framework, pod)
    return GATED.format(gates=gates) if gates else ""


def _held_back_by(framework: Framework, pod: Pod) -> str:
    """The plugin that keeps the pod out of the queue and what it says, as PreEnqueue would find out."""
    for step in framework.profile.pre_enqueues:
        status = step.plugin.pre_enqueue(pod)
        if status is not None and not status.is_success:
            return f"{step.name} ({status.message})"
    return ""
