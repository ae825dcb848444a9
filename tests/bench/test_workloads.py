"""The workloads make what upstream's benchmark makes, at any size."""

from __future__ import annotations

import pytest

from bayplan.api.pod import Affinity, Pod, PodAffinityTerm
from bayplan.api.workloads import POD_GROUP_LABEL
from bayplan.bench.runner import UnknownWorkloadError
from bayplan.bench.templates import HOSTNAME, ZONE
from bayplan.bench.workload import BACKGROUND_EVERY, Workload
from bayplan.bench.workloads import WORKLOADS, find_workload

every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def only_affinity(pod: Pod) -> Affinity:
    assert pod.spec.affinity is not None
    return pod.spec.affinity


def make_pods(name: str, count: int = 1) -> list[Pod]:
    return list(find_workload(name).make_pods(count))


def test_they_are_all_there() -> None:
    assert [workload.name for workload in WORKLOADS] == [
        "SchedulingBasic",
        "SchedulingPodAntiAffinity",
        "SchedulingPodAffinity",
        "SchedulingPreferredPodAffinity",
        "SchedulingPreferredPodAntiAffinity",
        "SchedulingNodeAffinity",
        "SchedulingRequiredPodAntiAffinityWithNSSelector",
        "SchedulingPreferredAntiAffinityWithNSSelector",
        "SchedulingRequiredPodAffinityWithNSSelector",
        "SchedulingPreferredAffinityWithNSSelector",
        "TopologySpreading",
        "PreferredTopologySpreading",
        "MixedSchedulingBasePod",
        "Unschedulable",
        "Preemption",
        "MixedShapes",
        "Gangs",
        "CapacityQueues",
        "VolcanoQueues",
        "WithoutQueues",
        "BasicScheduling",
        "GangScheduling",
        "GangScheduling_1000Pods",
        "TopologyAwareScheduling",
        "TopologyAwareScheduling_1000Pods",
        "GangPreemptionBasic",
        "GangPreemptionPodGroups",
        "SchedulingWithResourceClaimTemplate",
        "SteadyStateClusterResourceClaimTemplate",
        "SchedulingWithResourceClaim",
        "FirstAvailable",
        "ExtendedResource_25Classes",
    ]


@every_workload
def test_counts_follow_the_sizes(workload: Workload) -> None:
    background = 1 if workload.background else 0
    made = (
        len(list(workload.make_nodes(7))),
        len(list(workload.make_init_pods(13))),
        len(list(workload.make_pods(11))),
    )
    assert made == (7, 13, 11 + background)


@every_workload
def test_nothing_shares_a_name_or_a_uid(workload: Workload) -> None:
    objects = [
        *workload.make_namespaces(),
        *workload.make_nodes(20),
        *workload.make_init_pods(120),
        *workload.make_pods(120),
    ]
    keys = {(type(made), made.key) for made in objects}
    uids = {made.uid for made in objects}
    assert len(keys) == len(uids) == len(objects)


@every_workload
def test_pods_are_as_an_api_server_holds_them(workload: Workload) -> None:
    """Defaulted, with the tolerations that admission adds, waiting, in a namespace that exists."""
    namespaces = {namespace.name for namespace in workload.make_namespaces()}
    for pod in [*workload.make_init_pods(100), *workload.make_pods(100)]:
        spec = pod.spec
        added = {(each.key, each.effect, each.toleration_seconds) for each in spec.tolerations}
        assert added >= {
            ("node.kubernetes.io/not-ready", "NoExecute", 300),
            ("node.kubernetes.io/unreachable", "NoExecute", 300),
        }
        assert spec.priority is not None
        assert (spec.scheduler_name, spec.preemption_policy) == ("default-scheduler", "PreemptLowerPriority")
        assert (spec.node_name, pod.status.phase) == ("", "Pending")
        assert all(port.protocol == "TCP" for port in spec.containers[0].ports)
        assert pod.namespace in namespaces


@every_workload
def test_runs_repeat(workload: Workload) -> None:
    assert list(workload.make_pods(60)) == list(workload.make_pods(60))


def test_nodes_are_distributed_over_the_zones_in_turn() -> None:
    nodes = list(find_workload("TopologySpreading").make_nodes(4))
    assert [node.labels[ZONE] for node in nodes] == ["moon-1", "moon-2", "moon-3", "moon-1"]
    assert all(node.labels[HOSTNAME] == node.name for node in nodes)
    assert nodes[0].status.allocatable == {"cpu": "4", "memory": "32Gi", "pods": "110"}


def test_nodes_have_a_zone_only_where_upstream_gives_them_one() -> None:
    labels = next(find_workload("SchedulingBasic").make_nodes(1)).labels
    assert labels.keys() == {HOSTNAME}


@pytest.mark.parametrize(
    ("name", "term", "color", "topology_key"),
    [
        ("SchedulingPodAntiAffinity", "anti required", "green", HOSTNAME),
        ("SchedulingPodAffinity", "required", "blue", ZONE),
        ("SchedulingPreferredPodAffinity", "preferred", "red", HOSTNAME),
        ("SchedulingPreferredPodAntiAffinity", "anti preferred", "yellow", HOSTNAME),
        ("SchedulingRequiredPodAntiAffinityWithNSSelector", "anti required", "green", HOSTNAME),
        ("SchedulingPreferredAntiAffinityWithNSSelector", "anti preferred", "green", HOSTNAME),
        ("SchedulingRequiredPodAffinityWithNSSelector", "required", "blue", ZONE),
        ("SchedulingPreferredAffinityWithNSSelector", "preferred", "red", HOSTNAME),
    ],
)
def test_affinity_terms(name: str, term: str, color: str, topology_key: str) -> None:
    """Each pod has one term, over pods of its own colour, that selects its peers."""
    workload = find_workload(name)
    (pod,) = workload.make_pods(1)
    affinity = only_affinity(pod)
    rules = affinity.pod_anti_affinity if term.startswith("anti") else affinity.pod_affinity
    assert rules is not None
    assert (affinity.pod_affinity is None) != (affinity.pod_anti_affinity is None)
    terms: tuple[PodAffinityTerm, ...] = (
        rules.required
        if term.endswith("required")
        else tuple(weighted.pod_affinity_term for weighted in rules.preferred)
    )
    (only,) = terms
    assert only.label_selector is not None
    assert pod.labels == only.label_selector.match_labels == {"color": color}
    assert only.topology_key == topology_key
    namespaces = list(workload.make_namespaces())
    if only.namespace_selector is None:
        assert {namespace.name for namespace in namespaces} == set(only.namespaces) == {"sched-0", "sched-1"}
    else:
        assert len(namespaces) == 101
        assert all(
            namespace.labels.items() >= only.namespace_selector.match_labels.items()
            for namespace in namespaces
        )


def test_node_affinity() -> None:
    """Nodes are in one of the zones that the pods require."""
    (pod,) = make_pods("SchedulingNodeAffinity")
    node_affinity = only_affinity(pod).node_affinity
    assert node_affinity is not None
    assert node_affinity.required is not None
    (requirement,) = node_affinity.required.node_selector_terms[0].match_expressions
    (node,) = find_workload("SchedulingNodeAffinity").make_nodes(1)
    assert (requirement.key, requirement.operator, requirement.values) == (ZONE, "In", ("zone1", "zone2"))
    assert node.labels[ZONE] == "zone1"


@pytest.mark.parametrize(
    ("name", "when_unsatisfiable"),
    [("TopologySpreading", "DoNotSchedule"), ("PreferredTopologySpreading", "ScheduleAnyway")],
)
def test_spreading(name: str, when_unsatisfiable: str) -> None:
    (pod,) = make_pods(name)
    (constraint,) = pod.spec.topology_spread_constraints
    assert (constraint.max_skew, constraint.topology_key, constraint.when_unsatisfiable) == (
        5,
        ZONE,
        when_unsatisfiable,
    )


def test_first_pods_fill_the_namespaces_one_after_the_other() -> None:
    workload = find_workload("SchedulingPreferredAffinityWithNSSelector")
    namespaces = [pod.namespace for pod in workload.make_init_pods(200)]
    assert namespaces == [f"init-ns-{number}" for number in range(100) for _ in range(2)]


def test_mixed_base_pod_has_five_kinds_first() -> None:
    """Upstream counts 2,000 of each; here the five together are counted."""
    workload = find_workload("MixedSchedulingBasePod")
    prefixes = [pod.metadata.generate_name for pod in workload.make_init_pods(10)]
    assert workload.init_pods == 5 * 2000
    assert prefixes == [
        prefix
        for prefix in (
            "pod-",
            "affinity-pod-",
            "anti-affinity-pod-",
            "preferred-affinity-pod-",
            "preferred-anti-affinity-pod-",
        )
        for _ in range(2)
    ]


def test_unschedulable_pods_come_in_between() -> None:
    """Too large for any node, and of a priority that would let them evict any other pod."""
    pods = make_pods("Unschedulable", 2 * BACKGROUND_EVERY + 1)
    places = [index for index, pod in enumerate(pods) if pod.spec.priority == 10]
    assert places == [0, BACKGROUND_EVERY + 1, 2 * BACKGROUND_EVERY + 2]
    assert {pods[place].spec.containers[0].resources.requests["cpu"] for place in places} == {"9"}


def test_preemption_needs_three_victims() -> None:
    """Four pods of 900m leave 400m of 4 CPUs: 3 CPUs become free only when three of them are evicted."""
    (victim,) = find_workload("Preemption").make_init_pods(1)
    (preemptor,) = make_pods("Preemption")
    assert (victim.priority, victim.spec.containers[0].resources.requests["cpu"]) == (0, "900m")
    assert (preemptor.priority, preemptor.spec.containers[0].resources.requests["cpu"]) == (10, "3")
    assert victim.spec.termination_grace_period_seconds == 0


def test_shapes_take_turns() -> None:
    """Fifty kinds, each with a spec and labels of its own, then the first again."""
    pods = make_pods("MixedShapes", 100)
    kinds = {repr((pod.labels, pod.spec)) for pod in pods}
    assert len(kinds) == 50
    assert [pod.labels for pod in pods[:50]] == [pod.labels for pod in pods[50:]]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("SchedulingBasic", "SchedulingBasic"),
        ("schedulingbasic", "SchedulingBasic"),
        ("PreemptionBasic", "Preemption"),
    ],
)
def test_find(name: str, found: str) -> None:
    assert find_workload(name).name == found


def test_an_unknown_name_gets_suggestions() -> None:
    with pytest.raises(UnknownWorkloadError, match="did you mean TopologySpreading"):
        find_workload("TopologySpread")


def test_gangs_are_complete_groups() -> None:
    """Every measured pod names a group that exists, and a group requires as many pods as it has."""
    workload = find_workload("Gangs")
    members: dict[str, int] = {}
    for pod in workload.make_pods(120):
        group = pod.labels[POD_GROUP_LABEL]
        members[group] = members.get(group, 0) + 1
    assert members == {group.name: group.spec.min_member for group in workload.make_groups(120)}
    assert sorted(members.values()) == [20, 50, 50]
