"""NodePorts: a port of a node belongs to one pod."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.pod import ContainerPort
from bayplan.plugin import SKIP, Action, NodeColumns, Pod, Resource
from bayplan.plugin.objects import HostPort, host_ports
from bayplan.plugins.node_ports import REASON, NodePorts
from bayplan.testing.builders import make_container, make_node, make_pod
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from .evaluating import (
    UNSCHEDULABLE,
    Evaluation,
    few_rows,
    make_cluster,
    points,
    registrations,
    requeues,
    without,
)

REJECTED = (UNSCHEDULABLE, (REASON,))
POD_DELETED = (Resource.POD, Action.DELETE)


def port(number: int, ip: str = "", protocol: str = "") -> ContainerPort:
    return ContainerPort(host_port=number, host_ip=ip, protocol=protocol)


def test_its_points_are_upstreams() -> None:
    assert points(NodePorts) == {"PreFilter", "Filter"}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod(), id="no ports"),
        pytest.param(make_pod(host_ports=[ContainerPort(container_port=80)]), id="no port of the host"),
        pytest.param(
            make_pod(init_containers=[make_container("init", host_ports=[80])]),
            id="only a plain init container has one",
        ),
    ],
)
def test_pods_without_host_ports_are_skipped(pod: Pod) -> None:
    assert Evaluation(make_plugin(NodePorts), pod, make_cluster([make_node("n")])).pre_filter is SKIP


@pytest.mark.parametrize(
    ("wanted", "used", "fits"),
    [
        pytest.param(port(80), port(81), True, id="another port"),
        pytest.param(port(80), port(80), False, id="the same port"),
        pytest.param(port(80, protocol="UDP"), port(80), True, id="another protocol"),
        pytest.param(port(80, protocol="TCP"), port(80), False, id="TCP is the default"),
        pytest.param(port(80, "10.0.0.1"), port(80, "10.0.0.2"), True, id="another address"),
        pytest.param(port(80, "10.0.0.1"), port(80, "10.0.0.1"), False, id="the same address"),
        pytest.param(port(80), port(80, "10.0.0.1"), False, id="all addresses, one is taken"),
        pytest.param(port(80, "10.0.0.1"), port(80), False, id="one address, all are taken"),
        pytest.param(port(80, "::"), port(80, "10.0.0.1"), True, id=":: is an address like any other"),
        pytest.param(port(80, "::"), port(80), False, id=":: is taken with all"),
    ],
)
def test_filter(wanted: ContainerPort, used: ContainerPort, fits: bool) -> None:
    nodes = [make_node("free"), make_node("used")]
    cluster = make_cluster(nodes, {"used": [make_pod("there", host_ports=[used])]})
    evaluation = Evaluation(make_plugin(NodePorts), make_pod(host_ports=[wanted]), cluster)
    assert evaluation.rejected() == ({} if fits else {"used": REJECTED})


def test_the_port_of_a_sidecar_counts() -> None:
    sidecar = make_container("sidecar", host_ports=[80], sidecar=True)
    cluster = make_cluster([make_node("n")], {"n": [make_pod("there", init_containers=[sidecar])]})
    evaluation = Evaluation(make_plugin(NodePorts), make_pod(init_containers=[sidecar]), cluster)
    assert evaluation.rejected() == {"n": REJECTED}


def test_a_node_fits_if_the_pod_with_the_port_were_gone() -> None:
    there = make_pod("there", host_ports=[80])
    cluster = make_cluster([make_node("n")], {"n": [there, make_pod("other", host_ports=[81])]})
    evaluation = Evaluation(make_plugin(NodePorts), make_pod(host_ports=[80]), cluster)
    other = make_pod("other").uid
    rejections = [evaluation.statuses(without(cluster, uid)) for uid in (there.uid, other)]
    assert [[status is None for status in row] for row in rejections] == [[True], [False]]


ports = st.builds(
    port,
    st.integers(0, 2),
    st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"]),
    st.sampled_from(["", "TCP", "UDP"]),
)
port_lists = st.lists(ports, max_size=2)


def clash(one: HostPort, other: HostPort) -> bool:
    same = (one.protocol, one.port) == (other.protocol, other.port)
    return same and (one.ip == other.ip or "0.0.0.0" in (one.ip, other.ip))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(port_lists, max_size=2), min_size=1, max_size=4), port_lists, st.data())
def test_columns_agree_with_a_plain_rule(
    on_nodes: list[list[list[ContainerPort]]], wanted: list[ContainerPort], data: st.DataObject
) -> None:
    assigned = {
        f"n{i}": [make_pod(f"p{i}-{j}", host_ports=used) for j, used in enumerate(pods)]
        for i, pods in enumerate(on_nodes)
    }
    cluster = make_cluster([make_node(name) for name in assigned], assigned)
    pod = make_pod(host_ports=wanted)
    evaluation = Evaluation(make_plugin(NodePorts), pod, cluster)
    expected = [
        not any(clash(want, use) for want in host_ports(pod) for other in pods for use in host_ports(other))
        for pods in assigned.values()
    ]
    assert [status is None for status in evaluation.statuses()] == expected

    rows = data.draw(few_rows(len(on_nodes)))
    few = evaluation.statuses(NodeColumns(cluster, np.array(rows)))
    assert [status is None for status in few] == [expected[row] for row in rows]


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(make_pod("d", node="n", host_ports=[80]), True, id="it had the port"),
        pytest.param(
            make_pod("d", nominated_node="n", host_ports=[80]), True, id="it would have had the port"
        ),
        pytest.param(make_pod("d", host_ports=[80]), False, id="it was on no node"),
        pytest.param(make_pod("d", node="n", host_ports=[81]), False, id="it had another port"),
        pytest.param(make_pod("d", node="n"), False, id="it had no port"),
    ],
)
def test_hint(deleted: Pod, expected: bool) -> None:
    assert requeues(make_plugin(NodePorts), POD_DELETED, make_pod(host_ports=[80]), deleted, None) is expected


def test_any_new_node_requeues() -> None:
    pod = make_pod(host_ports=[80])
    assert requeues(make_plugin(NodePorts), (Resource.NODE, Action.ADD), pod, None, make_node("n"))


def test_registrations() -> None:
    assert registrations(make_plugin(NodePorts)) == [POD_DELETED, (Resource.NODE, Action.ADD)]


def test_ports_of_a_node_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ports the pod needs."""
    there = [ContainerPort(host_port=port, host_ip="10.0.0.1") for port in range(1, 21)]
    cluster = make_cluster([make_node("n")], {"n": [make_pod("other", host_ports=there)]})
    reads, used_ports = [], NodeColumns.used_ports

    def counting(nodes: NodeColumns, position: int) -> set[HostPort]:
        reads.append(position)
        return used_ports(nodes, position)

    monkeypatch.setattr(NodeColumns, "used_ports", counting)
    elsewhere = [ContainerPort(host_port=port, host_ip="10.0.0.2") for port in range(1, 20)]
    pod = make_pod(host_ports=[*elsewhere, 20])
    assert Evaluation(make_plugin(NodePorts), pod, cluster).rejected() == {"n": REJECTED}
    assert len(reads) == 1
