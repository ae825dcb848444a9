"""Clusters and pods for the tests of InterPodAffinity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from hypothesis import strategies as st

from bayplan.api.pod import PodAffinityTerm
from bayplan.plugin import Cluster, Code, Pod
from bayplan.plugin.args import InterPodAffinityArgs
from bayplan.plugins.inter_pod_affinity import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    InterPodAffinity,
)
from bayplan.testing.builders import (
    make_expression,
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_selector,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import Evaluation, make_cluster

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


WEB, DB = {"app": "web"}, {"app": "db"}


NOW = datetime(2026, 1, 1, tzinfo=UTC)


TOO_FAR = (Code.UNRESOLVABLE, AFFINITY.reasons)


TOO_NEAR = (Code.UNSCHEDULABLE, ANTI_AFFINITY.reasons)


KEPT_AWAY = (Code.UNSCHEDULABLE, EXISTING_ANTI_AFFINITY.reasons)


Rejection = tuple[Code, tuple[str, ...]]


def zones(assigned: Mapping[str, Iterable[Pod]] | None = None) -> Cluster:
    """Two zones of two nodes, a1 to b2, and a node without a zone, with these pods on them."""
    nodes = [
        make_node(f"{zone}{number}", labels={ZONE: zone, HOST: f"{zone}{number}"})
        for zone in "ab"
        for number in (1, 2)
    ]
    nodes.append(make_node("lost", labels={HOST: "lost"}))
    return make_cluster(nodes, {name: list(pods) for name, pods in (assigned or {}).items()})


def evaluate(pod: Pod, cluster: Cluster, **args: int | bool) -> Evaluation:
    return Evaluation(make_plugin(InterPodAffinity, InterPodAffinityArgs(**args)), pod, cluster)  # type: ignore[arg-type]  # by name


def near(*terms: PodAffinityTerm, labels: Mapping[str, str] | None = None) -> Pod:
    return make_pod("incoming", labels=labels, affinity=make_pod_affinity(required=terms))


def away(*terms: PodAffinityTerm, labels: Mapping[str, str] | None = None) -> Pod:
    return make_pod("incoming", labels=labels, affinity=make_pod_affinity(anti_required=terms))


REPELS_WEB = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB)])


labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from(("web", "db")), "tier": st.just("front")})


selectors = st.sampled_from(
    (
        make_selector(WEB),
        make_selector(WEB),
        make_selector({}, make_expression("app", "In", "web", "db")),
        make_selector({}, make_expression("app", "NotIn", "db")),
        make_selector({}, make_expression("tier", "DoesNotExist")),
        make_selector(),
        None,
    )
)


namespace_selectors = st.sampled_from(
    (
        None,
        None,
        None,
        make_selector(),
        make_selector({"team": "a"}),
        make_selector({}, make_expression("team", "NotIn", "a")),
        make_selector({}, make_expression("team", "DoesNotExist")),
    )
)


terms = st.builds(
    lambda key, selector, listed, selected: make_pod_term(
        key, selector, namespaces=listed, namespace_selector=selected
    ),
    st.sampled_from((ZONE, HOST, "rack")),
    selectors,
    st.sampled_from(((), (), (), ("default",), ("other",))),
    namespace_selectors,
)
