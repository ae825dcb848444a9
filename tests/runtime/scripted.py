"""Plugins whose results a test decides, and identical pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bayplan.plugin import (
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    Plugin,
    Pod,
    Reject,
    unschedulable,
)
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.runtime.framework import Framework
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import FakeHandle

FITS = NodeResourcesFit


class Indifferent(Plugin):
    """Scores all nodes equally, so that all are evaluated."""

    depends_on = Dependencies.of()

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


class Scripted(Plugin):
    """Returns the given results, and records the rows that it evaluates."""

    depends_on: Dependencies | None = Dependencies.of("labels")

    def __init__(self, **answers: Any) -> None:
        super().__init__(None, FakeHandle())
        self.rejected: set[str] = answers.get("rejected", set())
        self.best = answers.get("best", "")
        self.problem: Exception | None = None
        self.evaluated: list[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        self.evaluated.append([name for name in nodes.names if name])
        if self.problem is not None:
            raise self.problem
        for name in sorted(self.rejected):
            yield Reject(nodes.is_named(name), unschedulable(f"not {name}"))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return 100 * nodes.is_named(self.best).astype(np.int64)


class FollowsUsage(Scripted):
    depends_on = Dependencies.of("labels", usage=True)


def pods() -> Iterator[Pod]:
    """Pods that are identical."""
    number = 0
    while True:
        yield make_pod(f"p{number}", cpu="100m")
        number += 1


def rows_computed(framework: Framework, do: Callable[[], Any]) -> int:
    before = framework.rows_computed
    do()
    return framework.rows_computed - before
