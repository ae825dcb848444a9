"""Clusters and pods for the tests of PodTopologySpread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
from hypothesis import strategies as st

from bayplan.api.pod import TopologySpreadConstraint
from bayplan.plugin import Cluster, Code, Node, NodeColumns, Plugin, Pod
from bayplan.plugins.pod_topology_spread import MISSING_LABEL, SKEWED, PodTopologySpread
from bayplan.testing.builders import (
    make_node,
    make_pod,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import Evaluation, make_cluster

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


WEB = {"app": "web"}


NOW = datetime(2026, 1, 1, tzinfo=UTC)


TOO_MANY = (Code.UNSCHEDULABLE, SKEWED.reasons)


NO_LABEL = (Code.UNRESOLVABLE, MISSING_LABEL.reasons)


def zoned(name: str, zone: str | None = None, **labels: str) -> Node:
    """A node with its host name, and perhaps its zone."""
    own = {HOST: name, **labels}
    return make_node(name, labels=own if zone is None else {**own, ZONE: zone})


def webs(count: int, prefix: str, *, namespace: str = "default", terminating: bool = False) -> list[Pod]:
    deleted = NOW if terminating else None
    return [
        make_pod(f"{prefix}-{number}", labels=WEB, namespace=namespace, deleted=deleted)
        for number in range(count)
    ]


def hosts(*counts: int) -> Cluster:
    """A node for each count, with this many pods."""
    nodes = [zoned(f"n{number}") for number in range(len(counts))]
    return make_cluster(
        nodes, {f"n{number}": webs(count, f"n{number}") for number, count in enumerate(counts)}
    )


def web(*spread: TopologySpreadConstraint, labels: Mapping[str, str] = WEB) -> Pod:
    return make_pod("web", labels=labels, spread=spread)


def evaluate(pod: Pod, cluster: Cluster, plugin: Plugin | None = None) -> Evaluation:
    return Evaluation(make_plugin(PodTopologySpread) if plugin is None else plugin, pod, cluster)


labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(("web", "db")), "rev": st.sampled_from("12")}
)


def evaluate_feasible(pod: Pod, cluster: Cluster, feasible: list[Node]) -> Evaluation:
    """The plugin after PreScore saw these nodes."""
    evaluation = evaluate(pod, cluster)
    rows = np.array([cluster.nodes.row_of[node.name] for node in feasible], dtype=np.intp)
    evaluation.nodes = NodeColumns(cluster, rows)
    assert evaluation.plugin.pre_score(evaluation.state, pod, evaluation.nodes) is None
    return evaluation
