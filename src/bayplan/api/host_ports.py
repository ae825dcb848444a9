"""Host ports of pods, and their conflicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from bayplan.api.pod import Pod

ANY_IP: Final = "0.0.0.0"
"""All IPv4 addresses of the node. `::` has no such meaning here: it is an address like any other."""
TCP: Final = "TCP"


class HostPort(NamedTuple):
    ip: str
    protocol: str
    port: int


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of a running pod: of its sidecars, then of its containers.

    Init containers end before the containers start, and Kubernetes does not count their ports.
    """
    spec = pod.spec
    sidecars = (
        [c for c in spec.init_containers if c.restart_policy == "Always"] if spec.init_containers else []
    )
    return tuple(
        HostPort(port.host_ip or ANY_IP, port.protocol or TCP, port.host_port)
        for container in (*sidecars, *spec.containers)
        for port in container.ports
        if port.host_port > 0
    )


def conflicts(wanted: Iterable[HostPort], used: Collection[HostPort]) -> bool:
    """Whether one of the wanted ports is in use: same protocol and port, and the addresses overlap."""
    if not used:
        return False
    for want in wanted:
        if want.ip == ANY_IP:
            if any(use.port == want.port and use.protocol == want.protocol for use in used):
                return True
        elif want in used or HostPort(ANY_IP, want.protocol, want.port) in used:
            return True
    return False
