"""The configuration as the scheduler reads it: complete, with every default filled in.

`KubeSchedulerConfiguration` is made from a file by `load.py`, which fills in what the file leaves out
(`defaults.py`); its values are checked by `validation.py` and `build.py`. The parts that a
file and the complete configuration have in common are decoded straight into the records here.

https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from bayplan.api.releases import Release
from bayplan.config.decoding import Float32
from bayplan.errors import ConfigError
from bayplan.framework.args import Duration, Int32, Int64
from bayplan.framework.points import Point, TieBreak

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
BAYPLAN_KIND: Final = "BayplanConfiguration"
ALL: Final = "*"
"""As a disabled plugin: all that the defaults would enable."""


class ConfigRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the records here: frozen, camelCase in the file."""


class ClientConnection(ConfigRecord, frozen=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: Float32 = 0.0
    """Requests per second; negative means no limit."""
    burst: Int32 = 0


class LeaderElection(ConfigRecord, frozen=True):
    leader_elect: bool = True
    lease_duration: Duration = Duration()
    renew_deadline: Duration = Duration()
    retry_period: Duration = Duration()
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ExtenderTLSConfig(ConfigRecord, frozen=True):
    """TLS settings of an extender; data takes precedence over files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class ManagedResource(ConfigRecord, frozen=True):
    """An extended resource; an extender is called only for pods that request one of its resources."""

    name: str = ""
    ignored_by_scheduler: bool = False


class Extender(ConfigRecord, frozen=True):
    """A webhook that takes part in decisions; an empty verb is one that it does not support."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int64 = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLSConfig | None = None
    http_timeout: Duration = msgspec.field(default=Duration(), name="httpTimeout")
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class PluginRef(ConfigRecord, frozen=True):
    """A plugin in a list; a weight of 0 means that none is given."""

    name: str = ""
    weight: Int32 = 0


class PluginSet(ConfigRecord, frozen=True):
    """The plugins that a profile enables and disables at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()

    @property
    def disabled_names(self) -> frozenset[str]:
        return frozenset(plugin.name for plugin in self.disabled)


class Plugins(ConfigRecord, frozen=True):
    """The sets of a profile, by extension point; `multi_point` applies to all points."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()
    """Not in all releases (`Release.has_pod_group_post_filter`)."""

    def at(self, point: Point) -> PluginSet:
        """The set of one extension point."""
        plugin_set = getattr(self, point.name.lower())
        assert isinstance(plugin_set, PluginSet)
        return plugin_set

    def enabled_names(self) -> Iterator[str]:
        """Every plugin that is enabled anywhere, possibly several times."""
        for name in self.__struct_fields__:
            for plugin in getattr(self, name).enabled:
                yield plugin.name


class PluginConfig(msgspec.Struct, frozen=True):
    """The arguments of one plugin: decoded where their type is known, else as the file has them."""

    name: str
    args: object


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler among those that share the process, chosen by a pod's `schedulerName`."""

    scheduler_name: str
    percentage_of_nodes_to_score: int | None = None
    """None: that of the whole configuration."""
    plugins: Plugins
    plugin_config: tuple[PluginConfig, ...] = ()


class QueueDialect(StrEnum):
    """Whose rules capacity queues follow."""

    BAYPLAN = "bayplan"
    YUNIKORN = "yunikorn"
    VOLCANO = "volcano"


_NOT_READ: Final = (
    "the queues are in ConfigMap {name}, which was not read: it is read from a live cluster, if the user may "
    "get it, or from the files with the objects of the cluster. Otherwise save its queues.yaml, and name the "
    "file as queues.file in the configuration"
)


class QueuesConfiguration(ConfigRecord, frozen=True):
    """Capacity queues: quotas and fair sharing (docs/queues.md)."""

    dialect: QueueDialect = QueueDialect.BAYPLAN
    file: str = ""
    """A queues.yaml, which is read again when it changes; "" is a queue for each namespace. With Volcano's
    dialect a volcano-scheduler.conf; "" is Volcano's own default."""
    config_map: str = ""
    """A ConfigMap with the key queues.yaml instead, as namespace/name."""

    def __post_init__(self) -> None:
        if self.config_map and (self.file or self.dialect is QueueDialect.VOLCANO):
            raise ValueError("queues.configMap cannot be used with a file, or with Volcano's dialect")
        if self.config_map and self.config_map.count("/") != 1:
            raise ValueError(f"queues.configMap must be namespace/name: {self.config_map}")

    @property
    def source(self) -> str:
        """Where the queues are configured, for messages."""
        return f"ConfigMap {self.config_map}" if self.config_map else self.file

    def check_is_read(self) -> None:
        """For commands, which do not follow a ConfigMap.

        Raises:
            ConfigError: the queues are in a ConfigMap that was not read with the cluster.
        """
        if self.config_map and not isinstance(self, ReadQueues):
            raise ConfigError(_NOT_READ.format(name=self.config_map))

    def with_file(self, file: str) -> QueuesConfiguration:
        """The same dialect with the queues of a file."""
        return QueuesConfiguration(dialect=self.dialect, file=file)

    def with_text(self, text: str) -> ReadQueues:
        """The same with the content of the ConfigMap."""
        return ReadQueues(dialect=self.dialect, config_map=self.config_map, text=text)


class ReadQueues(QueuesConfiguration, frozen=True):
    """Capacity queues whose ConfigMap was read, by a command that does not read it again."""

    text: str = ""


class Decision(StrEnum):
    """Who decides whether a pod is descheduled."""

    SCHEDULER = "scheduler"
    """The scheduler: it is moved only where the scheduler puts its replacement, and if that helps."""
    UPSTREAM = "upstream"
    """The rules of descheduler, which does not know where the replacement goes."""


class Mode(StrEnum):
    """How a pod is moved."""

    EVICT = "evict"
    SURGE = "surge"
    """Its owner creates the replacement first, where it allows that."""


class DescheduleConfiguration(ConfigRecord, frozen=True):
    """How `bayplan deschedule` decides and acts; what it does is in a DeschedulerPolicy."""

    decision: Decision = Decision.SCHEDULER
    mode: Mode = Mode.EVICT
    interval: Duration = Duration.of(seconds=300)
    """From cycle to cycle of `bayplan run --deschedule`."""
    margin: float = 5.0
    """By how many percentage points a move must improve utilization."""
    evictions_per_minute: int = 10
    replacement_timeout: Duration = Duration.of(seconds=300)
    """How long to wait until the replacement of a pod is ready."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 100:
            raise ValueError(f"deschedule.margin must be from 0 to 100: {self.margin}")
        if self.evictions_per_minute < 1:
            raise ValueError(f"deschedule.evictionsPerMinute must be positive: {self.evictions_per_minute}")
        if self.interval <= Duration():
            raise ValueError(f"deschedule.interval must be positive: {self.interval}")
        if self.replacement_timeout <= Duration():
            raise ValueError(f"deschedule.replacementTimeout must be positive: {self.replacement_timeout}")


class PodGroupDialect(StrEnum):
    """Whose PodGroups are read as pod groups."""

    KUBERNETES = "kubernetes"
    COSCHEDULING = "coscheduling"
    VOLCANO = "volcano"


class BayplanConfiguration(ConfigRecord, frozen=True):
    """bayplan's own settings, for all profiles (`load.py`)."""

    tie_break: TieBreak = TieBreak.KUBE_SCHEDULER
    """Which of several nodes with the same highest total score is chosen."""
    slow_cycle_threshold: Duration = Duration.of(seconds=1)
    """A scheduling cycle that takes longer is logged, with the plugin that is running; 0: no cycle is."""
    queues: QueuesConfiguration | None = None
    """None: there are no capacity queues."""
    deschedule: DescheduleConfiguration = DescheduleConfiguration()
    pod_groups: tuple[PodGroupDialect, ...] = (PodGroupDialect.KUBERNETES,)
    """Whose pod groups are scheduled, with the feature gate GenericWorkload."""

    def __post_init__(self) -> None:
        if self.slow_cycle_threshold < Duration():
            raise ValueError(f"slowCycleThreshold must not be negative: {self.slow_cycle_threshold}")


class KubeSchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration, complete but not yet validated."""

    parallelism: int
    leader_election: LeaderElection
    client_connection: ClientConnection
    enable_profiling: bool
    enable_contention_profiling: bool
    percentage_of_nodes_to_score: int
    pod_initial_backoff_seconds: int
    pod_max_backoff_seconds: int
    profiles: tuple[Profile, ...]
    extenders: tuple[Extender, ...]
    delay_cache_until_active: bool
    release: Release
    """The release it was completed for, and the scheduler decides as; not part of the file."""
    bayplan: BayplanConfiguration = BayplanConfiguration()
    """bayplan's own settings: another document, or flags."""

    @property
    def gates(self) -> frozenset[str]:
        """The feature gates that are on."""
        return self.release.gates
