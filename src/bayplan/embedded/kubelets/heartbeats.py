"""Heartbeats without traffic: the renew time of a node's Lease is computed when it is read.

A real kubelet renews its Lease every ten seconds, which for ten thousand nodes is a thousand writes a second
that say nothing new. Here a Lease is written once. Whoever reads it sees the last multiple of ten seconds
since it was made; of a node that is down, the time at which it went down. Watches show only what is written.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from bayplan.api.times import seconds_or_1970
from bayplan.embedded.kubelets.failures import is_down
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import LEASES, NODES
from bayplan.embedded.server.objects import ObjectAPI

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEWED_EVERY: Final = 10

_encode = msgspec.json.Encoder().encode


class Heartbeats:
    """Works out the renewals of node leases, and notes when a node stopped renewing."""

    def __init__(self, api: ObjectAPI) -> None:
        self._api = api
        self._stopped: dict[str, float] = {}
        api.computed[LEASES] = self.renewed

    def see(self, name: str) -> None:
        """A node has changed: is it down since now, or is it back?"""
        node = self._api.store.find(NODES, name)
        if node is not None and is_down(node):
            self._stopped.setdefault(name, self._api.time())
        else:
            self._stopped.pop(name, None)

    def renewed(self, lease: Document) -> Document:
        """A Lease with its last renewal. Leases of others are as they are."""
        namespace, _, name = lease.key.partition("/")
        if namespace != LEASE_NAMESPACE or self._api.store.find(NODES, name) is None:
            return lease
        content = lease.parse()
        spec = content.get("spec") or {}
        if spec.get("holderIdentity") != name or "renewTime" not in spec:
            return lease
        written = seconds_or_1970(spec["renewTime"])
        until = self._stopped.get(name, self._api.time())
        renewals = max(until - written, 0) // RENEWED_EVERY
        spec["renewTime"] = micro_time(written + renewals * RENEWED_EVERY)
        return Document(lease.key, lease.version, _encode(content))


def micro_time(seconds: float) -> str:
    """A time as leases have it: `2026-01-01T00:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
