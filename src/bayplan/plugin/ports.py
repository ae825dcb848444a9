"""Host ports."""

from bayplan.api.host_ports import (
    HostPort,
    conflicts,
    host_ports,
)

__all__ = [
    "HostPort",
    "conflicts",
    "host_ports",
]
