"""Plugins without a scheduler: a handle that records, and plugins that are made with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.core import CoreHandle
from bayplan.state.cluster import Cluster

PluginT = TypeVar("PluginT", bound=Plugin)


class FakeHandle(CoreHandle):
    """A handle for tests. Time passes only when the test changes `time`, and calls are recorded."""

    def __init__(self, cluster: Cluster | None = None, *, time: float = 0.0, seed: int = 0) -> None:
        super().__init__(Cluster() if cluster is None else cluster, seed)
        self.time = time
        self.bound: list[tuple[Pod, str, dict[str, str]]] = []
        self.activated: list[Pod] = []
        self.preempting: set[str] = set()
        """Uids of pods whose victims are being evicted."""

    def now(self) -> float:
        return self.time

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        self.bound.append((pod, node_name, dict(annotations or {})))

    def is_preempting(self, uid: str) -> bool:
        return uid in self.preempting

    def activate(self, pods: Iterable[Pod]) -> None:
        self.activated.extend(pods)


def make_plugin(plugin: type[PluginT], args: Any = None, cluster: Cluster | None = None) -> PluginT:
    """The plugin with these arguments, or its default ones, and a fake handle."""
    return plugin(args, FakeHandle(cluster))
