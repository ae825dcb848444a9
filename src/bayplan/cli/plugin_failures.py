"""Says that plugins failed, and ends the command with a non-zero exit status.

A result without the plugin that failed is incomplete: scripts must not take it for the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from bayplan.cli.encoding import echo
from bayplan.errors import BayplanError
from bayplan.explain.explanation import Explanation

MAX_LISTED: Final = 5

traceback_option = click.option(
    "--traceback", is_flag=True, help="Print the tracebacks of plugins that fail, on standard error."
)


class PluginsFailedError(BayplanError):
    """Plugins failed for some pods."""


@dataclass(slots=True)
class FailedPlugins:
    """The pods for which a plugin failed."""

    with_traceback: bool = False
    _failures: list[tuple[str, str]] = field(default_factory=list)
    _shown: set[str] = field(default_factory=set)

    def add(self, explanation: Explanation) -> None:
        """Notes a failure, and prints its traceback if that is wanted and new."""
        if not explanation.failed_plugin:
            return
        self._failures.append((explanation.pod, explanation.failure))
        if self.with_traceback and explanation.traceback and explanation.traceback not in self._shown:
            self._shown.add(explanation.traceback)
            echo(f"{explanation.pod}: {explanation.failure}\n{explanation.traceback}", err=True)

    def raise_any(self) -> None:
        """Raises PluginsFailedError if there was a failure."""
        if not self._failures:
            return
        count = len(self._failures)
        lines = [f"{pod}: {text}" for pod, text in self._failures[:MAX_LISTED]]
        more = [f"and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []
        hint = [] if self.with_traceback else ["--traceback shows where"]
        raise PluginsFailedError(_joined(count, [*lines, *more, *hint]))


def _joined(count: int, lines: Sequence[str]) -> str:
    pods = "1 pod was" if count == 1 else f"{count:,} pods were"
    return "\n  ".join([f"{pods} not evaluated completely, because a plugin failed:", *lines])
