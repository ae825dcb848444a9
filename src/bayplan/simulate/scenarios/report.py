"""The result of a simulation as one HTML file that needs no network and runs no script.

Every text from the scenario is escaped. A content security policy permits nothing but the style sheet, which
it names by its hash; attributes named `style` are forbidden by it. The charts are in `charts.py`; the style
sheet adapts them to light and dark.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final

from bayplan.simulate.scenarios.charts import Line, bar_chart, count_label, line_chart, percent_label
from bayplan.simulate.scenarios.output import (
    SHARE_HEADS,
    descheduling_rows,
    duration,
    fairness,
    percent,
    queue_title,
    run_title,
    share_cells,
)
from bayplan.simulate.scenarios.result import QUEUES, Descheduling, Result, Waiting

STYLE: Final = """
:root {
  color-scheme: light dark;
  --text: #1c2126; --muted: #59636e; --page: #ffffff; --panel: #f5f7f9; --edge: #d5dbe1; --bar: #2463a8;
  --c0: #1f5fa8; --c1: #b3541e; --c2: #1d7a4c; --c3: #8a3fa0; --c4: #a52a4a; --c5: #6b6300; --c6: #00747d;
  --c7: #59636e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e9ec; --muted: #a3adb7; --page: #14181c; --panel: #1d2329; --edge: #3a434c; --bar: #5b9be0;
    --c0: #6db1ff; --c1: #f0995c; --c2: #5fcf95; --c3: #d29ae8; --c4: #f08aa3; --c5: #d8cc4a; --c6: #58d0da;
    --c7: #a3adb7;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.6rem; margin: 0.5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
p { margin: 0.4rem 0; }
.muted, figcaption { color: var(--muted); font-size: 0.9rem; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 0.6rem; margin: 0;
}
.cards div {
  background: var(--panel); border: 1px solid var(--edge); border-radius: 6px; padding: 0.5rem 0.7rem;
}
.cards dt { color: var(--muted); font-size: 0.85rem; }
.cards dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { margin: 0.5rem 0; }
svg.chart { width: 100%; height: auto; display: block; }
svg.narrow { display: none; }
svg text { fill: var(--muted); font-size: 12px; }
.grid { stroke: var(--edge); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.bar { fill: var(--bar); }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3; } .c3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); stroke-dasharray: 7 3; }
.c6 { stroke: var(--c6); stroke-dasharray: 2 3; } .c7 { stroke: var(--c7); stroke-dasharray: 9 3 2 3; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; margin: 0.2rem 0; padding: 0; }
.legend li { font-size: 0.9rem; display: flex; align-items: center; gap: 0.4rem; }
svg.key { width: 24px; height: 8px; flex: none; }
.scroll { overflow-x: auto; max-height: 26rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; color: var(--muted); }
th, td {
  padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--edge);
}
th:first-child { text-align: left; white-space: normal; min-width: 9rem; overflow-wrap: break-word; }
tbody th { font-weight: normal; }
summary { cursor: pointer; color: var(--muted); font-size: 0.9rem; }
@media (max-width: 40rem) {
  svg.wide { display: none; }
  svg.narrow { display: block; }
}
@media print { details { display: none; } }
"""

STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'"

MAX_POINTS: Final = 400
"""Samples that a chart and its table show; of more, equally spaced ones are chosen."""
MAX_BARS: Final = 15

_PERCENTILES: Final = (("median", "p50"), ("90th percentile", "p90"), ("99th percentile", "p99"))


def make_page(result: Result) -> str:
    """The whole document."""
    title = escape(f"Simulation of {result.scenario}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
        f'<p class="muted">{escape(_origin(result))}</p>\n</header>\n<main>\n'
        f"{''.join(_sections(result))}</main>\n</body>\n</html>\n"
    )


def _origin(result: Result) -> str:
    parts = (
        f"{duration(result.duration)} simulated",
        f"seed {result.seed}",
        f"{result.nodes.start:,} nodes at the start, {result.nodes.end:,} at the end",
        f"bayplan {result.version}, deciding as Kubernetes {result.emulated_version}",
        f"placements {result.placements_digest[:16]}",
    )
    return " · ".join(parts)


def _sections(result: Result) -> Iterable[str]:
    series = _thinned(result)
    times = series.times
    yield _cards(result)
    if result.descheduling:
        yield from _descheduling(result.descheduling)
    yield _section(
        "utilisation",
        "Utilisation",
        "Requests of the pods on ready nodes as a share of what these nodes can allocate.",
        line_chart(
            "utilisation",
            "Utilisation over time",
            times,
            series.lines("utilisation"),
            percent_label,
            high=1.0,
        ),
        _series_table(times, series.lines("utilisation"), percent),
    )
    yield _section(
        "queues",
        "Waiting pods",
        "Pods without a node, all together and by sub-queue of the scheduler.",
        line_chart("queues", "Waiting pods over time", times, series.queues, count_label),
        _series_table(times, series.queues, count_label),
    )
    yield _section(
        "running",
        "Running pods and ready nodes",
        "",
        line_chart("running", "Running pods and ready nodes over time", times, series.running, count_label),
        _series_table(times, series.running, count_label),
    )
    yield _waiting_times(result)
    if result.capacity_queues:
        yield _capacity_queues(result, times, series.lines("shares"))
    yield _section(
        "fragmentation",
        "Fragmentation",
        "The share of free resources on nodes where an average pod of the workload does not fit.",
        line_chart(
            "fragmentation",
            "Fragmentation over time",
            times,
            series.lines("fragmentation"),
            percent_label,
            high=1.0,
        ),
        _series_table(times, series.lines("fragmentation"), percent),
    )
    yield _reasons(result)
    yield _preemptions(result)
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    yield f'<section id="notes"><h2>What this simulation does not know</h2><ul>{notes}</ul></section>\n'


class _Shown:
    """The samples that are shown."""

    def __init__(self, result: Result, chosen: Sequence[int]) -> None:
        self._series = result.series
        self._chosen = chosen
        self.times = [result.series.times[i] for i in chosen]
        self.queues = [
            Line(queue_title(name), self._pick(getattr(result.series, name)))
            for name in QUEUES
            if name == "waiting" or any(getattr(result.series, name))
        ]
        self.running = [
            Line("running pods", self._pick(result.series.running)),
            Line("ready nodes", self._pick(result.series.ready_nodes)),
        ]

    def lines(self, name: str) -> list[Line]:
        return [
            Line(resource, self._pick(values)) for resource, values in getattr(self._series, name).items()
        ]

    def _pick(self, values: Sequence[float]) -> list[float]:
        return [values[i] for i in self._chosen]


def _thinned(result: Result) -> _Shown:
    return _Shown(result, _chosen(len(result.series.times)))


def _chosen(count: int) -> Sequence[int]:
    """Which of so many samples are shown."""
    if count <= MAX_POINTS:
        return range(count)
    return sorted({round(i * (count - 1) / (MAX_POINTS - 1)) for i in range(MAX_POINTS)})


def _cards(result: Result) -> str:
    pods, waiting = result.pods, result.waiting_time
    cards = [
        ("pods arrived", f"{pods.arrived:,}"),
        ("finished", f"{pods.finished:,}"),
        ("running at the end", f"{pods.running:,}"),
        ("waiting at the end", f"{pods.waiting:,}"),
        ("median wait", duration(waiting.p50) if waiting.pods else "–"),
        ("99th percentile of waits", duration(waiting.p99) if waiting.pods else "–"),
        ("preemptions", f"{result.scheduling.preemptions:,}"),
        ("node failures", f"{result.nodes.failures:,}"),
        *((f"{name} used, mean", percent(used.mean)) for name, used in result.utilisation.items()),
    ]
    entries = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in cards)
    return f'<section id="summary"><h2>Summary</h2><dl class="cards">{entries}</dl></section>\n'


def _descheduling(runs: Sequence[Descheduling]) -> Iterable[str]:
    times = runs[0].times
    chosen = _chosen(len(times))
    table = _table(
        "The same scenario without and with descheduling",
        ("", *map(run_title, runs)),
        [(name, *values) for name, values in descheduling_rows(runs)],
    )
    text = "The other sections are about the last column."
    yield f'<section id="descheduling"><h2>Descheduling</h2><p class="muted">{text}</p>{table}</section>\n'
    times = [times[i] for i in chosen]
    for key, title, label, name in (
        ("candidates", "Pods that the policy would evict", count_label, "candidates_series"),
        ("fullest", "CPU requested on the fullest node", percent_label, "fullest_node_series"),
    ):
        lines = [Line(run_title(one), [getattr(one, name)[i] for i in chosen]) for one in runs]
        chart = line_chart(key, f"{title} over time", times, lines, label)
        yield _section(key, title, "", chart, _series_table(times, lines, label))


def _section(key: str, title: str, text: str, chart: str, table: str) -> str:
    explained = f'<p class="muted">{escape(text)}</p>' if text else ""
    return (
        f'<section id="{key}"><h2>{escape(title)}</h2>{explained}<figure>{chart}</figure>'
        f"<details><summary>Table: {escape(title.lower())}</summary>{table}</details></section>\n"
    )


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{escape(cell)}</th>' if place == 0 else f"<td>{escape(cell)}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _series_table(times: Sequence[float], lines: Sequence[Line], label: Callable[[float], str]) -> str:
    rows = (
        (duration(time), *(label(line.values[place]) for line in lines)) for place, time in enumerate(times)
    )
    return _table("Samples over time", ("time", *(line.name for line in lines)), rows)


def _waiting_times(result: Result) -> str:
    names = [(one.name, one.waiting_time) for one in result.workloads if one.waiting_time.pods]
    charts = []
    for title, field in _PERCENTILES:
        bars = sorted(((name, getattr(waiting, field)) for name, waiting in names), key=lambda bar: -bar[1])
        chart = bar_chart(f"wait-{field}", f"Waiting time by workload, {title}", bars[:MAX_BARS], duration)
        charts.append(f"<figure><figcaption>{title} of the waiting time</figcaption>{chart}</figure>")
    heads = ("workload", "arrived", "scheduled", "waiting", "mean", "p50", "p90", "p95", "p99", "max")
    rows = [
        (one.name, f"{one.arrived:,}", f"{one.scheduled:,}", f"{one.waiting:,}", *_times(one.waiting_time))
        for one in result.workloads
    ]
    pods, total = result.pods, result.waiting_time
    rows.append(
        ("all", f"{pods.initial + pods.arrived:,}", f"{total.pods:,}", f"{pods.waiting:,}", *_times(total))
    )
    text = "From arrival to binding, of pods that were scheduled. Pods that still wait are only counted."
    return (
        f'<section id="waiting-times"><h2>Waiting times</h2><p class="muted">{text}</p>'
        f"{''.join(charts)}{_table('Waiting times by workload', heads, rows)}</section>\n"
    )


def _capacity_queues(result: Result, times: Sequence[float], shares: Sequence[Line]) -> str:
    text = (
        "How much of its guarantee each queue uses, by the share that decides which one is next. "
        f"Fairness: {fairness(result)}."
    )
    heads = ("queue", "arrived", "scheduled", "waiting", "mean", "p50", "p90", "p95", "p99", "max")
    rows = (
        (
            *(one.queue, f"{one.arrived:,}", f"{one.scheduled:,}", f"{one.waiting:,}"),
            *(*_times(one.waiting_time), *share_cells(one)),
        )
        for one in result.capacity_queues
    )
    chart = line_chart("shares", "Share of each queue over time", times, shares, _ratio)
    table = _table("Waiting times and shares by queue", (*heads, *SHARE_HEADS), rows)
    samples = _series_table(times, shares, _ratio)
    return (
        f'<section id="capacity-queues"><h2>Capacity queues</h2><p class="muted">{escape(text)}</p>'
        f"<figure>{chart}</figure>{table}"
        f"<details><summary>Table: shares</summary>{samples}</details></section>\n"
    )


def _ratio(share: float) -> str:
    return f"{share:.2f}"


def _times(waiting: Waiting) -> tuple[str, ...]:
    if not waiting.pods:
        return ("–",) * 6
    fields = (waiting.mean, waiting.p50, waiting.p90, waiting.p95, waiting.p99, waiting.max)
    return tuple(map(duration, fields))


def _reasons(result: Result) -> str:
    named = [
        (f"{one.plugin}: {one.reason}" if one.plugin else one.reason, one.pod_seconds / 3600, one.attempts)
        for one in result.reasons
    ]
    if not named:
        body = "<p>Every pod was scheduled when it arrived.</p>"
    else:
        bars = [(name, hours) for name, hours, _ in named[:MAX_BARS]]
        chart = bar_chart("reasons", "Waiting time by reason, in pod hours", bars, _hours)
        rows = ((name, _hours(hours), f"{attempts:,}") for name, hours, attempts in named)
        table = _table("Reasons for waiting", ("reason", "pod hours", "attempts"), rows)
        body = f"<figure>{chart}</figure>{table}"
    text = (
        "The time that pods waited, by the plugin and message that rejected most nodes in their last attempt."
    )
    return f'<section id="reasons"><h2>Reasons for waiting</h2><p class="muted">{text}</p>{body}</section>\n'


def _hours(hours: float) -> str:
    return f"{hours:,.2f} h"


def _preemptions(result: Result) -> str:
    scheduling = result.scheduling
    rows = [
        ("attempts", scheduling.attempts),
        ("failed attempts", scheduling.failed_attempts),
        ("attempts that ended with an error", scheduling.errors),
        ("bindings", scheduling.bindings),
        ("preemptions", scheduling.preemptions),
        ("victims of preemption", scheduling.victims),
        *((f"pods {name}", count) for name, count in result.pods.outcomes.items()),
        ("node failures", result.nodes.failures),
    ]
    table = _table("Counts", ("event", "count"), ((name, f"{count:,}") for name, count in rows))
    return f'<section id="preemptions"><h2>Preemptions and evictions</h2>{table}</section>\n'
