"""Objects from files are checked before anything computes with them."""

from __future__ import annotations

import pytest

from bayplan.api.check import check_decoded, check_object, quantity_problems
from bayplan.api.meta import NodeSelectorTerm, Object, ObjectMeta
from bayplan.api.node import Node, NodeStatus
from bayplan.api.pod import ContainerPort, Pod, PodSpec, ResourceRequirements
from bayplan.errors import DecodeError, InputError, QuantityError, SelectorError
from bayplan.testing.builders import (
    make_container,
    make_csi_capacity,
    make_expression,
    make_namespace,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_priority_class,
    make_pv,
    make_pvc,
    make_replica_set,
    make_selector,
    make_service,
    make_spread,
    make_storage_class,
)

BAD_SELECTOR = make_selector(None, make_expression("a", "Like", "x"))
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    "obj",
    [
        make_pod("full", cpu="1", memory="1Gi", claims=["c"], host_ports=[80], labels={"a": "b"}),
        make_node("n", taints=["a=b:NoSchedule"], resources={"example.com/gpu": 2}),
        make_namespace("ns"),
        make_pvc("c"),
        make_pv("v", on_nodes_with={"zone": ["a"]}),
        make_storage_class("s", allowed=[{"zone": ["a"]}]),
        make_csi_capacity("cap", "s", capacity="1Gi", on_nodes_with={"zone": "a"}),
        make_pdb("b", {"a": "b"}),
        make_priority_class("p", 2_000_000_000),
        make_service("svc", {"a": "b"}),
        make_replica_set("rs", {"a": "b"}),
        Pod(metadata=ObjectMeta(generate_name="web-")),
        make_pod("unnumbered", affinity=make_node_affinity(make_node_term(make_expression("a", "Gt", "x")))),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_good_objects_pass(obj: Object) -> None:
    check_object(obj)


@pytest.mark.parametrize(
    ("obj", "kind", "message"),
    [
        pytest.param(
            make_pod("web", containers=[make_container(), make_container(cpu="1x")]),
            QuantityError,
            'Pod default/web: spec.containers[1].resources.requests[cpu]: "1x" is not a quantity',
            id="a container's request",
        ),
        pytest.param(
            make_pod("web", init_containers=[make_container(limits={"memory": "1KB"})]),
            QuantityError,
            'Pod default/web: spec.initContainers[0].resources.limits[memory]: "1KB" is not a quantity',
            id="an init container's limit",
        ),
        pytest.param(
            make_pod("web", overhead={"cpu": "?"}),
            QuantityError,
            'Pod default/web: spec.overhead[cpu]: "?" is not a quantity',
            id="overhead",
        ),
        pytest.param(
            make_pod("web", resources=ResourceRequirements(requests={"cpu": ""})),
            QuantityError,
            'Pod default/web: spec.resources.requests[cpu]: "" is not a quantity: it is empty',
            id="a request for the pod as a whole",
        ),
        pytest.param(
            make_pod("web", memory="-1Gi"),
            QuantityError,
            'Pod default/web: spec.containers[0].resources.requests[memory]: "-1Gi" is negative',
            id="a negative request",
        ),
        pytest.param(
            make_node("n", cpu="four"),
            QuantityError,
            'Node n: status.allocatable[cpu]: "four" is not a quantity',
            id="a node's room",
        ),
        pytest.param(
            make_pvc("c", storage="10 Gi"),
            QuantityError,
            'PersistentVolumeClaim default/c: spec.resources.requests[storage]: "10 Gi" is not a quantity',
            id="a claim's size",
        ),
        pytest.param(
            make_csi_capacity("cap", "s", maximum_volume_size="big"),
            QuantityError,
            'CSIStorageCapacity default/cap: maximumVolumeSize: "big" is not a quantity',
            id="a quantity by itself",
        ),
        pytest.param(
            make_pod("web", spread=[make_spread("zone", BAD_SELECTOR)]),
            SelectorError,
            "Pod default/web: spec.topologySpreadConstraints[0].labelSelector: "
            '"Like" is not a valid label selector operator',
            id="the selector of a spread constraint",
        ),
        pytest.param(
            make_pod(
                "web", affinity=make_pod_affinity(anti_preferred=[(1, make_pod_term("z", BAD_SELECTOR))])
            ),
            SelectorError,
            f"Pod default/web: spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector: ",
            id="the selector of an affinity term",
        ),
        pytest.param(
            make_pod(
                "web",
                affinity=make_pod_affinity(
                    required=[make_pod_term("z", {}, namespace_selector=BAD_SELECTOR)]
                ),
            ),
            SelectorError,
            f"Pod default/web: spec.affinity.podAffinity.{REQUIRED}[0].namespaceSelector: ",
            id="a selector of namespaces",
        ),
        pytest.param(
            make_pdb("b", BAD_SELECTOR),
            SelectorError,
            "PodDisruptionBudget default/b: spec.selector: ",
            id="a budget",
        ),
        pytest.param(
            make_replica_set("r", {"a": "x y"}),
            SelectorError,
            'ReplicaSet default/r: spec.selector: values[0][a]: Invalid value: "x y"',
            id="an invalid label",
        ),
        pytest.param(
            make_pod("web", priority=2**31),
            DecodeError,
            "Pod default/web: spec.priority: 2147483648 does not fit into 32 bits",
            id="a number of more than 32 bits",
        ),
        pytest.param(
            make_pod("web", termination_grace_period_seconds=2**63),
            DecodeError,
            "Pod default/web: spec.terminationGracePeriodSeconds: 9223372036854775808 does not fit into 64",
            id="a number of more than 64 bits",
        ),
        pytest.param(
            make_pod("web", host_ports=[ContainerPort(host_port=-(2**31) - 1)]),
            DecodeError,
            "Pod default/web: spec.containers[0].ports[0].hostPort: -2147483649 does not fit into 32 bits",
            id="a number that is too small",
        ),
        pytest.param(
            Node(status=NodeStatus()),
            DecodeError,
            "Node: metadata.name: the object has no name",
            id="no name",
        ),
        pytest.param(
            Pod(metadata=ObjectMeta(namespace="a"), spec=PodSpec()),
            DecodeError,
            "Pod a/: metadata.name: the object has no name",
            id="a namespace and no name",
        ),
    ],
)
def test_bad_objects(obj: Object, kind: type[InputError], message: str) -> None:
    """A mistake is reported with its object and field."""
    with pytest.raises(kind) as caught:
        check_object(obj)
    assert str(caught.value).startswith(message)
    if "does not fit" in message:
        return  # decoding finds it
    with pytest.raises(kind) as caught:
        check_decoded(obj)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        pytest.param(
            make_node_term(make_expression("a", "Like", "x")),
            'matchExpressions[0].operator: "Like" is not a valid node selector operator',
            id="an operator that does not exist",
        ),
        pytest.param(
            make_node_term(make_expression("a", "In")),
            "matchExpressions[0].values: In needs at least one value",
            id="In without values",
        ),
        pytest.param(
            make_node_term(make_expression("a", "Exists", "x")),
            "matchExpressions[0].values: Exists takes no values",
            id="Exists with values",
        ),
        pytest.param(
            make_node_term(make_expression("a", "Lt", "1", "2")),
            "matchExpressions[0].values: Lt needs exactly one value",
            id="a comparison with two values",
        ),
        pytest.param(
            make_node_term(make_expression("-", "Exists")),
            "matchExpressions[0].key: name part must consist of",
            id="an invalid key",
        ),
        pytest.param(
            make_node_term(fields=[make_expression("metadata.name", "Exists")]),
            'matchFields[0].operator: "Exists" is not a valid node selector operator',
            id="fields have two operators",
        ),
        pytest.param(
            make_node_term(fields=[make_expression("metadata.name", "In", "a", "b")]),
            "matchFields[0].values: In needs exactly one value",
            id="fields take one value",
        ),
    ],
)
def test_node_selectors_that_a_server_would_reject(term: NodeSelectorTerm, message: str) -> None:
    good = make_node_term(make_expression("os", "In", "linux"))
    pod = make_pod("web", affinity=make_node_affinity(good, term))
    with pytest.raises(SelectorError) as caught:
        check_object(pod)
    place = f"Pod default/web: spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[1]."
    assert str(caught.value).startswith(place + message)


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        pytest.param(make_pod("a", cpu="1"), [], id="readable"),
        pytest.param(make_pod("a", cpu="one"), ["spec.containers[0].resources.requests[cpu]"], id="in a pod"),
        pytest.param(
            make_node("a", cpu="two"),
            ["status.allocatable[cpu]", "status.capacity[cpu]"],
            id="every one of them",
        ),
        pytest.param(make_pod("a", cpu="-1"), [], id="negative ones can be read"),
    ],
)
def test_unreadable_quantities_are_found_each_time(item: Object, fields: list[str]) -> None:
    for _ in range(2):
        assert sorted(problem.field for problem in quantity_problems(item)) == fields
