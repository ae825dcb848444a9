"""A cluster that was loaded: its objects, the scheduler settings for it, and how complete it is.

It comes from files or a scenario (`files.py`), a snapshot (`snapshot.py`) or an API server (`live.py`).
Commands get it from `loading.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from bayplan.answers.sources.warnings import Warning
from bayplan.api.check import object_key
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.config import KubeSchedulerConfiguration, QueueDialect
from bayplan.errors import ConfigError, DecodeError
from bayplan.framework.plugin_api import Plugin
from bayplan.garbage import no_garbage_collection
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.extension_points import POINTS
from bayplan.runtime.framework import Framework
from bayplan.scheduler.core import CoreHandle, SchedulingCore, queue_plugins
from bayplan.state.cluster import Cluster

ASSIGNED: Final = "it is assigned to {node}"
FINISHED: Final = "it has finished"
DELETED: Final = "it is being deleted"
OTHER_SCHEDULER: Final = 'schedulerName is "{scheduler}", and no profile has that name'
GATED: Final = "it is gated by {gates}"
NO_PROFILE: Final = "no profile is named {name!r}, only {known}"


class Origin(Enum):
    """Where the objects come from, which decides how much a missing object says."""

    FILES = "files"
    """A dump or manifests: kinds may be absent because they were not dumped."""
    SNAPSHOT = "snapshot"
    """A file of `bayplan snapshot`, which says which kinds were listed."""
    LIVE = "live"
    """An API server."""


class LoadedHandle(CoreHandle):
    """The handle of a core that only decides, on a cluster whose pending pods are known, too.

    So a plugin for groups of pods knows whether a group is complete.
    """

    def __init__(self, cluster: Cluster, pods: Sequence[Pod]) -> None:
        super().__init__(cluster)
        self._pods = pods
        self._by_label: dict[tuple[str, str], dict[str, list[Pod]]] = {}

    def pods_with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        values = self._by_label.get((namespace, key))
        if values is None:
            values = self._by_label[namespace, key] = {}
            for pod in self._pods:
                if pod.namespace == namespace and key in pod.labels and not pod.is_finished:
                    values.setdefault(pod.labels[key], []).append(pod)
        return values.get(value, ())


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """A cluster, the settings to evaluate it with, and what is known to be missing."""

    name: str
    """For headings: the file, or the context of the kubeconfig."""
    objects: Sequence[Object]
    pods: Sequence[Pod] | None = None
    """The pods to evaluate; None: the pending ones among `objects`."""
    config: KubeSchedulerConfiguration | None = None
    """None: the default configuration."""
    source: str = ""
    line: int | None = None
    plugins: tuple[type[Plugin], ...] = ()
    """Plugins besides the built-in ones."""
    origin: Origin = Origin.FILES
    listed: frozenset[str] = frozenset()
    """Kinds that were listed completely: an object of these kinds that is not here does not exist."""
    server_version: str = ""
    """`v1.36.0`; empty if it is unknown."""
    release: Release = DEFAULT_RELEASE
    """The release of Kubernetes to decide as."""
    reload: Callable[[Release], LoadedCluster] | None = None
    """Reads it again as another release, if what was read depends on the release: a configuration does."""
    config_file: str = ""
    """The configuration that was given; empty: none, so that the default one is assumed."""
    time: datetime | None = None
    """When a snapshot was made; None if it is unknown, or now."""
    queues_texts: Mapping[str, str] = field(default_factory=dict)
    """The queues.yaml of each ConfigMap that was read, by its namespace/name; "" if it has none."""
    warnings: tuple[Warning, ...] = ()
    """What concerns the whole cluster: kinds that could not be listed, absent plugins and extenders."""

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    @property
    def decided_as(self) -> str:
        """For headings: the release, and the configuration that is assumed for a live cluster, which does not
        show the one of its scheduler."""
        release = f"decided as Kubernetes {self.release}"
        if self.origin is not Origin.LIVE:
            return release
        return f"{release} with {self.config_file or 'the default configuration (no --config)'}"

    def core(
        self,
        config: KubeSchedulerConfiguration | None = None,
        *,
        cache: bool = True,
    ) -> SchedulingCore:
        """A scheduling core with the cluster loaded. `config` replaces its own configuration.

        Raises:
            ConfigError: its own configuration is invalid.
        """
        chosen = config or self.config
        cluster = Cluster(self.release if chosen is None else chosen.release)
        try:
            core = SchedulingCore(
                chosen,
                cluster=cluster,
                handle=LoadedHandle(cluster, self._pods()),
                cache=cache,
                plugins=(*BUILTIN_PLUGINS, *_queue_plugins(chosen), *self.plugins),
                release=self.release,
            )
        except ConfigError as error:
            if config is not None or not self.place:
                raise
            raise error.within(self.place) from None
        with no_garbage_collection():
            core.load(self.objects)
        return core

    def pending(self, core: SchedulingCore) -> list[Pod]:
        """The pods to evaluate.

        Raises:
            DecodeError: no profile has the schedulerName of a pod that a scenario names.
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

    def of_other_schedulers(self, core: SchedulingCore) -> list[Pod]:
        """The pods without a node that no profile of the core is responsible for."""
        waiting = (pod for pod in self._pods() if not pod.spec.node_name and not pod.is_finished)
        return [pod for pod in waiting if core.framework_for(pod) is None]

    @property
    def node_count(self) -> int:
        return sum(isinstance(item, Node) for item in self.objects)

    @property
    def pod_count(self) -> int:
        return len(self._pods())

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
    gated = POINTS.pre_enqueue(framework.profile, framework.profile.pre_enqueues, pod)
    return "" if gated is None else f"{gated.plugin} ({gated.status.message})"


def _queue_plugins(config: KubeSchedulerConfiguration | None) -> tuple[type[Plugin], ...]:
    """The plugin that takes from other queues, where an answer connects it (`volcano_queues.py`)."""
    queues = None if config is None else config.bayplan.queues
    if config is None or queues is None or queues.dialect is not QueueDialect.VOLCANO:
        return ()
    return queue_plugins(config)
