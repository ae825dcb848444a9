"""The addresses and node ports of services: a service gets the first ones that are free.

The services of a store are watched, so that the next free number is found without reading all of them. What
is allocated is taken only once the service is stored; `admission.py` therefore calls this last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.documents import Document, DocumentStore
from bayplan.embedded.server.statuses import UnavailableError

_NETWORK: Final = IPv4Network("10.96.0.0/12")
_ADDRESSES: Final = range(int(_NETWORK.network_address) + 1, int(_NETWORK.broadcast_address))
_PORTS: Final = range(30000, 32768)
_OPEN_ON_NODES: Final = ("NodePort", "LoadBalancer")


class _Pool:
    """Numbers of a range, and how many services have each."""

    def __init__(self, numbers: range, what: str) -> None:
        self._numbers = numbers
        self._what = what
        self._lowest = numbers.start
        """All numbers below are taken."""
        self.taken: Counter[int] = Counter()

    def first_free(self, besides: Iterable[int] = ()) -> int:
        """Raises UnavailableError if all are taken."""
        while self.taken[self._lowest]:
            self._lowest += 1
        number = self._lowest
        while self.taken[number] or number in besides:
            number += 1
        if number not in self._numbers:
            message = f"failed to allocate a {self._what}: range is full"
            raise UnavailableError(message, 500, reason="InternalError")
        return number

    def take(self, number: int) -> None:
        self.taken[number] += 1

    def release(self, number: int) -> None:
        self.taken[number] -= 1
        if not self.taken[number]:
            del self.taken[number]
            if number in self._numbers:
                self._lowest = min(self._lowest, number)


class ServiceNumbers:
    """Allocates addresses and node ports among the services of a store."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._forget()

    def _forget(self) -> None:
        self._cursor = -1
        """Position in the history of services up to which it has been read."""
        self._of_service: dict[str, tuple[int | None, list[int]]] = {}
        self._addresses = _Pool(_ADDRESSES, "serviceIP")
        self._ports = _Pool(_PORTS, "nodePort")

    def allocate(self, content: Content, old: Content | None = None) -> None:
        """Sets what is missing in a new service, or in a new version of one.

        Raises:
            StatusError: a port that it requests is taken, or no number is left.
        """
        spec, known = content["spec"], (old or {}).get("spec") or {}
        self._read_history()
        if spec.get("type") != "ExternalName":
            if not spec.get("clusterIP"):
                spec["clusterIP"] = known.get("clusterIP") or str(IPv4Address(self._addresses.first_free()))
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
        self._allocate_ports(content, known)

    def _allocate_ports(self, content: Content, known: Content) -> None:
        spec = content["spec"]
        ports: list[dict[str, Any]] = spec.get("ports") or []
        before = {
            (each.get("protocol"), each["port"]): each.get("nodePort", 0) for each in known.get("ports") or ()
        }
        own = {number for number in before.values() if number}
        if spec.get("type") not in _OPEN_ON_NODES:
            for port in ports:  # those of its former type go
                if port.get("nodePort") in own:
                    del port["nodePort"]
            return
        if spec.get("allocateLoadBalancerNodePorts") is False and spec["type"] == "LoadBalancer":
            return
        for i, port in enumerate(ports):
            number = port.get("nodePort", 0)
            if number and number not in own:
                self._check_port(content, i, number)
        mine = {port["nodePort"] for port in ports if port.get("nodePort")}
        for port in ports:
            if not port.get("nodePort"):
                kept = before.get((port.get("protocol"), port["port"]), 0)
                port["nodePort"] = kept if kept and kept not in mine else self._ports.first_free(mine)
                mine.add(port["nodePort"])

    def _check_port(self, content: Content, index: int, number: int) -> None:
        if number not in _PORTS:
            why = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        elif self._ports.taken[number]:
            why = "provided port is already allocated"
        else:
            return
        problem = statuses.invalid_field(f"spec.ports[{index}].nodePort", number, why)
        raise statuses.invalid(kinds.SERVICES, content["metadata"]["name"], [problem])

    def _read_history(self) -> None:
        table = self._store.table(kinds.SERVICES)
        entries = table.history.read(self._cursor) if self._cursor >= 0 else None
        if entries is None:
            self._forget()
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
        spec = document.parse().get("spec", {})
        address = _number(spec.get("clusterIP"))
        ports = [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]
        self._of_service[document.key] = address, ports
        if address is not None:
            self._addresses.take(address)
        for port in ports:
            self._ports.take(port)

    def _release(self, key: str) -> None:
        address, ports = self._of_service.pop(key, (None, []))
        if address is not None:
            self._addresses.release(address)
        for port in ports:
            self._ports.release(port)


def _number(text: str | None) -> int | None:
    """An address of the network as a number; None for any other, and for none ("None")."""
    try:
        address = IPv4Address(text or "")
    except ValueError:
        return None
    return int(address) if address in _NETWORK else None
