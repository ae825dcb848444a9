"""The display of a cluster: a live page on a terminal, otherwise plain lines.

The page is drawn on the terminal's alternate screen, which terminals do not reflow when their size changes,
so no copies of earlier pages are left behind. Lines longer than the terminal is wide are left to the terminal
to wrap: when they are selected with the mouse, they are one line. Nothing is written while nothing changes,
so a selection stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
import sys
import termios
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final, Self

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bayplan.embedded.server.kinds import NODES
from bayplan.embedded.up.cluster import Census, LocalCluster
from bayplan.embedded.up.report import Outcome, Outcomes, Report, Section, State, clock, lines, row_of
from bayplan.printable import printable

PROGRAM: Final = "bayplan"
REFRESH_SECONDS: Final = 0.5
MAX_SHARE: Final = 0.1
"""Maximum share of CPU time for drawing the page: for a large cluster it is drawn less often."""
MIN_BOUND_ROWS: Final = 5
"""Rows reserved for bound pods, however many others there are."""
MAX_LOG_LINES: Final = 100
LOG_LINES_SHOWN: Final = 3
MAX_ROWS_IN_SUMMARY: Final = 20
REPEAT_SECONDS: Final = 10.0
"""A pod's reason that keeps changing is printed no more often than this."""
MAX_REMEMBERED: Final = 20_000

PLAIN_WIDTHS: Final = (14, 32, 12)
"""Columns of state, pod and node in plain lines."""


def heading(cluster: LocalCluster, kubeconfig: str) -> list[str]:
    """The address of the cluster, and how to use it."""
    return [
        f"● embedded control plane on {cluster.server.url}   Kubernetes {cluster.server.release}   "
        f"kubeconfig: {kubeconfig}"
    ]


def hints(cluster: LocalCluster, kubeconfig: str, page: str = "") -> list[str]:
    """Commands that work when they are pasted into a shell in this directory, and the link of the page."""
    tried = [f"kubectl --kubeconfig {kubeconfig} get pods -A -o wide"]
    if subject := _worth_explaining(cluster):
        tried.append(f"{_command()} explain {subject} --kubeconfig {kubeconfig}")
    shown = [f"{'Try:' if number == 0 else '':<6}{command}" for number, command in enumerate(tried)]
    return [*([f"Page: {page}"] if page else []), *shown]


def _worth_explaining(cluster: LocalCluster) -> str:
    """A pod without a node, or else any pod; before there are pods, a node."""
    pod = min(cluster.pods(), key=lambda pod: bool(pod.spec.node_name), default=None)
    if pod is not None:
        return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    return next((f"node {node.key}" for node in cluster.server.api.documents(NODES)), "")


def _command() -> str:
    """How to call this program: by its name only if the shell would find it."""
    running = Path(sys.argv[0]).absolute()
    if running.stem != PROGRAM:
        return f"{shlex.quote(sys.executable)} -m bayplan.cli.main"
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).absolute() == running:
        return PROGRAM
    return shlex.quote(os.path.relpath(running) if running.is_relative_to(Path.cwd()) else str(running))


def in_numbers(census: Census) -> str:
    """`12 nodes · pods: 22 running, 1 pending`"""
    nodes = f"{census.nodes:,} node{'' if census.nodes == 1 else 's'}"
    if census.ready_nodes != census.nodes:
        nodes += f" ({census.ready_nodes:,} ready)"
    parts = [
        f"{count:,} {word}"
        for word, count in (
            ("running", census.running),
            ("starting", census.starting),
            ("waiting for configuration", census.waiting),
            ("pending", census.pending),
            ("terminating", census.terminating),
            ("finished", census.finished),
        )
        if count
    ]
    return f"{nodes} · pods: {', '.join(parts) or 'none'}"


def in_a_line(outcome: Outcome) -> str:
    """An outcome for files and pipes."""
    state, pod, node = PLAIN_WIDTHS
    return (
        f"{clock(outcome.time)}  {outcome.state.label:<{state}} {outcome.pod:<{pod}} "
        f"{outcome.node or '–':<{node}} {outcome.reason}"
    )


class PlainLines:
    """A line for each outcome, for files and pipes. The lines of a pod that is retried are rate-limited."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._printed: dict[tuple[str, State], Outcome] = {}
        self._members: dict[tuple[str, State], dict[str, Outcome]] = {}
        """Of groups whose line is not complete yet: the latest outcome of each member, by uid."""

    def add(self, outcome: Outcome) -> None:
        """Adds the line of an outcome, unless it repeats an earlier one. The members of a group share one."""
        if outcome.group:
            members = self._members.setdefault((outcome.group, outcome.state), {})
            members.pop(outcome.uid, None)
            members[outcome.uid] = outcome
            return
        self._add(outcome)

    def _add(self, outcome: Outcome) -> None:
        key = (outcome.uid, outcome.state)
        before = self._printed.get(key)
        if before is not None and (
            before.reason == outcome.reason or outcome.time - before.time < REPEAT_SECONDS
        ):
            return
        if before is None and len(self._printed) >= MAX_REMEMBERED:
            del self._printed[next(iter(self._printed))]
        self._printed[key] = outcome
        self._lines.append(in_a_line(outcome))

    def _add_group(self, members: list[Outcome]) -> None:
        """The line of a group, as if it were one pod; of one that is bound, for each member once."""
        row, latest = row_of(members), members[-1]
        uid = latest.uid if latest.state is State.BOUND else f"group {latest.group}"
        self._add(replace(latest, pod=row.pods, uid=uid, node=row.nodes, reason=row.reason))

    def note(self, line: str) -> None:
        """Adds a line that is no outcome."""
        self._lines.append(line)

    def take(self, before: float = inf) -> list[str]:
        """The lines that were added since the last call; of groups only if no member came since `before`."""
        for key, by_uid in list(self._members.items()):
            members = list(by_uid.values())
            if members[-1].time < before:
                del self._members[key]
                self._add_group(members)
        taken, self._lines = self._lines, []
        return taken


class LogLines(logging.Handler):
    """Collects log messages while the terminal shows a page: otherwise they would overwrite it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: deque[str] = deque(maxlen=MAX_LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        text = printable(text)
        if not self.kept or self.kept[-1] != text:
            self.kept.append(text)


class Screen:
    """A live view on a terminal, until it is cancelled."""

    def __init__(
        self,
        console: Console,
        cluster: LocalCluster,
        outcomes: Outcomes,
        kubeconfig: str,
        log: LogLines | None = None,
        *,
        page: Callable[[], str] = str,
    ) -> None:
        """`page` returns the link of the page; the default an empty one."""
        self._page = page
        self._console = console
        self._cluster = cluster
        self._outcomes = outcomes
        self._kubeconfig = kubeconfig
        self._log = LogLines() if log is None else log
        self._report = Report(outcomes, cluster.scheduler_names, cluster.why_incomplete)

    async def run(self) -> None:
        """Draws the page whenever the cluster or the size of the terminal changes."""
        loop = asyncio.get_running_loop()
        resized = asyncio.Event()
        loop.add_signal_handler(signal.SIGWINCH, resized.set)
        try:
            with Page(self._console) as page:
                while True:
                    since = loop.time()
                    page.draw(self.view(*page.size))
                    pause = max(REFRESH_SECONDS, (loop.time() - since) / MAX_SHARE)
                    resized.clear()
                    try:
                        await asyncio.wait_for(resized.wait(), pause)
                    except TimeoutError:
                        continue
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)

    def view(self, width: int, height: int) -> list[Text]:
        """The current page, for a terminal of this size."""
        log = list(self._log.kept)[-LOG_LINES_SHOWN:]
        top = [*self._head(), Text()]
        tried = (*hints(self._cluster, self._kubeconfig, self._page()), "Ctrl-C stops the cluster.")
        bottom = [
            Text(),
            *(Text(line[: width - 1], style="red") for line in log),
            *(Text(line, style="dim") for line in tried),
        ]
        room = height - sum(rows(line, width) for line in (*top, *bottom))
        sections = self._report.sections(self._cluster.pods())
        page = [*top, *fitted(sections, width, room), *bottom]
        while sum(rows(line, width) for line in page) > height and len(page) > 1:
            page.pop()
        return page

    def summary(self) -> list[str]:
        """The summary that is printed when the cluster has ended."""
        sections = self._report.sections(self._cluster.pods())
        if not self._console.is_terminal:
            sections = [section for section in sections if section.state is not State.BOUND]
        shown: list[str] = []
        for section in sections:
            shown.append(section.title.plain)
            found = lines(section)
            shown += [line.plain.rstrip() for line in found[:MAX_ROWS_IN_SUMMARY]]
            if len(found) > MAX_ROWS_IN_SUMMARY:
                shown.append(_more(len(found) - MAX_ROWS_IN_SUMMARY).plain)
        return [*shown, f"● {in_numbers(self._cluster.census())}"]

    def _head(self) -> list[Text]:
        counted = f"{self._outcomes.scheduled:,} scheduled, {self._outcomes.failed:,} failed attempts"
        return [
            *(Text(line, style="bold") for line in heading(self._cluster, self._kubeconfig)),
            Text(f"● {in_numbers(self._cluster.census())} · {counted}"),
        ]


def fitted(sections: Sequence[Section], width: int, room: int) -> list[Text]:
    """As much of the sections as fits into the rows. Bound pods get the rows that others leave."""
    bound = [section for section in sections if section.state is State.BOUND]
    others = [section for section in sections if section.state is not State.BOUND]
    kept = min(MIN_BOUND_ROWS, 1 + len(bound[0].rows)) if bound else 0
    parts: list[Text] = []
    left = room - kept
    for number, section in enumerate(others):
        part = _fitted(section, width, left // (len(others) - number))
        left -= sum(rows(line, width) for line in part)
        parts += part
    for section in bound:
        parts = [*_fitted(section, width, left + kept), *parts]
    return parts


def _fitted(section: Section, width: int, room: int) -> list[Text]:
    """The title and as many rows as fit; the first one is cut if it alone is too long."""
    if room < 1:
        return []
    shown, used = [section.title], 1
    found = lines(section)
    for number, line in enumerate(found):
        after = len(found) - number - 1
        space = room - used - (after > 0)
        if rows(line, width) > space:
            if number == 0 and space > 0:
                line.truncate(space * width, overflow="ellipsis")
                shown.append(line)
                used += space
            else:
                after += 1
            if after and used < room:
                shown.append(_more(after))
            break
        shown.append(line)
        used += rows(line, width)
    return shown


def _more(count: int) -> Text:
    return Text(f"  … and {count:,} more", style="dim")


_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, and no cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_CLEAR: Final = "\x1b[2J\x1b[H"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that support it show everything in between at once."""
_FALLBACK: Final = os.terminal_size((80, 24))


class Page:
    """The alternate screen of a terminal. Use it in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: tuple[os.terminal_size, tuple[Text, ...]] | None = None
        self._input: list[Any] | None = None

    @property
    def size(self) -> os.terminal_size:
        """The current size. COLUMNS and LINES of the environment would be those of the start."""
        try:
            size = os.get_terminal_size(self._console.file.fileno())
        except OSError:
            return _FALLBACK
        # Serial lines and some containers have terminals of 0 columns.
        return os.terminal_size(now or fallback for now, fallback in zip(size, _FALLBACK, strict=True))

    def __enter__(self) -> Self:
        self._write(_ENTER)
        # Input must not appear on the page; Ctrl-C still works.
        with suppress(termios.error, OSError, ValueError):
            self._input = termios.tcgetattr(sys.stdin.fileno())
            quiet = termios.tcgetattr(sys.stdin.fileno())
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
        return self

    def __exit__(self, *_: object) -> None:
        if self._input is not None:
            with suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._input)
        self._write(_LEAVE)

    def draw(self, lines: Sequence[Text]) -> None:
        """Shows these lines, which should need no more rows than the terminal has."""
        page = (self.size, tuple(lines))
        if page == self._shown:
            return
        self._shown = page
        # A console of commands would escape the carriage returns, as it does those of tenants.
        drawn = "\r\n".join(map(self._rendered, lines))
        self._write(f"{_BEGIN}{_CLEAR}{drawn}{_END}")

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get()

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def rows(line: Text, width: int) -> int:
    """The rows that a line takes on a terminal of this width."""
    return max(-(-cell_len(line.plain) // width), 1)
