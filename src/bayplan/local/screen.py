"""What is shown of a cluster: a table that keeps up with it on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bayplan.local.cluster import Census, LocalCluster
from bayplan.local.decisions import NOWHERE, Decisions, Line

REFRESH_SECONDS: Final = 0.5
LEAST_LINES: Final = 5
ROWS_BESIDE_DECISIONS: Final = 9
"""Of the terminal: heading, counts, hints."""

WIDEST: Final = 40
"""For names in the table; longer ones are cut."""

PLAIN_WIDTHS: Final = (32, 12)
"""Columns of pod and node in plain lines."""


def heading(cluster: LocalCluster, kubeconfig: str) -> list[str]:
    """Where the cluster is, and how it is used."""
    return [f"● embedded control plane on {cluster.server.url}   kubeconfig: {kubeconfig}"]


def hints(kubeconfig: str) -> list[str]:
    return [
        f"Try:  kubectl --kubeconfig {kubeconfig} get pods -A -o wide",
        f"      kubectl --kubeconfig {kubeconfig} describe pod NAME",
    ]


def in_numbers(census: Census) -> str:
    """`12 nodes · pods: 22 running, 1 waiting`"""
    nodes = f"{census.nodes:,} node{'' if census.nodes == 1 else 's'}"
    if census.ready_nodes != census.nodes:
        nodes += f" ({census.ready_nodes:,} ready)"
    parts = [
        f"{count:,} {word}"
        for word, count in (
            ("running", census.running),
            ("starting", census.starting),
            ("waiting", census.waiting),
            ("ending", census.ending),
            ("finished", census.finished),
        )
        if count
    ]
    return f"{nodes} · pods: {', '.join(parts) or 'none'}"


def in_a_line(line: Line) -> str:
    """A decision for files and pipes."""
    pod, node = PLAIN_WIDTHS
    return f"  {line.pod:<{pod}} {line.node or NOWHERE:<{node}} {line.why}"


def _width(texts: Sequence[str]) -> int:
    """For a column: room for its heading and for all texts, within reason."""
    return min(max(map(len, (*texts, "node"))), WIDEST)


class Screen:
    """A live view on a terminal, until it is cancelled."""

    def __init__(
        self, console: Console, cluster: LocalCluster, decisions: Decisions, kubeconfig: str
    ) -> None:
        self._console = console
        self._cluster = cluster
        self._decisions = decisions
        self._kubeconfig = kubeconfig

    async def run(self) -> None:
        with Live(self.view(), console=self._console, auto_refresh=False, transient=False) as live:
            while True:
                await asyncio.sleep(REFRESH_SECONDS)
                live.update(self.view(), refresh=True)

    def view(self) -> RenderableType:
        """Everything as it is now."""
        height = max(self._console.height - ROWS_BESIDE_DECISIONS, LEAST_LINES)
        lines = list(self._decisions.latest)[-height:]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
        # Reasons may be long; they must not squeeze out what they are about.
        table.add_column("pod", no_wrap=True, width=_width([line.pod for line in lines]))
        table.add_column("node", no_wrap=True, width=_width([line.node for line in lines]))
        table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1)
        for line in lines:
            node = Text(line.node, style="green") if line.fits else Text(NOWHERE, style="yellow")
            table.add_row(Text(line.pod), node, Text(line.why))
        counted = f"{self._decisions.placed:,} placed, {self._decisions.refused:,} times no"
        numbers = in_numbers(self._cluster.census())
        return Group(
            *(Text(line, style="bold") for line in heading(self._cluster, self._kubeconfig)),
            Text(f"● {numbers} · decisions: {counted}"),
            Text(),
            table,
            Text(),
            *(Text(line, style="dim") for line in (*hints(self._kubeconfig), "Ctrl-C ends it.")),
        )
