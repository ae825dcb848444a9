"""Results that depend on the pods of a row: shared between signatures, and current after every placement."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.plugin import CycleState, Dependencies, IntColumn, NodeColumns, Plugin, Pod, normalize_default
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .profiles import found, make_framework


class ByLabels(Plugin):
    """Every app has a signature of its own."""

    depends_on = Dependencies.of("labels")

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


class FewestPods(Plugin):
    """Prefers nodes with few pods; the raw scores are numbers of pods."""

    depends_on = Dependencies.of(usage=True)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.asarray(nodes.pod_count, dtype=np.int64)

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores, reverse=True)


def test_signatures_with_equal_requests_share_what_depends_on_usage() -> None:
    """A row where a pod was added is combined once for all of them."""
    framework = make_framework(make_plugin(ByLabels), make_plugin(NodeResourcesFit), nodes=20)

    def rows_computed() -> int:
        before = framework.rows_computed
        for app in ("a", "b", "c"):
            found(framework, make_pod(app, cpu="100m", labels={"app": app}))
        return framework.rows_computed - before

    assert rows_computed() == 60
    framework.cluster.add_pod(make_pod("other", cpu="1"), "n3")
    assert rows_computed() == 1


@pytest.mark.parametrize("apps", [1, 3], ids=["identical pods", "three signatures in turn"])
def test_normalized_scores_are_current_after_every_placement(apps: int) -> None:
    cached, uncached = (
        make_framework(make_plugin(ByLabels), make_plugin(FewestPods), nodes=4, cache=cache)
        for cache in (True, False)
    )
    for number in range(24):
        pod = make_pod(f"p{number}", labels={"app": str(number % apps)})
        assert found(cached, pod).node_name == found(uncached, pod).node_name
        for framework in (cached, uncached):
            framework.cluster.add_pod(pod, f"n{number * 7 % 4}" if number % 3 else "n0")
