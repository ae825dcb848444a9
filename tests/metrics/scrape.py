"""A scrape, read back with prometheus-client's own parser and reduced to what can be compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bayplan.api.releases import Release

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Shape:
    """Name, type and labels of a family, without its values."""

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


@dataclass(frozen=True)
class Listed:
    """A metric of kube-scheduler as `v1.36.txt` and its like list it."""

    shape: Shape
    level: str
    """ALPHA, BETA or STABLE; `-` for those of the operating system."""
    is_idle: bool
    """Whether kube-scheduler shows it while it is idle."""


def listed(release: Release) -> dict[str, Listed]:
    """The metrics of a release of kube-scheduler, by name."""
    found: dict[str, Listed] = {}
    for line in (HERE / f"v{release}.txt").read_text().splitlines():
        if not line.startswith("#"):
            mark, name, kind, level, *rest = line.split()
            labels = next((part[1:-1].split(",") for part in rest if part.startswith("{")), [])
            bounds = next((part[3:].split(",") for part in rest if part.startswith("le=")), [])
            found[name] = Listed(Shape(kind, frozenset(labels), tuple(bounds)), level, mark == "*")
    return found


def levels(text: str) -> dict[str, str]:
    """The stability levels in the HELP texts of a scrape, by name; `-` where there is none."""
    helps = re.findall(r"^# HELP (\S+) (?:\[(ALPHA|BETA|STABLE)\] )?\S", text, re.MULTILINE)
    return {name: level or "-" for name, level in helps}


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name by their label values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }
