"""Capacity queues in a scheduler: where usage comes from, and how pods are told that they wait.

The queues themselves are in `bayplan.queues`. `QueueCache` reports every pod that gets or loses a node, and
the size of the cluster. `reload_queues` follows the file of a configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.config import QueuesConfiguration
from bayplan.errors import ConfigError
from bayplan.queues.active import CapacityQueues
from bayplan.queues.preemption import CapacityPreemption
from bayplan.queues.tree import MAX_PRIORITY
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import DEFAULT_CONFIG, PartitionConfig, QueueConfigError
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.cache import Cache
from bayplan.state.cluster import Cluster
from bayplan.state.nodes import NodeChange
from bayplan.state.pods import PodInfo

RELOAD_SECONDS: Final = 5.0
"""Time between two looks at the file."""

_log = logging.getLogger(__name__)


def read_partition(settings: QueuesConfiguration) -> PartitionConfig:
    """The partition of a configuration: the first of its file, or a queue for each namespace.

    Raises:
        ConfigError: the file cannot be read, or is invalid.
    """
    text = DEFAULT_CONFIG
    if settings.file:
        try:
            text = Path(settings.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"queues.file: {error}") from error
    try:
        config = load(text)
    except QueueConfigError as error:
        raise ConfigError(f"{settings.file}: {error.problem}") from error
    if not config.partitions:
        raise ConfigError(f"{settings.file}: there is no partition")
    return config.partitions[0]


def make_queues(settings: QueuesConfiguration, cluster: Cluster) -> CapacityQueues:
    """The capacity queues of a configuration.

    Raises:
        ConfigError: they cannot be created.
    """
    if cluster.groups is not None:
        raise ConfigError("capacity queues cannot be used with the feature gate GenericWorkload yet")
    try:
        partition = Partition(read_partition(settings))
    except QueueConfigError as error:
        raise ConfigError(f"{settings.file}: {error.problem}") from error

    nodes = cluster.nodes

    def capacity() -> dict[str, int]:
        amounts = {kind: int(nodes.resource(kind).allocatable.array.sum()) for kind in nodes.resource_names()}
        return {**amounts, "pods": int(nodes.allowed_pods.array.sum())}

    return CapacityQueues(
        partition,
        lambda pod: cluster.pod_infos.of(pod).requests,
        capacity,
        lambda name: cluster.objects.of(Namespace).get(name),
    )


def connect_queues(
    settings: QueuesConfiguration, core: SchedulingCore
) -> tuple[CapacityQueues, QueueCache, FirmNominations]:
    """The queues, shown to the plugin that takes from them; the cache that reports use; the nominations.

    Raises:
        ConfigError: they cannot be created.
    """
    queues = make_queues(settings, core.cluster)
    if settings.file:
        queues.follow_file = partial(reload_queues, queues, settings)
    for framework in core.frameworks.values():
        for plugin in framework.profile.all_plugins():
            if isinstance(plugin, CapacityPreemption):
                plugin.queues = queues
    for pod, node_name in core.cluster.assigned_pods():
        if pod.spec.scheduler_name in core.frameworks:
            queues.charge(pod, node_name)
    return queues, QueueCache(core.cluster, queues, core.frameworks), FirmNominations(core.cluster)


async def reload_queues(
    queues: CapacityQueues, settings: QueuesConfiguration, changed: Callable[[], None]
) -> None:
    """Applies every change of the file, until it is cancelled. An invalid file is reported and ignored."""
    path = Path(settings.file)
    known = _content(path)
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        content = _content(path)
        if content is None or content == known:
            continue
        known = content
        try:
            queues.reload(read_partition(settings))
        except (ConfigError, QueueConfigError) as error:
            _log.error("queues: the new configuration is invalid, the old one stays in force: %s", error)
        else:
            _log.warning("queues: the configuration was reloaded from %s", path)
            changed()


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


class FirmNominations:
    """Nominations that count against every pod.

    What was freed for a queue that is owed it must not go to a pod of another queue with a higher priority:
    the preemption would be in vain, and would be repeated.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def nominate(self, pod: Pod, node_name: str) -> None:
        self._cluster.nominate(replace(pod, spec=replace(pod.spec, priority=MAX_PRIORITY)), node_name)

    def remove_nomination(self, uid: str) -> None:
        self._cluster.remove_nomination(uid)


class QueueCache(Cache):
    """A cache that tells the capacity queues which pods have a node."""

    def __init__(self, cluster: Cluster, queues: CapacityQueues, profiles: Container[str]) -> None:
        super().__init__(cluster)
        self._queues = queues
        self._profiles = profiles

    def assume(self, pod: Pod, node_name: str, info: PodInfo | None = None) -> None:
        super().assume(pod, node_name, info)
        self._queues.charge(pod, node_name)

    def forget(self, pod: Pod, node_name: str) -> bool:
        forgotten = super().forget(pod, node_name)
        if forgotten:
            self._queues.refund(pod.uid)
        return forgotten

    def add(self, pod: Pod) -> None:
        super().add(pod)
        if pod.spec.scheduler_name in self._profiles:
            self._queues.charge(pod, pod.spec.node_name)

    def update(self, pod: Pod) -> None:
        super().update(pod)
        if pod.spec.scheduler_name in self._profiles:
            self._queues.charge(pod, pod.spec.node_name)

    def remove(self, pod: Pod) -> None:
        super().remove(pod)
        self._queues.refund(pod.uid)

    def set_node(self, node: Node) -> NodeChange:
        change = super().set_node(node)
        if change & NodeChange.ALLOCATABLE:
            self._queues.capacity_changed()
        return change

    def remove_node(self, name: str) -> None:
        super().remove_node(name)
        self._queues.capacity_changed()
