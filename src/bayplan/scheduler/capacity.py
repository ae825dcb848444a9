"""Capacity queues in a scheduler: where usage comes from, and how waiting pods are reported.

The queues themselves are in `bayplan.queues`. `QueueCache` reports every pod that gets or loses a node, and
the size of the cluster. `reload_queues` follows the file of a configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.workloads import PriorityClass
from bayplan.client.informer import Handler
from bayplan.config import QueueDialect, QueuesConfiguration, ReadQueues
from bayplan.errors import ConfigError
from bayplan.queues.active import CapacityQueues
from bayplan.queues.preemption import CapacityPreemption
from bayplan.queues.tree import MAX_PRIORITY
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.conf import DEFAULT_CONF, Conf, ConfError
from bayplan.queues.volcano.conf import load as load_conf
from bayplan.queues.volcano.preemption import VolcanoPreemption
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import DEFAULT_CONFIG, PartitionConfig, QueueConfigError
from bayplan.scheduler.context import Context
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.queue_config_map import conf_of_manifest, follow_config_map, of_manifest
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
    try:
        config = load(of_manifest(_text_of(settings, DEFAULT_CONFIG)))
    except QueueConfigError as error:
        raise ConfigError(f"{settings.source}: {error.problem}") from error
    if not config.partitions:
        raise ConfigError(f"{settings.source}: there is no partition")
    return config.partitions[0]


def _text_of(settings: QueuesConfiguration, default: str) -> str:
    """The text of the configured file or of a ConfigMap that was read; the default without one."""
    if isinstance(settings, ReadQueues):
        return settings.text
    if not settings.file:
        return default
    try:
        return Path(settings.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"queues.file: {error}") from error


QUEUES_AND_TREES: Final = (
    "queues cannot be used with the feature gate CompositePodGroup: they admit one PodGroup at a time, and "
    "the groups of a tree are scheduled together; remove queues from the BayplanConfiguration, or start with "
    "--feature-gates=CompositePodGroup=false"
)


def make_queues(settings: QueuesConfiguration, cluster: Cluster) -> CapacityQueues:
    """The capacity queues of a configuration.

    Raises:
        ConfigError: they cannot be created.
    """
    if cluster.groups is not None and cluster.groups.has_trees:
        raise ConfigError(QUEUES_AND_TREES)
    if settings.dialect is QueueDialect.VOLCANO:
        return make_volcano_queues(settings, cluster)
    try:
        partition = Partition(read_partition(settings), fair_gangs=settings.dialect is QueueDialect.BAYPLAN)
    except QueueConfigError as error:
        raise ConfigError(f"{settings.source}: {error.problem}") from error

    groups = cluster.groups
    queues = CapacityQueues(
        partition,
        cluster.pod_infos.of,
        lambda: _capacity(cluster),
        lambda name: cluster.objects.of(Namespace).get(name),
        lambda key: 0 if groups is None else groups[key].scheduled_count,
    )
    queues.priority_class = lambda name: cluster.objects.of(PriorityClass).get(name)
    return queues


def _capacity(cluster: Cluster) -> dict[str, int]:
    """What all nodes have together."""
    nodes = cluster.nodes
    amounts = {kind: int(nodes.resource(kind).allocatable.array.sum()) for kind in nodes.resource_names()}
    return {**amounts, "pods": int(nodes.allowed_pods.array.sum())}


def read_conf(settings: QueuesConfiguration) -> Conf:
    """The volcano-scheduler.conf of a configuration.

    Raises:
        ConfigError: the file cannot be read, or is invalid.
    """
    try:
        return load_conf(conf_of_manifest(_text_of(settings, DEFAULT_CONF)))
    except ConfError as error:
        raise ConfigError(f"{settings.source}: {error}") from error


def make_volcano_queues(settings: QueuesConfiguration, cluster: Cluster) -> VolcanoQueues:
    """Volcano's queues: its Queue objects are read from the cluster.

    Raises:
        ConfigError: the configuration is invalid.
    """
    groups = cluster.groups
    return VolcanoQueues(
        read_conf(settings),
        cluster.pod_infos.of,
        lambda: _capacity(cluster),
        cluster.objects,
        cluster.changes,
        lambda key: 0 if groups is None else groups[key].scheduled_count,
    )


def connect_queues(
    settings: QueuesConfiguration, core: SchedulingCore, api: ClusterAPI | None = None
) -> tuple[CapacityQueues, QueueCache, FirmNominations]:
    """The queues, shown to the plugin that takes from them; the cache that reports use; the nominations.

    Raises:
        ConfigError: they cannot be created.
    """
    queues = make_queues(settings, core.cluster)
    if core.cluster.groups is not None:
        core.cluster.groups.checks_min_resources = False
    if isinstance(queues, VolcanoQueues):
        _report_ignored(queues.conf, settings)
    if settings.file and not isinstance(settings, ReadQueues):
        queues.follow_file = partial(reload_queues, queues, settings)
    elif settings.config_map and api is not None and not isinstance(settings, ReadQueues):
        queues.loaded = asyncio.Event()
        queues.follow_file = partial(follow_config_map, api, queues, settings.config_map, queues.loaded)
    show_queues(queues, core)
    if core.cluster.groups is None:
        queues.on_task_groups = _warn_of_task_groups(queues)
    for pod, node_name in core.cluster.assigned_pods():
        if pod.spec.scheduler_name in core.frameworks:
            queues.charge(pod, node_name)
    return queues, QueueCache(core.cluster, queues, core.frameworks), FirmNominations(core.cluster, queues)


def show_queues(queues: CapacityQueues, core: SchedulingCore) -> None:
    """Shows the queues to the plugins that take from them."""
    for framework in core.frameworks.values():
        for plugin in framework.profile.all_plugins():
            if isinstance(plugin, CapacityPreemption) or (
                isinstance(plugin, VolcanoPreemption) and isinstance(queues, VolcanoQueues)
            ):
                plugin.queues = queues


def _warn_of_task_groups(queues: CapacityQueues) -> Callable[[Pod], None]:
    """Says once that task groups are ignored."""

    def warn(pod: Pod) -> None:
        queues.on_task_groups = None
        _log.warning(
            "queues: pod %s has task groups, which need --feature-gates=GenericWorkload=true: "
            "its application is scheduled pod by pod",
            pod.key,
        )

    return warn


class NotifyingHandler:
    """A handler that reports changes of objects to Volcano's queues."""

    def __init__(self, handler: Handler[Any], changed: Callable[[], None]) -> None:
        self._handler = handler
        self._changed = changed

    def added(self, item: Any) -> None:
        self._handler.added(item)
        self._changed()

    def updated(self, old: Any, new: Any) -> None:
        self._handler.updated(old, new)
        self._changed()

    def deleted(self, item: Any) -> None:
        self._handler.deleted(item)
        self._changed()


def follow_objects(
    handlers: dict[type[Object], Handler[Any]], queues: CapacityQueues, context: Context
) -> None:
    """Tells the queues of a dialect that has objects of its own when they change, and lets it admit jobs."""
    if not isinstance(queues, VolcanoQueues):
        return

    def changed() -> None:
        queues.objects_changed()
        context.wake()

    for record in (volcano.Queue, volcano.PodGroup):
        handlers[record] = NotifyingHandler(handlers[record], changed)
    for groups in context.dialects:
        if groups.dialect.record is volcano.PodGroup:
            groups.admit = queues.admit
            queues.admit_groups = groups.admit_groups


def _report_ignored(conf: Conf, settings: QueuesConfiguration) -> None:
    """Names what of a user's file is not used. Nobody chose the default."""
    if settings.file:
        for text in conf.ignored:
            _log.warning("queues: %s: not used: %s", settings.file, text)


def _apply_file(queues: CapacityQueues, settings: QueuesConfiguration) -> None:
    """Applies what is in the file now.

    Raises:
        ConfigError, QueueConfigError: it is invalid, and nothing has changed.
    """
    if isinstance(queues, VolcanoQueues):
        conf = read_conf(settings)
        queues.use(conf)
        _report_ignored(conf, settings)
    else:
        queues.reload(read_partition(settings))


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
            _apply_file(queues, settings)
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

    What was freed for a queue that is entitled to it must not go to a pod of another queue with a higher
    priority: the preemption would be in vain, and would be repeated. Nor may its queue take more than that.
    """

    def __init__(self, cluster: Cluster, queues: CapacityQueues) -> None:
        self._cluster = cluster
        self._queues = queues

    def nominate(self, pod: Pod, node_name: str) -> None:
        self._queues.nominate(pod)
        self._cluster.nominate(replace(pod, spec=replace(pod.spec, priority=MAX_PRIORITY)), node_name)

    def remove_nomination(self, uid: str) -> None:
        self._queues.remove_nomination(uid)
        self._cluster.remove_nomination(uid)


class QueueCache(Cache):
    """A cache that reports to the capacity queues which pods have a node."""

    def __init__(self, cluster: Cluster, queues: CapacityQueues, profiles: Container[str]) -> None:
        super().__init__(cluster)
        self._queues = queues
        self._profiles = profiles

    def assume(self, pod: Pod, node_name: str, info: PodInfo | None = None) -> None:
        super().assume(pod, node_name, info)
        self._queues.charge(pod, node_name, info)

    def forget(self, pod: Pod, node_name: str) -> bool:
        forgotten = super().forget(pod, node_name)
        if forgotten:
            self._queues.refund(pod.uid)
        return forgotten

    def add(self, pod: Pod) -> None:
        super().add(pod)
        self._charge(pod)

    def update(self, pod: Pod) -> None:
        super().update(pod)
        self._charge(pod)

    def _charge(self, pod: Pod) -> None:
        spec = pod.spec
        if spec.scheduler_name in self._profiles:
            self._queues.charge(pod, spec.node_name, self.cluster.info_of(pod.metadata.uid))

    def remove(self, pod: Pod) -> None:
        super().remove(pod)
        self._queues.pod_ended(pod.uid)
        self._queues.refund(pod.uid)

    def set_node(self, node: Node) -> NodeChange:
        change = super().set_node(node)
        if change & NodeChange.ALLOCATABLE:
            self._queues.capacity_changed()
        return change

    def remove_node(self, name: str) -> None:
        super().remove_node(name)
        self._queues.capacity_changed()
