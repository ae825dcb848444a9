"""Cluster IPs of services: each gets the first free one. Nothing listens there."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import Document, DocumentStore
from bayplan.embedded.server.statuses import UnavailableError

_NETWORK: Final = IPv4Network("10.96.0.0/12")
_FIRST: Final = int(_NETWORK.network_address) + 1
_LAST: Final = int(_NETWORK.broadcast_address) - 1


class ServiceAddresses:
    """Watches the services of a store, so that the next free address is found without reading all of them."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._cursor = -1
        """Position in the history of services up to which it has been read."""
        self._of_service: dict[str, int] = {}
        self._taken: Counter[int] = Counter()
        self._lowest = _FIRST
        """All addresses below are taken."""

    def first_free(self) -> str:
        """The first free address. It stays free until a service with it is stored.

        Raises:
            UnavailableError: all are taken.
        """
        self._read_history()
        while self._taken[self._lowest]:
            self._lowest += 1
        if self._lowest > _LAST:
            message = "failed to allocate a serviceIP: range is full"
            raise UnavailableError(message, 500, reason="InternalError")
        return str(IPv4Address(self._lowest))

    def _read_history(self) -> None:
        table = self._store.table(kinds.SERVICES)
        entries = table.history.read(self._cursor) if self._cursor >= 0 else None
        if entries is None:
            self._of_service.clear()
            self._taken.clear()
            self._lowest = _FIRST
            for document in table:
                self._take(document)
            self._cursor = table.history.position_after(self._store.version)
            return
        for entry in entries:
            self._release(entry.document.key)
            if table.documents.get(entry.document.key) is not None:
                self._take(table.documents[entry.document.key])
        self._cursor += len(entries)

    def _take(self, document: Document) -> None:
        address = _number(document.parse().get("spec", {}).get("clusterIP"))
        if address is not None:
            self._of_service[document.key] = address
            self._taken[address] += 1

    def _release(self, key: str) -> None:
        address = self._of_service.pop(key, None)
        if address is not None:
            self._taken[address] -= 1
            if not self._taken[address]:
                del self._taken[address]
                self._lowest = min(self._lowest, address)


def _number(text: str | None) -> int | None:
    """An address of the network as a number; None for any other, and for none ("None")."""
    try:
        address = IPv4Address(text or "")
    except ValueError:
        return None
    return int(address) if address in _NETWORK else None
