"""Random numbers and common names of a scenario.

The same seed draws the same scenario only as long as everything is drawn in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

Raw = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
REGION: Final = "topology.kubernetes.io/region"
NAMESPACES: Final[dict[str, dict[str, str]]] = {
    "default": {},
    "prod": {"stage": "prod"},
    "team-a": {"team": "a", "stage": "test"},
    "team-b": {"team": "b"},
}
APPS: Final = ("web", "db", "cache", "batch", "log")
IMAGES: Final = ("nginx:1.27", "registry.example/ml/train:v3", "redis:7", "registry.example/tool")


class Draw(random.Random):
    """A seeded random generator, which also numbers objects."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self._made = 0

    def name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def some(self, choices: Sequence[Any], most: int = 3) -> list[Any]:
        return self.sample(list(choices), self.randint(0, min(most, len(choices))))

    def maybe(self, rng: float) -> bool:
        return self.random() < rng


@dataclass(frozen=True)
class Theme:
    """The topics of a scenario: pods with constraints of all topics would fit on no node."""

    spreads: bool
    affine: bool
    prefers: bool
    preempts: bool
    volumes: bool
    crowded: bool
    owned: bool

    @classmethod
    def drawn(cls, draw: Draw) -> Theme:
        chances = (0.6, 0.6, 0.6, 0.35, 0.4, 0.5, 0.3)
        return cls(*(draw.maybe(rng) for rng in chances))
