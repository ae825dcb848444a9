"""Host ports: which ones a pod holds, and which collide."""

from __future__ import annotations

import pytest

from bayplan.api.pod import ContainerPort, HostPort, conflicts, host_ports
from bayplan.testing.builders import make_container, make_pod


def test_ports_of_sidecars_come_first_and_init_containers_have_none() -> None:
    pod = make_pod(
        init_containers=[
            make_container("setup", host_ports=[1]),
            make_container("proxy", host_ports=[2], sidecar=True),
        ],
        containers=[make_container("a", host_ports=[3]), make_container("b", host_ports=[4])],
    )
    assert [port.port for port in host_ports(pod)] == [2, 3, 4]


def test_a_port_inside_the_pod_is_no_host_port() -> None:
    pod = make_pod(host_ports=[ContainerPort(container_port=80)])
    assert host_ports(pod) == ()


def test_address_and_protocol_have_defaults() -> None:
    pod = make_pod(
        host_ports=[ContainerPort(host_port=80), ContainerPort(host_port=53, host_ip="::", protocol="UDP")]
    )
    assert host_ports(pod) == (HostPort("0.0.0.0", "TCP", 80), HostPort("::", "UDP", 53))


@pytest.mark.parametrize(
    ("wanted", "used", "collide"),
    [
        pytest.param(("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 80), True, id="the same"),
        pytest.param(
            ("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), True, id="all addresses conflict with one in use"
        ),
        pytest.param(("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), True, id="one address, all in use"),
        pytest.param(("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True, id="one address, in use"),
        pytest.param(
            ("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False, id="one address, another in use"
        ),
        pytest.param(("0.0.0.0", "TCP", 80), ("0.0.0.0", "UDP", 80), False, id="another protocol"),
        pytest.param(("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 81), False, id="another port"),
        pytest.param(("::", "TCP", 80), ("10.0.0.1", "TCP", 80), False, id="the IPv6 wildcard is none here"),
        pytest.param(("::", "TCP", 80), ("0.0.0.0", "TCP", 80), True, id="but the IPv4 one covers it"),
    ],
)
def test_conflicts(wanted: tuple[str, str, int], used: tuple[str, str, int], collide: bool) -> None:
    other = HostPort("0.0.0.0", "TCP", 9)
    assert conflicts([other, HostPort(*wanted)], {HostPort(*used)}) is collide


def test_nothing_wanted_or_nothing_used_never_collides() -> None:
    port = HostPort("0.0.0.0", "TCP", 80)
    assert not conflicts([], [port])
    assert not conflicts([port], [])
