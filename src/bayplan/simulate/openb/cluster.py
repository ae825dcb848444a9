"""The trace as API objects, and a scheduler with one policy.

Nothing here decides: nodes and pods are what a cluster with GPU sharing has, and the scheduler is configured
by a file like any other. All default filters run; the policy is the only Score plugin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bayplan.api.meta import OWN_API_VERSION, ObjectMeta, ResourceList
from bayplan.api.node import Node, NodeStatus
from bayplan.api.pod import Container, Pod, PodSpec, ResourceRequirements
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.config.model import BAYPLAN_KIND
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.gpu_sharing import (
    FGD,
    GpuBestFit,
    GpuClustering,
    GpuDotProd,
    GpuPacking,
    GpuRandom,
)
from bayplan.plugins.library.gpu_sharing.policies import TypicalPod
from bayplan.plugins.library.gpu_sharing.request import GPU_COUNT, GPU_MILLI, GPU_MODEL, models_in
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.simulate.openb.trace import TraceNode, TracePod

POLICIES: Final[dict[str, type[Plugin]]] = {
    "Random": GpuRandom,
    "DotProd": GpuDotProd,
    "GpuClustering": GpuClustering,
    "GpuPacking": GpuPacking,
    "BestFit": GpuBestFit,
    "FGD": FGD,
}
"""The policies by their published names."""

ALLOWED_PODS: Final = 1001
"""Pods per node: never a limit in the experiment."""
TYPICAL_SHARE: Final = 0.95
"""The typical pods cover at least this share of the trace."""


def make_core(policy: str, seed: int, typical: Sequence[TypicalPod]) -> SchedulingCore:
    """An empty cluster and a scheduler with this policy."""
    plugin = POLICIES[policy]
    plugins = (*BUILTIN_PLUGINS, plugin)
    return SchedulingCore(_config(plugin, seed, typical), plugins=plugins)


def _config(plugin: type[Plugin], seed: int, typical: Sequence[TypicalPod]) -> KubeSchedulerConfiguration:
    args: dict[str, Any] = {}
    if plugin is GpuRandom:
        args = {"seed": seed}
    elif plugin is FGD:
        args = {
            "typicalPods": [
                {
                    "cpuMilli": pod.cpu_milli,
                    "gpuMilli": pod.gpu_milli,
                    "gpuCount": pod.gpu_count,
                    "gpuModels": list(pod.models),
                    "weight": pod.share,
                }
                for pod in typical
            ]
        }
    everything = [{"name": "*"}]
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [
            {
                "plugins": {
                    "multiPoint": {"enabled": [{"name": plugin.name}]},
                    # All pods have the same priority: there is nothing to preempt.
                    "postFilter": {"disabled": everything},
                    "score": {"disabled": everything, "enabled": [{"name": plugin.name}]},
                },
                "pluginConfig": [{"name": plugin.name, "args": args}] if args else [],
            }
        ],
    }
    own = {"apiVersion": OWN_API_VERSION, "kind": BAYPLAN_KIND, "tieBreak": "FirstNode"}
    text = "".join(f"---\n{msgspec.json.encode(document).decode()}\n" for document in (scheduler, own))
    return parse_config(text, catalog=catalog_with([plugin]))


def make_node(node: TraceNode) -> Node:
    allocatable: ResourceList = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": ALLOWED_PODS,
    }
    if node.gpus:
        allocatable[GPU_COUNT] = node.gpus
    labels = {GPU_MODEL: node.model} if node.model else {}
    return Node(
        metadata=ObjectMeta(name=node.name, labels=labels),
        status=NodeStatus(allocatable=allocatable, capacity=allocatable),
    )


def make_pod(pod: TracePod) -> Pod:
    """A pod like that of the trace; every arrival needs a name and uid of its own (`arrival_of`)."""
    annotations = {}
    if pod.gpus:
        annotations = {GPU_COUNT: str(pod.gpus), GPU_MILLI: str(pod.gpu_milli)}
        if pod.gpu_spec:
            annotations[GPU_MODEL] = pod.gpu_spec
    requests: ResourceList = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    return Pod(
        metadata=ObjectMeta(name=pod.name, namespace="default", annotations=annotations),
        spec=PodSpec(
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
            scheduler_name="default-scheduler",
        ),
    )


def arrival_of(pod: Pod, number: int) -> Pod:
    """The pod that arrives as this number."""
    name = f"{pod.metadata.name}-{number}"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=name))


def typical_pods(pods: Sequence[TracePod]) -> tuple[TypicalPod, ...]:
    """The most frequent requests that together cover 95 % of the trace. Memory is left aside."""
    groups = Counter((pod.cpu_milli, pod.gpu_milli, pod.gpus, pod.gpu_spec) for pod in pods)
    by_number = sorted(groups.items(), key=lambda item: (item[1], item[0]), reverse=True)
    chosen, covered = [], 0
    for group, number in by_number:
        chosen.append((group, number))
        covered += number
        if covered >= TYPICAL_SHARE * len(pods):
            break
    return tuple(
        TypicalPod(cpu, milli, gpus, models_in(spec), number / covered)
        for (cpu, milli, gpus, spec), number in chosen
    )
