"""Explanations as tables for people.

    heading                      the cluster, and what becomes of each pod in a line
    a section for each pod       the verdict; how the nodes that fit compare; why the others do not, and what
                                 preemption would do about it

A cluster may have thousands of nodes: nodes are counted and grouped, and only a few are named. What is left
out is said, and `--output json` has it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bayplan.api.pod import Pod
from bayplan.explain.dump_warnings import Warning
from bayplan.explain.explanation import Candidate, Explanation, Preemption
from bayplan.explain.refusals import Refusal, detail, refusals
from bayplan.framework.status import Code
from bayplan.snapshot.cluster import Cluster

MOST_RUNNERS_UP: Final = 4
MOST_EQUALS: Final = 2
"""Nodes as good as the chosen one that are named; more of them are only counted."""
MOST_REFUSALS: Final = 8
MOST_CANDIDATES: Final = 4
MOST_VICTIMS: Final = 6
WIDE: Final = 100
"""From so many columns on there is room for several names of nodes that share a reason."""
NAMES_WIDTH: Final = 24
NAMES_WIDTH_NARROW: Final = 8
"""Characters for those names; where not even one of them fits none is shown."""

NO_PLUGIN: Final = "PreFilter"
"""Who refused a node that a PreFilter left out of the set of nodes that can fit."""

NOWHERE: Final = "–"
GOOD, BAD, HOPE, FAINT, STRONG = "green", "red", "yellow", "dim", "bold"


@dataclass(frozen=True, slots=True)
class Judged:
    """A pod, the cluster on which it was judged, and what came of it."""

    pod: Pod
    cluster: Cluster
    explanation: Explanation
    warnings: Sequence[Warning] = ()


def print_tables(
    console: Console, heading: str, judged: Sequence[Judged], details: int, warnings: Sequence[Warning] = ()
) -> None:
    """The heading, all pods in short where there are several, and the first `details` of them in full."""
    _print(console, Text(heading, style=STRONG))
    for warning in warnings:
        _print(console, Text(f"warning: {warning.message}", style=HOPE))
    if len(judged) > 1:
        _print(console, _indented(summary(judged)))
    for one in judged[:details]:
        _print(console, Text())
        for part in section(one, NAMES_WIDTH if console.width >= WIDE else NAMES_WIDTH_NARROW):
            _print(console, part)
    left = len(judged) - details
    if left > 0:
        _print(
            console, Text(f"\n… and {left:,} more pods; --pod NAMESPACE/NAME shows one in full", style=FAINT)
        )


def summary(judged: Iterable[Judged]) -> Table:
    """One line a pod: where it goes and why, or what stands in the way."""
    table = _table("pod", "node", "why")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for one in judged:
        node, why = _in_short(one.explanation)
        table.add_row(Text(one.explanation.pod), node, Text(why, no_wrap=True, overflow="ellipsis"))
    return table


def section(judged: Judged, names_width: int = NAMES_WIDTH) -> Iterator[RenderableType]:
    """Everything about one pod."""
    explanation = judged.explanation
    yield _verdict(explanation)
    for warning in judged.warnings:
        yield Text(f"warning: {warning.message}", style=HOPE)
    if len(explanation.feasible) > 1:
        yield _indented(_scores(explanation))
    groups = refusals(explanation)
    if groups:
        yield _indented(_refusals(judged, groups, names_width))
    if explanation.preemption is not None and explanation.preemption.candidates:
        yield _indented(_candidates(judged, explanation.preemption))
    if explanation.fit_error_full:
        yield _indented(Text(explanation.fit_error_full, style=FAINT))


# The verdict


def _in_short(explanation: Explanation) -> tuple[Text, str]:
    if explanation.error:
        return Text(NOWHERE, style=BAD), explanation.error
    if explanation.chosen:
        return Text(explanation.chosen, style=GOOD), _why_there(explanation)
    preemption = explanation.preemption
    if preemption is not None and preemption.nominated_node:
        return Text(NOWHERE, style=HOPE), _after_eviction(preemption)
    return Text(NOWHERE, style=BAD), explanation.fit_error.partition("available: ")[
        2
    ] or explanation.fit_error


def _why_there(explanation: Explanation) -> str:
    feasible, equals = len(explanation.feasible), len(explanation.best) - 1
    if explanation.chosen not in explanation.best:
        return "nominated to it before, and it fits"
    if feasible == 1:
        return "the only node that fits"
    return f"best of {feasible:,} that fit" + (f", like {_number(equals, 'other')}" if equals else "")


def _after_eviction(preemption: Preemption) -> str:
    node = preemption.nominated_node
    candidate = preemption.candidates.get(node)
    victims = candidate.victims if candidate is not None else ()
    return f"could have {node} by evicting {_listed(victims)}" if victims else f"nominated to {node}"


def _verdict(explanation: Explanation) -> Text:
    pod = (explanation.pod, STRONG)
    if explanation.error:
        return Text.assemble(pod, (" cannot be placed: ", BAD), explanation.error)
    fit = len(explanation.feasible)
    count = f" · {fit:,} of {_number(len(explanation.nodes), 'node')} fit{'s' if fit == 1 else ''}"
    if explanation.chosen:
        return Text.assemble(pod, " goes to ", (explanation.chosen, f"{STRONG} {GOOD}"), (count, FAINT))
    return Text.assemble(pod, " ", ("waits", f"{STRONG} {BAD}"), _hope(explanation), (count, FAINT))


def _hope(explanation: Explanation) -> str:
    preemption = explanation.preemption
    if preemption is None:
        return ""
    if preemption.nominated_node:
        return f"; it {_after_eviction(preemption)}"
    return "; evicting would not help" if preemption.eligible else "; it may not evict others"


# How the nodes that fit compare


def _scores(explanation: Explanation) -> Table:
    """The chosen node with its points, and the next ones with what they have less, plugin by plugin."""
    table = _table("node", ">score", "weighted, by plugin")
    chosen, total = explanation.chosen, explanation.total
    table.add_row(Text(chosen, style=GOOD), f"{total[chosen]:,}", Text(_made_of(explanation)))
    others = [name for name in explanation.feasible if name != chosen]
    equals = sum(total[name] == total[chosen] for name in others)
    if equals > MOST_EQUALS:
        others = [name for name in others if total[name] != total[chosen]]
        text = f"{equals:,} nodes equal, but later in the order of nodes"
        table.add_row("…", f"{total[chosen]:,}", Text(text, style=FAINT))
    others.sort(key=lambda name: -total[name])
    for name in others[:MOST_RUNNERS_UP]:
        table.add_row(Text(name), f"{total[name]:,}", Text(_compared(explanation, name)))
    left = others[MOST_RUNNERS_UP:]
    if left:
        more = f"{len(left):,} more, down to {left[-1]}"
        table.add_row("…", f"{total[left[-1]]:,}", Text(more, style=FAINT))
    return table


def _made_of(explanation: Explanation) -> str:
    points = [(name, s.weight * s.normalized[explanation.chosen]) for name, s in explanation.scores.items()]
    points.sort(key=lambda entry: -entry[1])
    return ", ".join(f"{name} {score}" for name, score in points if score)


def _compared(explanation: Explanation, name: str) -> str:
    """By which plugins a node loses against the chosen one, and by which it would win."""
    chosen = explanation.chosen
    differences = [
        (plugin, scores.weight * (scores.normalized[name] - scores.normalized[chosen]))
        for plugin, scores in explanation.scores.items()
    ]
    differences.sort(key=lambda entry: entry[1])
    parts = ", ".join(f"{plugin} {_signed(score)}" for plugin, score in differences if score)
    if explanation.total[name] != explanation.total[chosen]:
        return parts
    equal = "equal, but later in the order of nodes"
    return f"{equal} ({parts})" if parts else equal


# Why the others do not fit


def _refusals(judged: Judged, groups: Sequence[Refusal], names_width: int) -> Table:
    waits = not judged.explanation.chosen
    table = _table(">nodes", "", "refused by", "because", *(["evicting helps?"] if waits else []))
    table.columns[1].style = FAINT
    for group in groups[:MOST_REFUSALS]:
        because = group.status.message
        more = detail(judged.cluster, judged.pod, group)
        row = [
            Text(f"{len(group.nodes):,}"),
            Text(_some_names(group.nodes, names_width)),
            Text(group.status.plugin or NO_PLUGIN),
            Text(f"{because} ({more})" if more else because),
        ]
        if waits:
            row.append(_would_evicting_help(judged.explanation.preemption, group))
        table.add_row(*row)
    left = groups[MOST_REFUSALS:]
    if left:
        count = sum(len(group.nodes) for group in left)
        table.add_row(f"{count:,}", "", "…", Text(f"{_number(len(left), 'rarer reason')}", style=FAINT))
    return table


def _would_evicting_help(preemption: Preemption | None, group: Refusal) -> Text:
    if preemption is None or group.status.code is not Code.UNSCHEDULABLE:
        return Text("no")
    if not preemption.eligible:
        return Text("not asked")
    helped = sum(name in preemption.candidates for name in group.nodes)
    if not helped:
        return Text("no")
    return Text("yes" if helped == len(group.nodes) else f"on {helped:,} of them", style=HOPE)


def _candidates(judged: Judged, preemption: Preemption) -> Table:
    """Where evicting would help, the node where least is lost first."""
    table = _table("node", f"evict, of priority below {judged.pod.priority:,}", "")
    chosen = preemption.nominated_node
    names = sorted(preemption.candidates, key=lambda name: name != chosen)
    for name in names[:MOST_CANDIDATES]:
        candidate = preemption.candidates[name]
        table.add_row(
            Text(name, style=HOPE if name == chosen else ""),
            Text(_with_priorities(judged.cluster, name, candidate)),
            Text(_breaks(candidate) or ("least is lost here" if name == chosen else ""), style=FAINT),
        )
    left = [preemption.candidates[name] for name in names[MOST_CANDIDATES:]]
    if left:
        breaking = sum(candidate.pdb_violations > 0 for candidate in left)
        remark = f", {breaking:,} of them only against a disruption budget" if breaking else ""
        table.add_row("…", Text(f"{_number(len(left), 'more node')}{remark}", style=FAINT))
    return table


def _breaks(candidate: Candidate) -> str:
    times = candidate.pdb_violations
    return f"against a disruption budget for {_number(times, 'pod')}" if times else ""


def _with_priorities(cluster: Cluster, node: str, candidate: Candidate) -> str:
    priorities = {pod.key: pod.priority for pod in cluster.pods_on(cluster.nodes.row_of[node])}
    shown = [f"{victim} ({priorities[victim]:,})" for victim in candidate.victims[:MOST_VICTIMS]]
    left = len(candidate.victims) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


# Words and shapes


def _table(*headings: str) -> Table:
    """A table without lines; a heading that begins with ">" has its column on the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for heading in headings:
        justify: JustifyMethod = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, overflow="fold")
    return table


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (1, 0, 0, 2))


def _print(console: Console, part: RenderableType) -> None:
    """Prints, into files without the spaces with which rich fills up its lines."""
    if console.is_terminal:
        console.print(part)
        return
    with console.capture() as captured:
        console.print(part)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def _some_names(names: Sequence[str], most: int) -> str:
    """As many names as fit, and how many more there are."""
    names = sorted(names)
    if len(names) > 1 and len(names[0]) > most:
        return ""
    shown, width = 1, len(names[0])
    while shown < len(names) and width + 1 + len(names[shown]) <= most:
        width += 1 + len(names[shown])
        shown += 1
    left = len(names) - shown
    return " ".join(names[:shown]) + (f" +{left:,}" if left else "")


def _listed(names: Sequence[str]) -> str:
    if len(names) > 2:
        return f"{names[0]} and {len(names) - 1:,} more"
    return " and ".join(names)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _signed(number: int) -> str:
    return f"−{-number:,}" if number < 0 else f"+{number:,}"
