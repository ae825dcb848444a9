"""HTML tables of results, for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from bayplan.answers.sources.warnings import Warning
from bayplan.runtime.failure_log import PluginFailure

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster
    from bayplan.answers.whatif.outcomes import Capacity, Placements

MAX_ROWS: Final = 100


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; only the first rows are shown, with the number of the others."""
    body: list[str] = []
    left = 0
    for row in rows:
        if len(body) == MAX_ROWS:
            left += 1
            continue
        body.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>")
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    more = f"<p>… and {left:,} more</p>" if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def _warnings(warnings: Sequence[Warning]) -> str:
    if not warnings:
        return ""
    items = "".join(
        f"<li>{escape(f'{one.pod}: {one.message}' if one.pod else one.message)}</li>" for one in warnings
    )
    return f"<p>This result may differ from the cluster's scheduler:</p><ul>{items}</ul>"


def _failures(failures: Sequence[PluginFailure]) -> str:
    if not failures:
        return ""
    items = "".join(f"<li>{escape(one.message)}</li>" for one in failures)
    return f"<p>This result is not reliable, because plugins failed:</p><ul>{items}</ul>"


def placements_html(placements: Placements) -> str:
    rows = (
        (one.pod, one.outcome, one.was_on, one.node, one.reason or ", ".join(one.evicted))
        for one in placements
    )
    columns = ("pod", "outcome", "was on", "node", "reason or evicted pods")
    return _failures(placements.failures) + table(columns, rows) + _warnings(placements.warnings)


def capacity_html(capacity: Capacity) -> str:
    more = "" if capacity.is_limit else " or more"
    text = f"<p>{capacity.count:,}{more} fit. {escape(capacity.reason)}</p>"
    rows = Counter(capacity.by_node).most_common()
    return _failures(capacity.failures) + text + table(("node", "pods"), rows) + _warnings(capacity.warnings)


def cluster_html(cluster: Cluster) -> str:
    rows = []
    for name in cluster.nodes:
        node = cluster.node(name)
        allocatable = node.status.allocatable
        rows.append(
            (name, len(cluster.pods_of(name)), allocatable.get("cpu", ""), allocatable.get("memory", ""))
        )
    return f"<p>{escape(repr(cluster))}</p>" + table(("node", "pods", "cpu", "memory"), rows)
