"""The four volume plugins agree with rules written for one node, on clusters that keep changing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bayplan.plugin import Cluster, CycleState, Node, NodeColumns, Plugin, Pod
from bayplan.plugin.preemption import Hypothesis
from bayplan.plugins.node_volume_limits import NodeVolumeLimits
from bayplan.plugins.volume_binding import VolumeBinding
from bayplan.plugins.volume_restrictions import VolumeRestrictions
from bayplan.plugins.volume_zone import VolumeZone
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from . import plain_volumes
from .plain_volumes import Rejection
from .volume_clusters import Storage
from .volume_evaluating import filtered, filtering, supposing

CHANCE = st.integers(0, 2**32).map(random.Random)
"""A seed is enough: drawing every choice from hypothesis is twenty times slower."""

PlainRule = Callable[[Cluster, Pod, Node, Sequence[Pod]], Rejection | None]


def everywhere(cluster: Cluster) -> list[Pod]:
    """All pods on known nodes."""
    return [pod for row in cluster.order for pod in cluster.pods_on(int(row))]


RULES: dict[type[Plugin], PlainRule] = {
    VolumeRestrictions: lambda cluster, pod, node, here: plain_volumes.restrictions(
        cluster.objects, pod, here, everywhere(cluster)
    ),
    NodeVolumeLimits: lambda cluster, pod, node, here: plain_volumes.limits(cluster.objects, pod, node, here),
    VolumeBinding: lambda cluster, pod, node, here: plain_volumes.binding(cluster.objects, pod, node),
    VolumeZone: lambda cluster, pod, node, here: plain_volumes.zone(cluster.objects, pod, node),
}


def plainly(rule: PlainRule, cluster: Cluster, pod: Pod, view: NodeColumns) -> dict[str, Rejection]:
    found = {}
    for position, row in enumerate(view.rows.tolist()):
        node = cluster.nodes.node[row]
        if node is not None:
            rejection = rule(cluster, pod, node, view.pods_on(position))
            if rejection is not None:
                found[node.name] = rejection
    return found


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.name)
@settings(max_examples=examples(150), deadline=None)
@example(rng=random.Random(261041223))  # two errors on one node: the first ends its evaluation
@given(rng=CHANCE)
def test_all_rows_and_few_agree_with_one_node_at_a_time(kind: type[Plugin], rng: random.Random) -> None:
    """Whatever happened before, and however many rows are evaluated."""
    storage = Storage(rng)
    cluster = storage.cluster()
    for _ in range(4):
        pod, plugin, state = storage.pod(), make_plugin(kind), CycleState()
        for claim in storage.made_for(pod):
            cluster.objects.put(claim)
        if filtering(plugin).pre_filter(state, pod, NodeColumns(cluster)) is None:
            rows = np.array(sorted(rng.sample(range(cluster.nodes.high), cluster.nodes.high // 2)))
            for view in (NodeColumns(cluster), NodeColumns(cluster, rows.astype(np.intp))):
                assert filtered(plugin, state, pod, view) == plainly(RULES[kind], cluster, pod, view)
        for _ in range(rng.randrange(4)):
            storage.change(cluster)


@settings(max_examples=examples(150), deadline=None)
@given(rng=CHANCE)
def test_limits_with_other_pods_there_agree_with_one_node_at_a_time(rng: random.Random) -> None:
    storage = Storage(rng)
    cluster = storage.cluster()
    pod, plugin, state = storage.pod(), make_plugin(NodeVolumeLimits), CycleState()
    if plugin.pre_filter(state, pod, NodeColumns(cluster)) is None:
        view = some_hypothesis(storage, cluster)
        assert filtered(plugin, state, pod, view) == plainly(RULES[NodeVolumeLimits], cluster, pod, view)


@settings(max_examples=examples(150), deadline=None)
@given(rng=CHANCE)
def test_disks_with_other_pods_there_agree_with_one_node_at_a_time(rng: random.Random) -> None:
    """Claims aside, which are counted by AddPod and RemovePod."""
    storage = Storage(rng)
    cluster = storage.cluster()
    pod, plugin, state = storage.pod(), make_plugin(VolumeRestrictions), CycleState()
    if plugin.pre_filter(state, pod, NodeColumns(cluster)) is None:
        view = some_hypothesis(storage, cluster)
        assert filtered(plugin, state, pod, view) == plainly(RULES[VolumeRestrictions], cluster, pod, view)


def some_hypothesis(storage: Storage, cluster: Cluster) -> Hypothesis:
    names = [cluster.nodes.name[int(row)] for row in cluster.order]
    gone = [pod for pod in everywhere(cluster) if storage.maybe(50)]
    added = {name: [storage.pod() for _ in range(storage.rng.randrange(2))] for name in names}
    return supposing(cluster, gone, added)
