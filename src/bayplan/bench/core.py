"""The decision core, as the benchmarks see it (`protocol.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.bench.errors import BenchError
from bayplan.bench.protocol import CoreUnderTest, Outcome
from bayplan.config import KubeSchedulerConfiguration
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Code
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore


@dataclass(frozen=True, slots=True)
class CoreOutcome:
    """The node of the pod, or the victims to evict first (and their node)."""

    node: str | None
    victims: Sequence[Pod] = ()
    nominated: str = ""


class MeasuredCore:
    """Pods are decided one after the other and assumed."""

    def __init__(self, core: SchedulingCore) -> None:
        self._core = core
        self._nominated: dict[str, str] = {}

    @property
    def rows_evaluated(self) -> int:
        return self._core.rows_computed

    def add_namespace(self, namespace: Namespace) -> None:
        self._core.cluster.objects.put(namespace)

    def add_node(self, node: Node) -> None:
        self._core.cluster.set_node(node)

    def schedule_one(self, pod: Pod) -> CoreOutcome:
        nominated = self._nominated.pop(pod.uid, None) if self._nominated else None
        if nominated is not None:
            pod = _nominated_to(pod, nominated)
        decision = self._core.decide(pod)
        if decision.status.code is Code.ERROR:
            raise BenchError(f"{pod.key}: {decision.message}")
        if decision.fits:
            self._core.assume(decision)
            return CoreOutcome(decision.node_name)
        eviction = decision.post_filter.eviction if decision.post_filter is not None else None
        if eviction is None:
            return CoreOutcome(None)
        return CoreOutcome(None, eviction.victims, eviction.node_name)

    def evict(self, preemptor: Pod, outcome: Outcome) -> None:
        assert isinstance(outcome, CoreOutcome)
        for victim in outcome.victims:
            self._core.cluster.remove_pod(victim.uid)
        self._core.cluster.nominate(preemptor, outcome.nominated)
        self._nominated[preemptor.uid] = outcome.nominated


def _nominated_to(pod: Pod, node_name: str) -> Pod:
    status = msgspec.structs.replace(pod.status, nominated_node_name=node_name)
    return msgspec.structs.replace(pod, status=status)


def make_core(
    release: Release = DEFAULT_RELEASE,
    config: KubeSchedulerConfiguration | None = None,
    plugins: Sequence[type[Plugin]] = (),
) -> CoreUnderTest:
    """An empty cluster; without a configuration the default one, with all nodes scored."""
    return MeasuredCore(SchedulingCore(config, plugins=(*BUILTIN_PLUGINS, *plugins), release=release))
