"""How much one client, or all of them, may ask of a server."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

_SPARE_DESCRIPTORS: Final = 100
"""File descriptors that are left for everything but clients' connections."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server. A TLS connection takes about 0.4 MB, most of it asyncio's read buffer."""

    connections: int = 500
    """With one more, the connection that has been idle for longest is closed; where none is, the new one."""
    handshakes: int = 100
    """Connections that have not finished their TLS handshake; with one more, the oldest is closed."""
    handshake_seconds: float = 10.0
    """For the first byte, and then for the handshake."""
    idle_seconds: float = 90.0
    """For the next request and its headers, as in kube-apiserver."""
    body_seconds: float = 60.0
    """For a whole body."""
    stall_seconds: float = 30.0
    """A client that takes nothing of its answer for so long is disconnected."""
    write_buffer_bytes: int = 64 * 1024
    """What may wait for a client that reads slowly; whoever writes more waits."""

    @property
    def max_connections(self) -> int:
        """`connections`, or what the limit of open files leaves for them."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.connections
        return max(min(self.connections, files - _SPARE_DESCRIPTORS), files // 2 if files < 200 else 1)
