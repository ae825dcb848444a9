"""The report as one HTML document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from bayplan.simulate.scenarios.html.axes import count_label, percent_label
from bayplan.simulate.scenarios.html.charts import Line, bar_chart, line_chart
from bayplan.simulate.scenarios.html.style import POLICY, STYLE
from bayplan.simulate.scenarios.result import QUEUES, Result, Waiting
from bayplan.simulate.scenarios.tables import duration, percent, queue_title

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
    count = len(result.series.times)
    if count <= MAX_POINTS:
        return _Shown(result, range(count))
    return _Shown(result, sorted({round(i * (count - 1) / (MAX_POINTS - 1)) for i in range(MAX_POINTS)}))


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


def _series_table(times: Sequence[float], lines: Sequence[Line], label: object) -> str:
    assert callable(label)
    rows = (
        (duration(time), *(str(label(line.values[place])) for line in lines))
        for place, time in enumerate(times)
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
