"""Whatever happened to a cluster, its columns are those of one that was loaded as it is now.

And a hypothesis ("these pods gone, those there") is evaluated as a cluster where that is really so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.api.pod import Pod
from bayplan.framework.status import Status
from bayplan.plugin import PodQuery, PodSelector, compile_selector
from bayplan.plugin.preemption import Hypothesis
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_expression, make_selector
from tests.effort import examples

from .generated import FLAVORS, lives
from .life import Life
from .pools import APPS, GPU, KEYS, NAMESPACES, PLAIN, SHAPES, Shape

RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU)
QUERIES = tuple(
    PodQuery((PodSelector(namespaces, compile_selector(selector)),), alive=alive)
    for namespaces in (None, frozenset({"default"}), frozenset(NAMESPACES))
    for selector in (
        *(make_selector({"app": app}) for app in APPS),
        make_selector({}, make_expression("tier", "Exists")),
        make_selector({}, make_expression("app", "NotIn", "web")),
        make_selector(),
        None,
    )
    for alive in (False, True)
)


def described(cluster: Cluster) -> dict[str, Any]:
    """All that is kept in step, by node name instead of by row."""
    nodes = cluster.nodes
    names = {row: nodes.name[row] for row in range(nodes.high) if nodes.name[row]}
    rows = {name: row for row, name in names.items()}

    def column(values: Any) -> dict[str, Any]:
        return {name: values[row] for name, row in rows.items()}

    def only(values: Any) -> dict[str, Any]:
        """Only rows with something there; a dropped term leaves no column at all."""
        return {names[row]: int(value) for row, value in enumerate(values) if value}

    result: dict[str, Any] = {
        "pods": {name: sorted(pod.key for pod in cluster.pods_on(row)) for name, row in rows.items()},
        "pod_count": column(nodes.pod_count.read.tolist()),
        "nonzero_cpu_milli": column(nodes.nonzero_cpu_milli.read.tolist()),
        "nonzero_memory_bytes": column(nodes.nonzero_memory_bytes.read.tolist()),
        "exists": column(nodes.exists.read.tolist()),
        "unschedulable": column(nodes.unschedulable.read.tolist()),
        "allowed_pods": column(nodes.allowed_pods.read.tolist()),
        "node_count": cluster.node_count,
        "order": sorted(names[row] for row in cluster.order.tolist()),
        "images": {image: sorted(names[row] for row in state.rows) for image, state in nodes.images.items()},
        "ports": {names[row]: ports for row, ports in cluster.ports.on_row.items() if ports},
        "port rows": {
            port: {names[row] for row in users} for port, users in cluster.ports.rows.items() if users
        },
        "claims": cluster.claim_uses,
        "nominated": {
            names[row]: sorted(pod.key for slot in slots if (pod := cluster.pods.pod[slot]))
            for row, slots in cluster.nominated.items()
        },
    }
    for resource in RESOURCES:
        columns = nodes.resource(resource)
        result[f"allocatable {resource}"] = column(columns.allocatable.read.tolist())
        result[f"requested {resource}"] = column(columns.requested.read.tolist())
    for key in (*KEYS, "disk"):
        label = nodes.label(key)
        values = [*label.values.values, None]
        result[f"label {key}"] = column([values[value] for value in label.column.read.tolist()])
    taints = [*nodes.taint_lists.values, None]
    result["taints"] = column([taints[index] for index in nodes.taint_set.read.tolist()])
    for number, query in enumerate(QUERIES):
        result[f"count {number}"] = only(cluster.count(query).column.read)
    result["terms"] = {
        carried: only(carriers.column.read) for carried, carriers in cluster.terms._carriers.items()
    }
    result["carriers"] = {carried: carriers.total for carried, carriers in cluster.terms._carriers.items()}
    return result


def loaded(life: Life) -> Cluster:
    """A cluster in the same state, without the history."""
    fresh = SchedulingCore().cluster
    for node in life.nodes.values():
        fresh.set_node(node)
    for pod, node_name in life.running.values():
        fresh.add_pod(pod, node_name)
    for pod in life.waiting.values():
        node_name = life.cores[0].cluster.nominated_node(pod.uid) or ""
        fresh.nominate(pod, node_name)
    return fresh


@pytest.mark.parametrize("flavor", ["everything", "crowded"])
@settings(max_examples=examples(40), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_columns_are_those_of_a_cluster_just_loaded(flavor: str, data: st.DataObject) -> None:
    life = Life(SchedulingCore())
    cluster = life.cores[0].cluster
    events = data.draw(lives(FLAVORS[flavor]))
    compared_from = data.draw(st.integers(0, len(events) - 1))
    for number, event in enumerate(events):
        life.play(event)
        if number == compared_from:
            # From here on counts and labels are kept; before, they did not exist.
            described(cluster)
    after, fresh = described(cluster), described(loaded(life))
    assert after == fresh


# Hypotheses


def has_quirks(shape: Shape) -> bool:
    """Whether upstream adds and removes other pods for this one than it counts.

    Spreading by the empty selector counts no pod, but every pod that is added or deleted; volumes that only
    one pod may use are counted by claim at first and then by pod.
    """
    constraints = shape.fields.get("spread", ())
    return (
        any(constraint.label_selector == make_selector() for constraint in constraints)
        or "claims" in shape.fields
        or "volumes" in shape.fields
    )


def repels(shape: Shape) -> bool:
    affinity = shape.fields.get("affinity")
    return affinity is not None and affinity.pod_anti_affinity is not None


INCOMING = [shape for shape in (*PLAIN, *SHAPES) if not has_quirks(shape)]
COMING = [shape for shape in (*PLAIN, *SHAPES) if not {"claims", "volumes"} & shape.fields.keys()]


def suppose(
    cluster: Cluster, gone: dict[str, list[str]], added: dict[str, list[str]], names: Iterable[str]
) -> Hypothesis:
    """Pods (by uid) gone from each of these nodes, and others, that are nominated there, added."""
    slot_of = {pod.uid: slot for slot, pod in enumerate(cluster.pods.pod) if pod is not None}
    names = list(names)
    return Hypothesis.on_few_rows(
        cluster,
        [cluster.nodes.row_of[name] for name in names],
        [
            [*((slot_of[uid], -1) for uid in gone[name]), *((slot_of[uid], 1) for uid in added[name])]
            for name in names
        ],
    )


def real(
    life: Life, pod: Pod, name: str, gone: set[str], added: Iterable[Pod]
) -> tuple[Status | None, Cluster]:
    """The status of a node in a cluster where these pods are really deleted and those are there."""
    core, before = SchedulingCore(cache=False), life.cores[0].cluster
    for lister in before.objects._listers.values():
        for item in lister:
            core.cluster.objects.put(item)
    for node in life.nodes.values():
        core.cluster.set_node(node)
    for running, node_name in life.running.values():
        if running.uid not in gone:
            core.cluster.add_pod(running, node_name)
    for more in added:
        core.cluster.add_pod(more, name)
    framework = core.frameworks[pod.spec.scheduler_name]
    search = framework.begin(pod)
    assert framework.pre_filter(search) is None
    search.results.update()
    return framework.filtering.node_statuses(search).status(core.cluster.nodes.row_of[name]), core.cluster


@settings(max_examples=examples(60), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_hypothesis_is_evaluated_as_if_it_were_so(data: st.DataObject) -> None:
    life = Life(SchedulingCore())
    core = life.cores[0]
    for event in data.draw(lives(FLAVORS["supposed"], most=25)):
        life.play(event)
    life.clear_nominations()
    if not life.nodes:
        return
    framework = core.frameworks["default-scheduler"]
    pod = data.draw(st.sampled_from(range(len(INCOMING))).map(lambda index: INCOMING[index])).pod(
        "incoming", priority=5
    )
    search = framework.begin(pod)
    if framework.pre_filter(search) is not None:
        return
    coming = COMING
    if "InterPodAffinity" in search.skipped_filters:
        # What PreFilter left out stays out, even where a pod comes that would have kept this one away.
        coming = [shape for shape in COMING if not repels(shape)]
    gone, added, newcomers = {}, {}, {}
    for name in life.nodes:
        here = [uid for uid, (_, node_name) in life.running.items() if node_name == name]
        gone[name] = data.draw(st.lists(st.sampled_from(here), unique=True) if here else st.just([]))
        indexes = data.draw(st.lists(st.integers(0, len(coming) - 1), max_size=2))
        newcomers[name] = [
            coming[index].pod(f"new-{name}-{number}", priority=-1) for number, index in enumerate(indexes)
        ]
        added[name] = [new.uid for new in newcomers[name]]
        for new in newcomers[name]:
            core.cluster.nominate(new, name)
    search = framework.begin(pod)
    assert framework.pre_filter(search) is None
    search.results.update()
    view = suppose(core.cluster, gone, added, life.nodes)
    node_statuses = framework.filtering.filter_hypothesis(search, view)
    for position, name in enumerate(life.nodes):
        expected, cluster = real(life, pod, name, set(gone[name]), newcomers[name])
        assert node_statuses.status(position) == expected, name
        row, one = cluster.nodes.row_of[name], view.one(position)
        for resource in RESOURCES:
            requested = cluster.nodes.resource(resource).requested.cell[row]
            assert view.requested(resource)[position] == one.requested(resource) == requested
        assert view.pod_count[position] == one.pod_count == cluster.nodes.pod_count.cell[row]
        cpu, memory = cluster.nodes.nonzero_cpu_milli.cell[row], cluster.nodes.nonzero_memory_bytes.cell[row]
        assert view.nonzero_cpu_milli[position] == one.nonzero_cpu_milli == cpu
        assert view.nonzero_memory_bytes[position] == one.nonzero_memory_bytes == memory
        assert view.used_ports(position) == cluster.ports.on_row.get(row, set())
        assert sorted(other.key for other in view.pods_on(position)) == sorted(
            other.key for other in cluster.pods_on(row)
        )
        assert view.node_info(position).free("cpu") == cluster.free(row)[0]
