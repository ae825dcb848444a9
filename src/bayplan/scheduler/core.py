"""The decision core: a cluster, the profiles of a configuration, and decisions.

All decisions are made here: for `bayplan decide`, benchmarks, and the scheduler itself.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.config import (
    KubeSchedulerConfiguration,
    ProfilePlan,
    QueueDialect,
    build_profiles,
    default_config,
)
from bayplan.dra.budget import SearchClock, StepClock
from bayplan.errors import ConfigError
from bayplan.framework.outcome import fit_error
from bayplan.framework.plugin_api import Handle, Plugin, WaitingPodView
from bayplan.framework.points import Point
from bayplan.framework.status import plugin_exceptions
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.extension_points import POINTS, Placement, RejectedError
from bayplan.runtime.failure_log import FailureLog
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import Profile
from bayplan.runtime.search import SearchStart
from bayplan.scheduler.cycle import Decision, decide, error_decision
from bayplan.scheduler.plugin_sources import catalog_with, enable_everywhere, named_library_plugins
from bayplan.state.cluster import Cluster

if TYPE_CHECKING:
    from bayplan.extender.chain import ExtenderChain

_log = logging.getLogger(__name__)


class CoreHandle:
    """The handle of a core that only decides and never acts."""

    def __init__(self, cluster: Cluster, seed: int = 0) -> None:
        self.cluster = cluster
        self.release = cluster.release
        self.log = logging.getLogger("bayplan.plugin")
        self.random = random.Random(seed)
        self.search_clock: SearchClock = StepClock()

    def now(self) -> float:
        return time.time()

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError("a core that only decides binds nothing")

    def is_preempting(self, uid: str) -> bool:
        return False

    @property
    def api(self) -> ClusterAPI:
        raise NotImplementedError("a core that only decides has no API server")

    def waiting_pods(self) -> Iterator[WaitingPodView]:
        return iter(())

    def waiting_pod(self, uid: str) -> WaitingPodView | None:
        return None

    def activate(self, pods: Iterable[Pod]) -> None:
        return None

    def pods_with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        return ()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        return None


def make_profile(
    plan: ProfilePlan,
    classes: Mapping[str, type[Plugin]],
    handle: Handle,
    failures: FailureLog | None = None,
) -> Profile:
    """Creates the plugins of a plan, in order. One instance serves all its points."""
    made: dict[str, Plugin] = {}
    for names in plan.plugins.values():
        for name in names:
            if name not in made and name in classes:
                try:
                    made[name] = classes[name](plan.args.get(name), handle)
                except plugin_exceptions() as error:
                    raise ConfigError(
                        f"initializing profiles: creating profile for scheduler name {plan.scheduler_name}: "
                        f'initializing plugin "{name}": {error}'
                    ) from error
    plugins: dict[Point, list[Plugin]] = {
        point: [made[name] for name in names if name in made] for point, names in plan.plugins.items()
    }
    percentage = plan.percentage_of_nodes_to_score
    return Profile(plan.scheduler_name, plugins, plan.weights, percentage, failures, plan.placement_weights)


def queue_plugins(config: KubeSchedulerConfiguration) -> tuple[type[Plugin], ...]:
    """The plugin of capacity queues, if there are any."""
    if config.bayplan.queues is None:
        return ()
    # Imported here: few configurations have queues, and the import delays every start.
    if config.bayplan.queues.dialect is QueueDialect.VOLCANO:
        from bayplan.queues.volcano.preemption import VolcanoPreemption

        return (VolcanoPreemption,)
    from bayplan.queues.preemption import CapacityPreemption

    return (CapacityPreemption,)


def make_extenders(config: KubeSchedulerConfiguration, cluster: Cluster) -> ExtenderChain | None:
    """The extenders of a configuration; None if it has none."""
    if not config.extenders:
        return None
    # Imported here: few configurations have extenders, and the import delays every start.
    from bayplan.extender.chain import build_chain

    return build_chain(config.extenders, cluster)


class SchedulingCore:
    """Decides for pods of every profile, on one cluster.

    `plugins` are the available classes. Those that are not built in run at all their points, last, unless the
    configuration names them (`plugin_sources.py`). The library need not be among them: its plugins run where
    the configuration names them. `release` is for a core without configuration: a configuration has its own,
    which is also that of a given cluster.
    """

    def __init__(
        self,
        config: KubeSchedulerConfiguration | None = None,
        *,
        cluster: Cluster | None = None,
        cache: bool = True,
        plugins: Iterable[type[Plugin]] = BUILTIN_PLUGINS,
        handle: Handle | None = None,
        release: Release = DEFAULT_RELEASE,
        failures: FailureLog | None = None,
    ) -> None:
        self.failures = FailureLog() if failures is None else failures
        """Where failing plugins are reported."""
        config = default_config(release=release) if config is None else config
        self.release = config.release
        self.cluster = Cluster(self.release) if cluster is None else cluster
        self.handle: Handle = CoreHandle(self.cluster) if handle is None else handle
        classes = {plugin.name: plugin for plugin in plugins}
        given = [plugin for plugin in classes.values() if plugin not in BUILTIN_PLUGINS]
        self.config = config = enable_everywhere(config, given)
        classes = named_library_plugins(config) | classes
        self.search_start = start = SearchStart()
        self.frameworks = {
            plan.scheduler_name: Framework(
                make_profile(plan, classes, self.handle, self.failures),
                self.cluster,
                cache=cache,
                start=start,
                tie_break=config.bayplan.tie_break,
            )
            for plan in build_profiles(config, catalog_with(given, self.release))
        }

    def framework_for(self, pod: Pod) -> Framework | None:
        """The profile of this pod; None if its schedulerName is another."""
        return self.frameworks.get(pod.spec.scheduler_name)

    def decide(self, pod: Pod) -> Decision:
        """One attempt for the pod, without side effects."""
        framework = self.framework_for(pod)
        if framework is None:
            raise ConfigError(
                f"pod {pod.key}: no profile is named {pod.spec.scheduler_name!r}, "
                f"only {sorted(self.frameworks)}"
            )
        return decide(framework, pod)

    def assume(self, decision: Decision) -> None:
        """Assumes the pod on the node of the decision."""
        assert decision.found is not None
        self.cluster.remove_nomination(decision.pod.uid)
        self.cluster.add_pod(decision.pod, decision.node_name, decision.found.search.pod_info)

    def place(self, pod: Pod) -> Decision:
        """One scheduling cycle without a loop: decides and, if a node fits, assumes the pod and runs Reserve.

        Permit and binding are left out.
        """
        decision = self.decide(pod)
        return decision if decision.found is None else self.reserve(decision)

    def reserve(self, decision: Decision) -> Decision:
        """Assumes the pod and runs Reserve, as the scheduler does after each decision.

        Returns the decision. If a plugin rejects the pod or fails, Unreserve runs, the pod is removed again,
        and a decision without a node is returned.
        """
        assert decision.found is not None
        pod, framework = decision.pod, self.frameworks[decision.pod.spec.scheduler_name]
        placed = Placement(framework.profile, decision.found.search.state, pod, decision.node_name)
        self.assume(decision)
        try:
            POINTS.reserve(placed)
        except (RejectedError, AttemptError) as failed:
            POINTS.unreserve(placed)
            self.cluster.remove_pod(pod.uid)
            if isinstance(failed, RejectedError):
                return Decision(pod, failed.status, fit_error(1, [(failed.status, 1)]))
            return error_decision(pod, str(failed), failed.plugin, failed.traceback)
        return decision

    @property
    def rows_computed(self) -> int:
        return sum(framework.rows_computed for framework in self.frameworks.values())

    def load(self, objects: Iterable[Object]) -> None:
        """Fills the cluster: first the nodes, then assigned pods, nominated pods and other objects."""
        pods: list[Pod] = []
        for item in objects:
            if isinstance(item, Node):
                self.cluster.set_node(item)
            elif isinstance(item, Pod):
                pods.append(item)
            else:
                self.cluster.objects.put(item)
        present = [pod for pod in pods if not pod.is_finished]
        self.cluster.add_pods([pod for pod in present if pod.spec.node_name])
        for pod in present:
            if pod.spec.node_name:
                continue
            if self.cluster.groups is not None and pod.spec.scheduler_name in self.frameworks:
                self.cluster.groups.pod_pending(pod)
            if pod.status.nominated_node_name and self._counts_as_nominated(pod):
                self.cluster.nominate(pod, pod.status.nominated_node_name)

    def _counts_as_nominated(self, pod: Pod) -> bool:
        is_nominated = self.release.queue.nominates_gated_pods or not pod.spec.scheduling_gates
        return is_nominated and pod.spec.scheduler_name in self.frameworks
