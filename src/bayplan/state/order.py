"""The order in which nodes are evaluated: round robin over zones.

Order matters if scores tie and if nodes are sampled, so it is exactly upstream's: zones in the order they
were first seen, nodes of a zone in the order they were added, and the list alternates between the zones. The
list is rebuilt only when a node is added or removed; a node whose zone label changes moves in the tree at
once but keeps its position in the list until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

REGION_LABELS: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
ZONE_LABELS: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


def zone_of(labels: Mapping[str, str]) -> str:
    """The key of a node's zone: region and zone together, empty if it has neither."""
    region = next((labels[key] for key in REGION_LABELS if key in labels), "")
    zone = next((labels[key] for key in ZONE_LABELS if key in labels), "")
    return f"{region}:\0:{zone}" if region or zone else ""


class NodeTree:
    """Node names by zone."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._zone_of)

    def add(self, name: str, labels: Mapping[str, str]) -> None:
        zone = zone_of(labels)
        self._zones.setdefault(zone, {})[name] = None
        self._zone_of[name] = zone

    def remove(self, name: str) -> None:
        zone = self._zone_of.pop(name)
        names = self._zones[zone]
        del names[name]
        if not names:
            del self._zones[zone]

    def update(self, name: str, labels: Mapping[str, str]) -> None:
        if self._zone_of[name] != zone_of(labels):
            self.remove(name)
            self.add(name, labels)

    def restorer(self) -> Callable[[], None]:
        """A function that restores the current order. Call it when the same nodes are here again."""
        zones = [(zone, list(names)) for zone, names in self._zones.items()]

        def restore() -> None:
            self._zones = {zone: dict.fromkeys(names) for zone, names in zones}
            self._zone_of = {name: zone for zone, names in zones for name in names}

        return restore

    def names(self) -> Iterator[str]:
        """First node of every zone, then the second of every zone that has one, and so on."""
        turns = [iter(names) for names in self._zones.values()]
        while turns:
            left = []
            for turn in turns:
                name = next(turn, None)
                if name is not None:
                    yield name
                    left.append(turn)
            turns = left
