"""Heartbeats without traffic: the renew time of a node's Lease is computed when it is read.

A real kubelet renews its Lease every ten seconds, which for ten thousand nodes is 1,000 writes a second
without information. Here a Lease is written once. Reading it returns a renewTime that is computed: the last
multiple of ten seconds since it was created; for a node that is down, the time at which it went down. Watches
send only what is written.
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
RENEW_SECONDS: Final = 10

_encode = msgspec.json.Encoder().encode


class Heartbeats:
    """Computes the renew times of node leases, and records when a node went down."""

    def __init__(self, api: ObjectAPI) -> None:
        self._api = api
        self._stopped: dict[str, float] = {}
        api.computed[LEASES] = self.renewed

    def update(self, name: str) -> None:
        """Records whether a changed node went down or recovered."""
        node = self._api.store.find(NODES, name)
        if node is not None and is_down(node):
            self._stopped.setdefault(name, self._api.time())
        else:
            self._stopped.pop(name, None)

    def renewed(self, lease: Document) -> Document:
        """A Lease with its last renewal. Leases that are not those of nodes are returned unchanged."""
        namespace, _, name = lease.key.partition("/")
        if namespace != LEASE_NAMESPACE or self._api.store.find(NODES, name) is None:
            return lease
        content = lease.parse()
        spec = content.get("spec") or {}
        if spec.get("holderIdentity") != name or "renewTime" not in spec:
            return lease
        written = seconds_or_1970(spec["renewTime"])
        until = self._stopped.get(name, self._api.time())
        renewals = max(until - written, 0) // RENEW_SECONDS
        spec["renewTime"] = micro_time(written + renewals * RENEW_SECONDS)
        return Document(lease.key, lease.version, _encode(content))


def micro_time(seconds: float) -> str:
    """A time as in leases: `2026-01-01T00:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
