"""Compares scheduler configurations on the same cluster and workload, in parallel processes or with Dask.

Every configuration schedules the same pods on the same cluster, once for each seed. A seed affects what a
configuration or a plugin decides by chance and, with `shuffle`, the order in which pods arrive. These figures
are compared:

| figure | meaning |
|---|---|
| scheduled, not scheduled | pods of the workload, after its rollouts |
| skipped | pods of the workload whose schedulerName no profile has, or that are being deleted |
| preempted | pods that had to leave their node |
| nodes used | nodes with a pod of the workload |
| utilisation | requested share of what is allocatable, over all nodes |
| imbalance | standard deviation of the nodes' utilisation: 0 if all are equally full |
| fragmentation | share of free resources on nodes where pods like those of the workload do not fit |
| zone skew | over the owners of pods: most minus fewest pods in a zone, on average |
| waiting | seconds until a pod is bound, on average: backoff, groups, and the grace periods of victims |
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif.applying import apply_manifests
from bayplan.answers.whatif.cluster import Cluster
from bayplan.answers.whatif.manifests import Manifests
from bayplan.answers.whatif.outcomes import Outcome, Placements, RolloutResult, unique
from bayplan.api.meta import Object
from bayplan.api.pod import Pod, PodStatus
from bayplan.api.releases import RELEASES
from bayplan.api.storage import ZONE
from bayplan.config import KubeSchedulerConfiguration
from bayplan.controllers.pods import belongs_to_node
from bayplan.errors import InputError
from bayplan.runtime.failure_log import PluginFailure
from bayplan.scheduler.plugin_sources import load_plugin
from bayplan.simulate.scenarios.figures import RequestMix, fragmentation
from bayplan.state.cluster import Cluster as Columns

RESOURCES: Final = ("cpu", "memory")
SKIPPED: Final = "skipped"
FIGURES: Final = (
    "scheduled",
    "not scheduled",
    SKIPPED,
    "preempted",
    "nodes used",
    *(
        f"{name}: {resource}"
        for name in ("utilisation", "imbalance", "fragmentation")
        for resource in RESOURCES
    ),
    "zone skew",
    "waiting",
)

_WORKERS: Final = (
    "--dask {address}: the workers could not read the cluster: {error}. They need the same versions of "
    "Python and bayplan as this machine."
)
_NO_DASK: Final = "--dask needs the package distributed: pip install 'bayplan[dask]'"

_T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5 % quantile of Student's t distribution for 1, 2, … 30 degrees of freedom."""
_NORMAL_95: Final = 1.960


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration to compare."""

    name: str
    config: KubeSchedulerConfiguration
    plugin_specs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """The cluster, with the pods to schedule pending."""

    objects: tuple[Object, ...]
    listed: frozenset[str] = frozenset()
    shuffle: bool = False
    manifests: tuple[tuple[Manifests, int | None], ...] = ()
    """They are applied before, with this number of replicas: each configuration plays their rollouts."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration with one seed."""

    figures: dict[str, float]
    nodes: dict[str, str]
    """The node of each pod; empty if it is not scheduled."""
    warnings: tuple[Warning, ...]
    failures: tuple[PluginFailure, ...] = ()
    rollouts: tuple[RolloutResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over seeds."""

    mean: float
    margin: float | None = None
    """Half of the 95 % confidence interval; None if all seeds gave the same."""

    def as_json(self) -> dict[str, float | None]:
        return {"mean": self.mean, "margin": self.margin}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All variants, in the order in which they were given."""

    names: tuple[str, ...]
    seeds: int
    figures: dict[str, tuple[Estimate, ...]]
    """For each figure (`figures.py`) an estimate for each variant."""
    differences: dict[str, tuple[str, ...]]
    """Pods that do not get the same node in all variants (with the first seed): their nodes."""
    pods: int
    warnings: tuple[Warning, ...] = ()
    failures: tuple[PluginFailure, ...] = ()
    """What plugins did wrong: if there is something, the figures are not reliable."""
    rollouts: tuple[tuple[RolloutResult, ...], ...] = ()
    """Of each variant, with the first seed."""

    def as_json(self) -> dict[str, Any]:
        return {
            "variants": list(self.names),
            "seeds": self.seeds,
            "pods": self.pods,
            "figures": {
                name: [estimate.as_json() for estimate in estimates]
                for name, estimates in self.figures.items()
            },
            "differences": {pod: list(nodes) for pod, nodes in self.differences.items()},
            "rollouts": [[one.as_json() for one in of_variant] for of_variant in self.rollouts],
            "failures": [failure.message for failure in self.failures],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def from_scratch(objects: Iterable[Object]) -> Iterator[Object]:
    """The cluster as if all pods had just been created, except those of DaemonSets and static pods."""
    for item in objects:
        if isinstance(item, Pod) and item.spec.node_name and _is_rescheduled(item):
            # Its claims stay: no controller would create them again.
            status = PodStatus(resource_claim_statuses=item.status.resource_claim_statuses)
            item = replace(item, spec=replace(item.spec, node_name=""), status=status)
        yield item


def _is_rescheduled(pod: Pod) -> bool:
    return not (pod.is_finished or pod.is_terminating or belongs_to_node(pod))


def run_trial(workload: Workload, variant: Variant, seed: int) -> Trial:
    """Schedules the workload with one configuration and one seed."""
    # A release that was sent to another process is a copy, and releases are compared by identity.
    config = replace(variant.config, release=RELEASES[variant.config.release.version])
    plugins = [load_plugin(spec) for spec in variant.plugin_specs]
    cluster = Cluster.from_objects(
        workload.objects, config=config, plugins=plugins, listed=workload.listed, seed=seed
    )
    for manifests, replicas in workload.manifests:
        apply_manifests(cluster, manifests, replicas)
    pods = cluster.pending
    if workload.shuffle:
        random.Random(seed).shuffle(pods)
    placed = cluster.schedule(pods)
    if placed.rollouts:
        known, left = {pod.key for pod in pods}, {one.pod for one in placed}
        created = (key for rollout in placed.rollouts for key in rollout.pods if key not in known)
        # Without pods of earlier templates that are gone.
        pods = [*(pod for pod in pods if pod.key in left), *map(cluster.pod, created)]
    rejected = [one.pod for one in cluster.not_recreated if one.outcome is Outcome.REJECTED]
    nodes = {key: placed.nodes.get(key, "") for key in (*(pod.key for pod in pods), *rejected)}
    figures = measure(cluster.columns, pods, placed, rejected=len(rejected))
    return Trial(figures, nodes, placed.warnings, placed.failures, placed.rollouts)


def compare(
    workload: Workload, variants: Sequence[Variant], *, seeds: int = 1, jobs: int = 0, dask: str = ""
) -> Comparison:
    """Runs all trials and summarises them.

    Args:
        jobs: processes; 0: one for each CPU.
        dask: the address of a Dask scheduler that runs the trials instead.

    Raises:
        InputError: Dask is not installed or not reachable, or its workers do not have bayplan.
    """
    runs = [(variant, seed) for variant in variants for seed in range(seeds)]
    jobs = min(jobs or _cpus(), len(runs))
    if dask:
        trials = _on_dask(workload, runs, dask)
    elif jobs > 1:
        with ProcessPoolExecutor(jobs, initializer=_remember, initargs=(workload,)) as pool:
            trials = list(pool.map(_run_remembered, runs))
    else:
        trials = [run_trial(workload, *one) for one in runs]
    by_variant = [trials[start : start + seeds] for start in range(0, len(trials), seeds)]
    first = [of_variant[0].nodes for of_variant in by_variant]
    # A rollout that stalls under one configuration has other pods than one that completes.
    every = dict.fromkeys(pod for one in first for pod in one)
    nodes_of = {pod: tuple(one.get(pod, "") for one in first) for pod in every}
    differences = {pod: nodes for pod, nodes in nodes_of.items() if len(set(nodes)) > 1}
    return Comparison(
        tuple(variant.name for variant in variants),
        seeds,
        {name: tuple(estimate([t.figures[name] for t in of]) for of in by_variant) for name in FIGURES},
        differences,
        len(every),
        unique(warning for trial in trials for warning in trial.warnings),
        unique(failure for trial in trials for failure in trial.failures),
        tuple(of_variant[0].rollouts for of_variant in by_variant),
    )


def estimate(values: Sequence[float]) -> Estimate:
    """The mean, with its 95 % confidence interval if the values differ."""
    mean = fmean(values)
    if len(set(values)) == 1:
        return Estimate(mean)
    degrees = len(values) - 1
    quantile = _T_95[degrees - 1] if degrees <= len(_T_95) else _NORMAL_95
    return Estimate(mean, quantile * stdev(values) / sqrt(len(values)))


def _cpus() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_remembered: Workload | None = None


def _remember(workload: Workload) -> None:
    """Sets the workload of a process once; it is large."""
    global _remembered
    _remembered = workload


def _run_remembered(run: tuple[Variant, int]) -> Trial:
    assert _remembered is not None
    return run_trial(_remembered, *run)


def _on_dask(workload: Workload, runs: Sequence[tuple[Variant, int]], address: str) -> list[Trial]:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(_NO_DASK) from error
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise InputError(f"--dask {address}: {error}") from error
    with client:
        try:
            sent = client.scatter(workload, broadcast=True)
        except Exception as error:  # What a worker raises arrives as a plain Exception.
            raise InputError(_WORKERS.format(address=address, error=error)) from error
        futures = [client.submit(run_trial, sent, variant, seed, pure=False) for variant, seed in runs]
        found: list[Trial] = client.gather(futures)
        return found


# Figures


def measure(
    columns: Columns, pods: Sequence[Pod], placed: Placements, *, rejected: int = 0
) -> dict[str, float]:
    """The figures after these pods were scheduled.

    Args:
        rejected: pods that the API server does not create.
    """
    rows = columns.order
    keys = {pod.key for pod in pods}
    # Victims are created again, and are no pods of the workload: they have their own figure.
    outcomes = Counter(one.outcome for one in placed if one.pod in keys)
    skipped = outcomes[Outcome.SKIPPED]
    found: dict[str, float] = {
        "scheduled": outcomes[Outcome.SCHEDULED],
        "not scheduled": len(pods) - outcomes[Outcome.SCHEDULED] - skipped + rejected,
        SKIPPED: skipped,
        "preempted": len(placed.evicted),
        "nodes used": len(set(placed.nodes.values())),
        "zone skew": _zone_skew(columns, pods, placed.nodes),
        "waiting": _mean([one.waited_seconds for one in placed.scheduled]),
    }
    free = {}
    for resource in RESOURCES:
        amounts = columns.nodes.resource(resource)
        allocatable = amounts.allocatable.read[rows]
        requested = amounts.requested.read[rows]
        free[resource] = allocatable - requested
        total = int(allocatable.sum())
        found[f"utilisation: {resource}"] = int(requested.sum()) / total if total else 0.0
        has_some = allocatable > 0
        shares = requested[has_some] / allocatable[has_some]
        found[f"imbalance: {resource}"] = float(np.std(shares)) if len(shares) else 0.0
    mix = RequestMix()
    for pod in pods:
        mix.arrived[mix.of(pod)] += 1
    nodes = columns.nodes
    free_pods = nodes.allowed_pods.read[rows] - nodes.pod_count.read[rows]
    for resource, share in fragmentation(free, free_pods, mix.most_frequent()).items():
        found[f"fragmentation: {resource}"] = share
    return {name: found[name] for name in FIGURES}


def _zone_skew(columns: Columns, pods: Sequence[Pod], nodes: dict[str, str]) -> float:
    zone_of = {
        node.name: node.labels[ZONE]
        for node in columns.nodes.node
        if node is not None and ZONE in node.labels
    }
    zones = set(zone_of.values())
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for pod in pods:
        owner, node = pod.metadata.controller(), nodes.get(pod.key, "")
        if owner is not None and node in zone_of:
            groups[pod.namespace, owner.name][zone_of[node]] += 1
    skews = [max(counts.values()) - min(counts[zone] for zone in zones) for counts in groups.values()]
    return _mean([float(skew) for skew in skews])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
