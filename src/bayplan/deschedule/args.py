"""Arguments of descheduler's plugins, with its defaults, checks and texts.

A field that is None was not given. `validate` sees the arguments before defaults (`completed`) are filled in,
as upstream does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Self

from msgspec import field
from msgspec.structs import replace

from bayplan.api.meta import LabelSelector
from bayplan.api.selectors import compile_selector
from bayplan.deschedule.go_json import Int32, Percentage, Uint
from bayplan.errors import SelectorError
from bayplan.framework.args import ArgsRecord, Duration, FieldError, Gates, PluginArgs

MAX_PRIORITY: Final = 2_000_000_000
"""The priority of system-cluster-critical pods: the default of priority thresholds, and their limit."""
METRIC_RESOURCE: Final = "MetricResource"
"""The resource that a Prometheus query measures."""
KUBERNETES_METRICS: Final = "KubernetesMetrics"
PROMETHEUS: Final = "Prometheus"
MANDATORY: Final = "Mandatory"

DEFAULT_PROTECTIONS: Final = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
EXTRA_PROTECTIONS: Final = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")

# fmt: off
_POD_STATES: Final = (
    "Completed", "ContainerCannotRun", "ContainerCreating", "CrashLoopBackOff", "CreateContainerConfigError",
    "CreateContainerError", "DeadlineExceeded", "ErrImagePull", "Error", "Evicted", "Failed",
    "ImagePullBackOff", "InvalidImageName", "NodeAffinity", "NodeLost", "OOMKilled", "Pending",
    "PodInitializing", "Running", "Shutdown", "StartError", "Succeeded", "UnexpectedAdmissionError",
    "Unknown",
)
# fmt: on
_RESTART_STATES: Final = ("CrashLoopBackOff", "Running")
_CONSTRAINTS: Final = ("DoNotSchedule", "ScheduleAnyway")


_PodProtection = Annotated[str, "defaultevictor.PodProtection"]
_NoEvictionPolicy = Annotated[str, "defaultevictor.NoEvictionPolicy"]
_EvictionMode = Annotated[str, "nodeutilization.EvictionMode"]
_ConstraintAction = Annotated[str, "v1.UnsatisfiableConstraintAction"]
_MetricsSource = Annotated[str, "api.MetricsSource"]


class Namespaces(ArgsRecord, frozen=True):
    go_type = "api.Namespaces"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class OwnerKinds(ArgsRecord, frozen=True):
    go_type = "podlifetime.OwnerKinds"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class StrategyArgs(PluginArgs, frozen=True):
    """Base of the arguments of strategies: errors are sentences without a path."""

    def problems(self) -> Iterator[str]:
        """What is wrong with the arguments, in upstream's order and words."""
        yield from ()

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        return (FieldError(path, text) for text in self.problems())


class NamespaceArgs(StrategyArgs, frozen=True):
    """Arguments of strategies that can be restricted to the pods of some namespaces."""

    namespaces: Namespaces | None = None

    def problems(self) -> Iterator[str]:
        if self.namespaces is not None and self.namespaces.include and self.namespaces.exclude:
            yield "only one of Include/Exclude namespaces can be set"


class PodArgs(NamespaceArgs, frozen=True):
    """Arguments of strategies that can be restricted to pods of some namespaces, with some labels."""

    label_selector: LabelSelector | None = None

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self.selector_problems()

    def selector_problems(self) -> Iterator[str]:
        try:
            if self.label_selector is not None:
                compile_selector(self.label_selector)
        except SelectorError as error:
            yield f"failed to get label selectors from strategy's params: {error.problem}"


class PodConditionFilter(ArgsRecord, frozen=True):
    go_type = "podlifetime.PodConditionFilter"
    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Uint | None = None


class PodLifeTimeArgs(PodArgs, frozen=True):
    owner_kinds: OwnerKinds | None = None
    max_pod_life_time_seconds: Uint | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[PodConditionFilter, ...] = ()
    exit_codes: tuple[Int32, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    def problems(self) -> Iterator[str]:
        yield from NamespaceArgs.problems(self)
        kinds = self.owner_kinds
        if kinds is not None and kinds.include and kinds.exclude:
            yield "only one of Include/Exclude ownerKinds can be set"
        yield from self.selector_problems()
        yield from _not_among(self.states, _POD_STATES)
        for i, one in enumerate(self.conditions):
            if one == PodConditionFilter():
                yield (
                    f"conditions[{i}]: at least one of type, status, reason, or "
                    "minTimeSinceLastTransitionSeconds must be set"
                )
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            yield (
                "at least one filtering criterion must be specified "
                "(maxPodLifeTimeSeconds, states, conditions, or exitCodes)"
            )


def _not_among(states: Iterable[str], allowed: Iterable[str]) -> Iterator[str]:
    if not set(states) <= set(allowed):
        yield f"states must be one of [{' '.join(allowed)}]"


class RemoveFailedPodsArgs(PodArgs, frozen=True):
    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: Uint | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[Int32, ...] = ()
    including_init_containers: bool = False

    def completed(self, gates: Gates) -> Self:
        return (
            self
            if self.min_pod_lifetime_seconds is not None
            else replace(self, min_pod_lifetime_seconds=3600)
        )


class RemovePodsHavingTooManyRestartsArgs(PodArgs, frozen=True):
    pod_restart_threshold: Int32 = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.pod_restart_threshold < 1:
            yield "invalid PodsHavingTooManyRestarts threshold"
        yield from _not_among(self.states, _RESTART_STATES)


class RemovePodsViolatingNodeTaintsArgs(PodArgs, frozen=True):
    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] | None = None
    """An empty list includes nothing; None includes all."""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.included_taints and self.excluded_taints:
            yield "either includedTaints or excludedTaints can be set, but not both"


class RemovePodsViolatingNodeAffinityArgs(PodArgs, frozen=True):
    node_affinity_type: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        if not self.node_affinity_type:
            yield "nodeAffinityType needs to be set"
        yield from super().problems()


class RemovePodsViolatingInterPodAntiAffinityArgs(PodArgs, frozen=True):
    """Only the pods."""


class RemoveDuplicatesArgs(NamespaceArgs, frozen=True):
    exclude_owner_kinds: tuple[str, ...] = ()


class RemovePodsViolatingTopologySpreadConstraintArgs(PodArgs, frozen=True):
    constraints: tuple[_ConstraintAction, ...] = ()
    topology_balance_node_fit: bool | None = None

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for one in self.constraints:
            if one not in _CONSTRAINTS:
                yield f"constraint {one} is not one of map[DoNotSchedule:{{}} ScheduleAnyway:{{}}]"

    def completed(self, gates: Gates) -> Self:
        fits = True if self.topology_balance_node_fit is None else self.topology_balance_node_fit
        return replace(
            self, constraints=self.constraints or ("DoNotSchedule",), topology_balance_node_fit=fits
        )


class PrometheusQuery(ArgsRecord, frozen=True):
    go_type = "nodeutilization.Prometheus"
    query: str = ""


class MetricsUtilization(ArgsRecord, frozen=True):
    go_type = "nodeutilization.MetricsUtilization"
    metrics_server: bool = False
    source: _MetricsSource = ""
    prometheus: PrometheusQuery | None = None


class EvictionLimits(ArgsRecord, frozen=True):
    go_type = "api.EvictionLimits"
    node: Uint | None = None


Thresholds = Annotated[dict[str, Percentage], "api.ResourceThresholds"]


class LowNodeUtilizationArgs(StrategyArgs, frozen=True):
    use_deviation_thresholds: bool = False
    thresholds: Thresholds | None = None
    target_thresholds: Thresholds | None = None
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization | None = None
    evictable_namespaces: Namespaces | None = None
    eviction_limits: EvictionLimits | None = None

    @property
    def source(self) -> str:
        """Where usage comes from; empty: requests."""
        metrics = self.metrics_utilization
        if metrics is None:
            return ""
        return metrics.source or (KUBERNETES_METRICS if metrics.metrics_server else "")

    def problems(self) -> Iterator[str]:
        """The first problem only."""
        found = next(self._problems(), "")
        if found:
            yield found

    def _problems(self) -> Iterator[str]:
        low, high = self.thresholds or {}, self.target_thresholds or {}
        yield from _no_inclusion(self.evictable_namespaces)
        yield from (f"thresholds config is not valid: {text}" for text in _threshold_problems(low))
        yield from (f"targetThresholds config is not valid: {text}" for text in _threshold_problems(high))
        if len(low) != len(high):
            yield "thresholds and targetThresholds configured different resources"
        for name in sorted(low):
            if name not in high:
                yield "thresholds and targetThresholds configured different resources"
            elif not self.use_deviation_thresholds and low[name] > high[name]:
                yield f"thresholds' {name} percentage is greater than targetThresholds'"
        metrics = self.metrics_utilization
        if metrics is None:
            return
        if metrics.source == KUBERNETES_METRICS and metrics.metrics_server:
            yield 'it is not allowed to set both "KubernetesMetrics" source and metricsServer'
        if metrics.source == KUBERNETES_METRICS and metrics.prometheus is not None:
            yield 'prometheus configuration is not allowed to set when source is set to "KubernetesMetrics"'
        if metrics.source == PROMETHEUS and (metrics.prometheus is None or not metrics.prometheus.query):
            yield 'prometheus query is required when metrics source is set to "Prometheus"'


class HighNodeUtilizationArgs(StrategyArgs, frozen=True):
    thresholds: Thresholds | None = None
    number_of_nodes: int = 0
    eviction_modes: tuple[_EvictionMode, ...] = ()
    evictable_namespaces: Namespaces | None = None

    def problems(self) -> Iterator[str]:
        """The first problem only."""
        found = next(self._problems(), "")
        if found:
            yield found

    def _problems(self) -> Iterator[str]:
        yield from _no_inclusion(self.evictable_namespaces)
        yield from _threshold_problems(self.thresholds or {})
        for mode in self.eviction_modes:
            if mode != "OnlyThresholdingResources":
                yield f"invalid eviction mode {mode}"


def _no_inclusion(namespaces: Namespaces | None) -> Iterator[str]:
    if namespaces is not None and namespaces.include:
        yield "only Exclude namespaces can be set, inclusion is not supported"


def _threshold_problems(thresholds: Thresholds) -> Iterator[str]:
    if not thresholds:
        yield "no resource threshold is configured"
    for name, percentage in sorted(thresholds.items()):
        if not 0 <= percentage <= 100:
            yield f"{name} threshold not in [0, 100] range"


class PriorityThreshold(ArgsRecord, frozen=True):
    go_type = "api.PriorityThreshold"
    value: Int32 | None = None
    name: str = ""


class ProtectedStorageClass(ArgsRecord, frozen=True):
    go_type = "defaultevictor.ProtectedStorageClass"
    name: str = ""


class PodsWithPVCConfig(ArgsRecord, frozen=True):
    go_type = "defaultevictor.PodsWithPVCConfig"
    protected_storage_classes: tuple[ProtectedStorageClass, ...] = ()


class PodProtectionsConfig(ArgsRecord, frozen=True):
    go_type = "defaultevictor.PodProtectionsConfig"
    pods_with_pvc: PodsWithPVCConfig | None = field(default=None, name="PodsWithPVC")


class PodProtections(ArgsRecord, frozen=True):
    go_type = "defaultevictor.PodProtections"
    extra_enabled: tuple[_PodProtection, ...] = ()
    default_disabled: tuple[_PodProtection, ...] = ()
    config: PodProtectionsConfig | None = None


class DefaultEvictorArgs(StrategyArgs, frozen=True):
    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: Uint = 0
    min_pod_age: Duration | None = None
    no_eviction_policy: _NoEvictionPolicy = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = field(default=False, name="ignorePodsWithoutPDB")
    evict_failed_bare_pods: bool = False

    @property
    def protections(self) -> frozenset[str]:
        """The protections in effect. The deprecated fields decide only if the new lists are empty."""
        new = self.pod_protections
        if new.extra_enabled or new.default_disabled:
            return (frozenset(DEFAULT_PROTECTIONS) - {*new.default_disabled}) | {*new.extra_enabled}
        switched_off = zip(
            DEFAULT_PROTECTIONS,
            (
                self.evict_local_storage_pods,
                self.evict_system_critical_pods,
                self.evict_failed_bare_pods,
                self.evict_daemon_set_pods,
            ),
            strict=True,
        )
        added = zip(
            EXTRA_PROTECTIONS, (self.ignore_pvc_pods, self.ignore_pods_without_pdb, False), strict=True
        )
        return frozenset(name for name, off in switched_off if not off) | {name for name, on in added if on}

    @property
    def protected_storage_classes(self) -> frozenset[str]:
        config = self.pod_protections.config
        pvc = None if config is None else config.pods_with_pvc
        return frozenset() if pvc is None else frozenset(one.name for one in pvc.protected_storage_classes)

    def problems(self) -> Iterator[str]:
        threshold, new = self.priority_threshold, self.pod_protections
        if threshold is not None and threshold.value is not None and threshold.name:
            yield "priority threshold misconfigured, only one of priorityThreshold fields can be set"
        if self.no_eviction_policy not in ("", "Preferred", MANDATORY):
            yield 'noEvictionPolicy accepts only ["Preferred" "Mandatory"] values'
        deprecated = (
            self.evict_local_storage_pods,
            self.evict_daemon_set_pods,
            self.evict_system_critical_pods,
            self.ignore_pvc_pods,
            self.ignore_pods_without_pdb,
            self.evict_failed_bare_pods,
        )
        if (new.extra_enabled or new.default_disabled) and any(deprecated):
            yield (
                "cannot use Deprecated fields alongside PodProtections.ExtraEnabled or "
                "PodProtections.DefaultDisabled"
            )
        lists: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
            ("ExtraEnabled", new.extra_enabled, EXTRA_PROTECTIONS),
            ("DefaultDisabled", new.default_disabled, DEFAULT_PROTECTIONS),
        )
        for name, given, allowed in lists:
            for one in given:
                if one not in allowed:
                    yield (
                        f'invalid pod protection policy in {name}: "{one}". '
                        f"Valid options are: [{' '.join(allowed)}]"
                    )
        for name, given, _ in reversed(lists):
            if len(set(given)) < len(given):
                yield f"PodProtections.{name} contains duplicate entries"
        if (
            "PodsWithPVC" in new.extra_enabled
            and new.config is not None
            and new.config.pods_with_pvc is not None
        ):
            for i, one_class in enumerate(new.config.pods_with_pvc.protected_storage_classes):
                if not one_class.name:
                    yield (
                        f"PodProtections.Config.PodsWithPVC.ProtectedStorageClasses[{i}] name cannot be empty"
                    )


_ALWAYS_WRITTEN: Final = frozenset({"thresholds", "targetThresholds", "podProtections"})
_POINTERS: Final = frozenset(
    {
        "value",
        "node",
        "minPodLifetimeSeconds",
        "maxPodLifeTimeSeconds",
        "minTimeSinceLastTransitionSeconds",
        "topologyBalanceNodeFit",
    }
)
"""Fields whose zero is not the same as none."""


def go_wire(value: Any) -> Any:
    """Arguments as Go writes them: what is empty is left out, with few exceptions."""
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, dict):
        return {key: _number(each) if isinstance(each, float) else each for key, each in value.items()}
    if isinstance(value, tuple):
        return [go_wire(each) for each in value]
    if not hasattr(value, "__struct_fields__"):
        return value
    written: dict[str, Any] = {}
    for key, name in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
        each = getattr(value, name)
        plain = go_wire(each)
        is_named = isinstance(value, PriorityThreshold | ProtectedStorageClass)
        is_struct = hasattr(each, "__struct_fields__")
        if (
            key in _ALWAYS_WRITTEN
            or is_named
            or is_struct
            or (key in _POINTERS and each is not None)
            or plain
        ):
            written[key] = plain
    return written


def _number(percentage: float) -> int | float:
    return int(percentage) if percentage.is_integer() else percentage
