"""Errors of benchmarks; the rest of the tree is in `bayplan.errors`."""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.errors import BayplanError


class BenchError(BayplanError):
    """A benchmark could not be run or measured."""


class UnknownWorkloadError(BenchError):
    """No workload has that name."""

    name: str
    suggestions: tuple[str, ...]
    """Names that are spelled similarly, the nearest first."""

    def __init__(self, name: str, suggestions: Sequence[str]) -> None:
        super().__init__(name, suggestions)
        self.name = name
        self.suggestions = tuple(suggestions)

    def __str__(self) -> str:
        hint = (
            f"did you mean {' or '.join(self.suggestions)}?" if self.suggestions else "--list shows them all"
        )
        return f"unknown workload {self.name!r}: {hint}"
