"""A case: a cluster and the pending pods to evaluate on it.

It comes from a scenario (`scenario.py`) or from API objects in files (`files.py`). Each pod is evaluated
alone, on the same cluster: other pending pods are ignored unless they are nominated to a node.
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

ASSIGNED: Final = "it is assigned to {node}"
FINISHED: Final = "it has finished"
DELETED: Final = "it is being deleted"
OTHER_SCHEDULER: Final = 'schedulerName is "{scheduler}", and no profile has that name'
GATED: Final = "it is gated by {gates}"
NO_PROFILE: Final = "no profile is named {name!r}, only {known}"


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and the pods to evaluate."""

    name: str
    objects: Sequence[Object]
    pods: Sequence[Pod] | None = None
    """The pods to evaluate; None: the pending ones among `objects`."""
    config: KubeSchedulerConfiguration | None = None
    source: str = ""
    line: int | None = None

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    def core(
        self,
        config: KubeSchedulerConfiguration | None = None,
        *,
        cache: bool = True,
        plugins: Sequence[type[Plugin]] = (),
    ) -> SchedulingCore:
        """A scheduling core with the cluster loaded. `config` replaces the case's own; `plugins` are added.

        Raises:
            ConfigError: its own configuration is invalid.
        """
        try:
            core = SchedulingCore(config or self.config, cache=cache, plugins=(*BUILTIN_PLUGINS, *plugins))
        except ConfigError as error:
            if config is not None or not self.place:
                raise
            raise ConfigError(f"{self.place}: {error}") from None
        core.load(self.objects)
        return core

    def pending(self, core: SchedulingCore) -> list[Pod]:
        """The pods to evaluate.

        Raises:
            DecodeError: no profile has the schedulerName of a pod that the case names.
        """
        if self.pods is None:
            return [pod for pod in self._pods() if not skip_reason(pod, core)]
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

    def not_pending(self, core: SchedulingCore) -> dict[str, str]:
        """The other pods by `namespace/name`, each with the reason why it is not evaluated."""
        evaluated = set() if self.pods is None else {pod.key for pod in self.pods}
        return {
            pod.key: reason
            for pod in self._pods()
            if pod.key not in evaluated and (reason := skip_reason(pod, core))
        }

    def skipped(self, core: SchedulingCore) -> dict[str, str]:
        """The pods without a node that are not evaluated, each with the reason."""
        without_node = {pod.key for pod in self._pods() if not pod.spec.node_name and not pod.is_finished}
        return {key: reason for key, reason in self.not_pending(core).items() if key in without_node}

    @property
    def node_count(self) -> int:
        return sum(isinstance(item, Node) for item in self.objects)

    @property
    def assigned_count(self) -> int:
        return sum(bool(pod.spec.node_name) and not pod.is_finished for pod in self._pods())

    def _pods(self) -> list[Pod]:
        return [item for item in self.objects if isinstance(item, Pod)]


def skip_reason(pod: Pod, core: SchedulingCore) -> str:
    """Why a pod is not evaluated; "" if it is pending and belongs to one of the core's profiles."""
    if pod.is_finished:
        return FINISHED
    if pod.spec.node_name:
        return ASSIGNED.format(node=pod.spec.node_name)
    if pod.is_terminating:
        return DELETED
    framework = core.framework_for(pod)
    if framework is None:
        return OTHER_SCHEDULER.format(scheduler=pod.spec.scheduler_name)
    gates = _gated_by(framework, pod)
    return GATED.format(gates=gates) if gates else ""


def _gated_by(framework: Framework, pod: Pod) -> str:
    """The first PreEnqueue plugin that rejects the pod, and its message."""
    for step in framework.profile.pre_enqueues:
        status = step.plugin.pre_enqueue(pod)
        if status is not None and not status.is_success:
            return f"{step.name} ({status.message})"
    return ""
