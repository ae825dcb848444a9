"""Limits for one client, and for all clients together."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

_SPARE_DESCRIPTORS: Final = 100
"""File descriptors reserved for everything other than client connections."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server. A TLS connection takes about 0.4 MB, most of it asyncio's read buffer."""

    connections: int = 500
    """Above this, the connection that has been idle longest is closed; if none is idle, the new one."""
    handshakes: int = 100
    """Connections with an unfinished TLS handshake; above this, the oldest is closed."""
    handshake_seconds: float = 10.0
    """Timeout for the first byte, and then for the handshake."""
    idle_seconds: float = 90.0
    """Timeout for the next request and its headers, as in kube-apiserver."""
    body_seconds: float = 60.0
    """Timeout for a whole body."""
    stall_seconds: float = 30.0
    """A client that reads nothing of its response for this time is disconnected."""
    write_buffer_bytes: int = 64 * 1024
    """Bytes that may be buffered for a slow client; writers wait above this."""

    @property
    def max_connections(self) -> int:
        """`connections`, or fewer if the limit of open files requires it."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.connections
        return max(min(self.connections, files - _SPARE_DESCRIPTORS), files // 2 if files < 200 else 1)
