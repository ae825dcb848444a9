"""Says that plugins failed, and ends the command with a non-zero exit status.

A result without the plugin that failed is incomplete: scripts must not take it for the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import click

from bayplan.answers.explain.explanation import Explanation
from bayplan.cli.encoding import echo
from bayplan.errors import BayplanError
from bayplan.runtime.failure_log import PluginFailure

MAX_LISTED: Final = 5

_INCOMPLETE: Final = "{pods} not evaluated completely, because a plugin failed:"
_NOT_RELIABLE: Final = "the result is not reliable, because a plugin failed:"

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
        pods = "1 pod was" if count == 1 else f"{count:,} pods were"
        texts = (f"{pod}: {text}" for pod, text in self._failures)
        lines = _lines(texts, count, hint=not self.with_traceback)
        raise PluginsFailedError("\n  ".join([_INCOMPLETE.format(pods=pods), *lines]))


def raise_failures(failures: Sequence[PluginFailure], *, with_traceback: bool) -> None:
    """Raises PluginsFailedError if plugins failed while the scheduler ran."""
    if not failures:
        return
    for traceback in dict.fromkeys(one.traceback for one in failures if with_traceback and one.traceback):
        echo(traceback, err=True)
    hint = not with_traceback and any(one.traceback for one in failures)
    shown = _lines((one.message for one in failures), len(failures), hint=hint)
    raise PluginsFailedError("\n  ".join([_NOT_RELIABLE, *shown]))


def _lines(texts: Iterable[str], count: int, *, hint: bool) -> list[str]:
    shown = list(islice(texts, MAX_LISTED))
    more = [f"and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []
    return [*shown, *more, *(["--traceback shows where"] if hint else [])]
