"""A scrape, read back with prometheus-client's own parser and boiled down to what can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

LIVE = Path(__file__).with_name("live.txt")


@dataclass(frozen=True)
class Shape:
    """What a family looks like, whatever its values."""

    kind: str
    labels: frozenset[str] = frozenset()
    bounds: tuple[str, ...] = ()


def shapes(text: str) -> dict[str, Shape]:
    """The families of a scrape by name."""
    found: dict[str, Shape] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        bounds = dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        found[name] = Shape(family.type, labels, tuple(bounds))
    return found


def live_shapes() -> dict[str, Shape]:
    """The families of `live.txt` by name."""
    found: dict[str, Shape] = {}
    for line in LIVE.read_text().splitlines():
        if not line.startswith("#"):
            name, kind, *rest = line.split()
            labels = next((part[1:-1].split(",") for part in rest if part.startswith("{")), [])
            bounds = next((part[3:].split(",") for part in rest if part.startswith("le=")), [])
            found[name] = Shape(kind, frozenset(labels), tuple(bounds))
    return found


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name by their label values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }
