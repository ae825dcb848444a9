"""The scheduling core of a what-if cluster: real plugins, without the steps that would act on the world.

PreBind, Bind and PostBind of plugins that do not belong to bayplan may write anywhere, so they are not run,
and a warning names them. All other extension points run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from bayplan.answers.sources.loading import extender_warnings
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.devices import DeviceClass
from bayplan.api.pod import Pod
from bayplan.config import KubeSchedulerConfiguration
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.default_binder import DefaultBinder
from bayplan.runtime.failure_log import FailureLog
from bayplan.runtime.profile import PointStep, Profile
from bayplan.scheduler.context import SchedulerHandle
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import Decision
from bayplan.state.cluster import Cluster as Columns

_NOT_RUN: Final = "{point} of plugin {plugin} is not run: it may write outside of the cluster"


class WhatIfHandle(SchedulerHandle):
    """A handle that knows whether a plugin waits for a timer."""

    def __init__(self, api: ClusterAPI, cluster: Columns, now: Callable[[], float], seed: int) -> None:
        super().__init__(api, cluster, now, seed)
        self.timers = 0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers += 1

        def call() -> None:
            self.timers -= 1
            callback()

        super().call_later(seconds, call)


class Profiles:
    """Makes scheduling cores for one configuration on one cluster."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        plugins: Sequence[type[Plugin]],
        columns: Columns,
        api: ClusterAPI,
        now: Callable[[], float],
    ) -> None:
        self._extenders = extender_warnings(config)
        self.config = replace(config, extenders=())
        self._plugins = tuple(dict.fromkeys((*BUILTIN_PLUGINS, *plugins)))
        self._columns, self._api, self._now = columns, api, now
        self.warnings: list[Warning] = []
        self.failures = FailureLog()
        """Where failing plugins are reported, whichever core runs them."""
        self._core = self._make()
        self._own = {
            plugin.name
            for framework in self._core.frameworks.values()
            for plugin in framework.profile.all_plugins()
            if type(plugin) not in BUILTIN_PLUGINS
        }
        self.keeps_state = bool(self._own)
        """Whether plugins may remember earlier pods: every run then gets new ones. Built-in ones do not."""

    def with_config(self, config: KubeSchedulerConfiguration, plugins: Sequence[type[Plugin]]) -> Profiles:
        """The same cluster with another configuration."""
        return Profiles(config, plugins, self._columns, self._api, self._now)

    def core(self, *, for_run: bool = False) -> SchedulingCore:
        """The core for single decisions, or for a run of the scheduler."""
        if for_run and self.keeps_state:
            self._core = self._make()
        return self._core

    def _make(self) -> SchedulingCore:
        handle = WhatIfHandle(self._api, self._columns, self._now, 0)
        core = SchedulingCore(
            self.config, cluster=self._columns, plugins=self._plugins, handle=handle, failures=self.failures
        )
        warnings: dict[Warning, None] = {}
        for framework in core.frameworks.values():
            profile = framework.profile
            profile.pre_binds = _ours(profile.pre_binds, Point.PRE_BIND, warnings)
            profile.post_binds = _ours(profile.post_binds, Point.POST_BIND, warnings)
            binder = DefaultBinder(None, handle)
            _ours(profile.binds, Point.BIND, warnings)
            profile.binds = (PointStep(binder.name, binder, binder, built_in=True),)
        self.warnings = [*self._extenders, *warnings]
        return core

    def has_failed(self, decision: Decision) -> bool:
        """Whether a plugin failed. A deliberate error of a built-in plugin is an answer about the pod."""
        status = decision.status
        is_error = not status.is_success and not status.is_rejection
        return is_error and (status.plugin in self._own or bool(decision.traceback))

    def is_plain(self, profile: Profile, pod: Pod) -> bool:
        """Whether a pod is bound as soon as a node is found: nothing is reserved or written before."""
        spec = pod.spec
        if self.keeps_state or profile.permits or spec.resource_claims:
            return False
        if any(pod.claim_name(volume) for volume in spec.volumes):
            return False
        return not any(one.spec.extended_resource_name for one in self._columns.objects.of(DeviceClass))


def _ours(
    steps: tuple[PointStep[Any], ...], point: Point, warnings: dict[Warning, None]
) -> tuple[PointStep[Any], ...]:
    kept = []
    for step in steps:
        if type(step.plugin).__module__.startswith("bayplan."):
            kept.append(step)
        else:
            text = _NOT_RUN.format(point=point, plugin=step.name)
            warnings[Warning(text, reason=Reason.NOT_RUN, object=step.name)] = None
    return tuple(kept)
