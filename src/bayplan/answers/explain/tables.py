"""Explanations as tables for a terminal.

    heading                      the cluster, and one line per pod with its result
    a section for each pod       the result; scores of the feasible nodes; why the other nodes were rejected,
                                 and what preemption would do

A cluster may have thousands of nodes: nodes are counted and grouped, and only a few are named. The tables say
what they leave out, and `--output json` contains everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bayplan.answers.explain.details import detail
from bayplan.answers.explain.devices import MissingDevices, missing_devices
from bayplan.answers.explain.explanation import Candidate, Explanation, Preemption, evicts_by_priority
from bayplan.answers.explain.permit import PermitStatus
from bayplan.answers.explain.rejections import Rejection, rejections
from bayplan.answers.sources.warnings import Warning
from bayplan.api.pod import Pod
from bayplan.framework.status import Code
from bayplan.printable import printable
from bayplan.runtime.framework import Framework
from bayplan.state.cluster import Cluster

MAX_RUNNERS_UP: Final = 4
MAX_EQUALS: Final = 2
"""Nodes with the same score as the chosen one that are named; more of them are only counted."""
MAX_REJECTIONS: Final = 8
MAX_CANDIDATES: Final = 4
MAX_VICTIMS: Final = 6
WIDE: Final = 100
"""Terminals with this many columns have room for several names of nodes that share a reason."""
NAMES_WIDTH: Final = 24
NAMES_WIDTH_NARROW: Final = 8
"""Characters for those names; if the first name is longer, none is shown."""

NO_PLUGIN: Final = "PreFilter"
"""Shown for nodes that are not in the PreFilter result: their status has no plugin."""

NOWHERE: Final = "–"
GOOD, BAD, HOPE, FAINT, STRONG = "green", "red", "yellow", "dim", "bold"


@dataclass(frozen=True, slots=True)
class EvaluatedPod:
    """A pod, the profile that evaluated it on a cluster, and the result."""

    pod: Pod
    framework: Framework
    explanation: Explanation
    warnings: Sequence[Warning] = ()

    @property
    def cluster(self) -> Cluster:
        return self.framework.cluster


def print_tables(
    console: Console,
    heading: str,
    evaluated: Sequence[EvaluatedPod],
    details: int,
    warnings: Sequence[Warning] = (),
) -> None:
    """The heading, one line per pod if there are several, and sections for the first `details` pods."""
    console.print(Text(heading, style=STRONG), soft_wrap=True)
    for warning in warnings:
        print_part(console, Text(f"warning: {warning.message}", style=HOPE))
    if len(evaluated) > 1:
        print_part(console, indented(summary(evaluated)))
    for one in evaluated[:details]:
        print_part(console, Text())
        for part in section(one, NAMES_WIDTH if console.width >= WIDE else NAMES_WIDTH_NARROW):
            print_part(console, part)
    left = len(evaluated) - details
    if left > 0:
        print_part(console, Text())
        more = f"… and {left:,} more pods; --pod NAMESPACE/NAME shows one in full"
        print_part(console, Text(more, style=FAINT))


def summary(evaluated: Iterable[EvaluatedPod]) -> Table:
    """One line per pod: its node and the reason, or why it is unschedulable."""
    table = make_table("pod", "node", "reason")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for one in evaluated:
        node, reason = _in_short(one.explanation)
        table.add_row(Text(one.explanation.pod), node, Text(reason, no_wrap=True, overflow="ellipsis"))
    return table


def section(
    evaluated: EvaluatedPod,
    names_width: int = NAMES_WIDTH,
    *,
    with_result: bool = True,
    current: str = "",
) -> Iterator[RenderableType]:
    """Everything about one pod. `current` is the node that it has already: it is never left out."""
    explanation = evaluated.explanation
    if with_result:
        yield _result(explanation)
    for warning in evaluated.warnings:
        yield Text(f"warning: {warning.message}", style=HOPE)
    if len(explanation.feasible) > 1 and explanation.chosen:  # no node is chosen if scoring failed
        yield indented(_scores(explanation, current))
    groups = rejections(explanation)
    if groups:
        yield indented(_rejections(evaluated, groups, names_width))
    missing = missing_devices(evaluated.cluster, evaluated.pod, explanation)
    if missing:
        yield indented(_missing_devices(missing, names_width))
    if explanation.preemption is not None and explanation.preemption.candidates:
        yield indented(_candidates(evaluated, explanation.preemption))
    if explanation.fit_error_full:
        yield indented(Text(explanation.fit_error_full, style=FAINT))


# The result in one line


def _in_short(explanation: Explanation) -> tuple[Text, str]:
    if explanation.error:
        return Text(NOWHERE, style=BAD), explanation.error
    if explanation.permit is not None:
        return Text(NOWHERE, style=HOPE), f"{_held(explanation)}: {explanation.permit.message}"
    if explanation.chosen:
        return Text(explanation.chosen, style=GOOD), _why_chosen(explanation)
    preemption = explanation.preemption
    if preemption is not None and preemption.nominated_node:
        return Text(NOWHERE, style=HOPE), _with_preemption(preemption)
    return Text(NOWHERE, style=BAD), explanation.fit_error.partition("available: ")[
        2
    ] or explanation.fit_error


def _why_chosen(explanation: Explanation) -> str:
    feasible, equals = len(explanation.feasible), len(explanation.best) - 1
    if explanation.chosen not in explanation.best:
        return "the pod's nominated node, which fits"
    if feasible == 1:
        return "the only feasible node"
    tied = f", tied with {number(equals, 'other')}" if equals else ""
    return f"best of {feasible:,} feasible nodes{tied}"


def _with_preemption(preemption: Preemption) -> str:
    node = preemption.nominated_node
    candidate = preemption.candidates.get(node)
    victims = candidate.victims if candidate is not None else ()
    return f"would preempt {_listed(victims)} on {node}" if victims else f"nominated to {node}"


def _result(explanation: Explanation) -> Text:
    pod = (explanation.pod, STRONG)
    if explanation.error:
        return Text.assemble(pod, (" cannot be scheduled: ", BAD), explanation.error)
    fit = len(explanation.feasible)
    count = f" · {fit:,} of {number(len(explanation.nodes), 'node')} fit{'s' if fit == 1 else ''}"
    if explanation.permit is not None:
        held = (_held(explanation), f"{STRONG} {HOPE}")
        return Text.assemble(pod, " ", held, f": {explanation.permit.message}", (count, FAINT))
    if explanation.chosen:
        return Text.assemble(pod, " goes to ", (explanation.chosen, f"{STRONG} {GOOD}"), (count, FAINT))
    result = ("unschedulable", f"{STRONG} {BAD}")
    return Text.assemble(pod, " is ", result, _preemption_in_short(explanation), (count, FAINT))


def _held(explanation: Explanation) -> str:
    """The effect of Permit on a pod for which a node was found: the pod is not bound."""
    permit, node = explanation.permit, explanation.chosen
    assert permit is not None
    match permit.status:
        case PermitStatus.WAIT:
            return f"would be held at Permit by {permit.plugin} (reserved {node})"
        case PermitStatus.REJECTED:
            return f"would be rejected at Permit by {permit.plugin} (on {node})"
        case PermitStatus.ERROR:
            return f"fits on {node}; what {permit.plugin} does at Permit is unknown"


def _preemption_in_short(explanation: Explanation) -> str:
    preemption = explanation.preemption
    if preemption is None:
        return ""
    if preemption.nominated_node:
        return f"; {_with_preemption(preemption)}"
    return "; preemption would not help" if preemption.eligible else "; not eligible for preemption"


# Scores of the feasible nodes


def _scores(explanation: Explanation, current: str = "") -> Table:
    """The chosen node with its scores, and the next ones with the difference from it, plugin by plugin."""
    table = make_table("node", ">score", "weighted, by plugin")
    chosen, total = explanation.chosen, explanation.total
    table.add_row(Text(chosen, style=GOOD), f"{total[chosen]:,}", Text(_made_of(explanation)))
    others = [name for name in explanation.feasible if name != chosen]
    equals = sum(total[name] == total[chosen] for name in others)
    if equals > MAX_EQUALS:
        others = [name for name in others if total[name] != total[chosen]]
        text = f"{equals:,} nodes with the same score, later in the node order"
        table.add_row("…", f"{total[chosen]:,}", Text(text, style=FAINT))
    others.sort(key=lambda name: -total[name])
    shown = others[:MAX_RUNNERS_UP]
    if current in total and current != chosen and current not in shown:
        shown.append(current)
    for name in shown:
        label = f"{name} (now)" if name == current else name
        table.add_row(Text(label), f"{total[name]:,}", Text(_compared(explanation, name)))
    left = [name for name in others if name not in shown]
    if left:
        more = f"{len(left):,} more, down to {left[-1]}"
        table.add_row("…", f"{total[left[-1]]:,}", Text(more, style=FAINT))
    return table


def _made_of(explanation: Explanation) -> str:
    points = [(name, s.weight * s.normalized[explanation.chosen]) for name, s in explanation.scores.items()]
    points.sort(key=lambda entry: -entry[1])
    return ", ".join(f"{name} {score}" for name, score in points if score)


def _compared(explanation: Explanation, name: str) -> str:
    """The plugins that score a node lower or higher than the chosen one, with the differences."""
    chosen = explanation.chosen
    differences = [
        (plugin, scores.weight * (scores.normalized[name] - scores.normalized[chosen]))
        for plugin, scores in explanation.scores.items()
    ]
    differences.sort(key=lambda entry: entry[1])
    parts = ", ".join(f"{plugin} {_signed(score)}" for plugin, score in differences if score)
    if explanation.total[name] != explanation.total[chosen]:
        return parts
    equal = "same score, later in the node order"
    return f"{equal} ({parts})" if parts else equal


# Why the other nodes were rejected


def _rejections(evaluated: EvaluatedPod, groups: Sequence[Rejection], names_width: int) -> Table:
    unschedulable = not evaluated.explanation.chosen
    table = make_table(
        ">nodes", "", "rejected by", "reason", *(["preemption helps?"] if unschedulable else [])
    )
    table.columns[1].style = FAINT
    for group in groups[:MAX_REJECTIONS]:
        reason = group.status.message
        more = detail(evaluated.framework, evaluated.pod, group).text
        row = [
            Text(f"{len(group.nodes):,}"),
            Text(some_names(group.nodes, names_width)),
            Text(group.status.plugin or NO_PLUGIN),
            Text(f"{reason} ({more})" if more else reason),
        ]
        if unschedulable:
            row.append(_preemption_helps(evaluated.explanation.preemption, group))
        table.add_row(*row)
    left = groups[MAX_REJECTIONS:]
    if left:
        count = sum(len(group.nodes) for group in left)
        table.add_row(f"{count:,}", "", "…", Text(f"{number(len(left), 'rarer reason')}", style=FAINT))
    return table


def _missing_devices(missing: Sequence[MissingDevices], names_width: int) -> Table:
    """Which requests for devices cannot be met, on how many nodes, and why."""
    table = make_table(">nodes", "", "claim", "request", "devices")
    table.columns[1].style = FAINT
    for one in missing[:MAX_REJECTIONS]:
        names = some_names(one.nodes, names_width)
        table.add_row(*map(Text, (f"{len(one.nodes):,}", names, one.claim, one.request, one.reason)))
    left = len(missing) - MAX_REJECTIONS
    if left > 0:
        table.add_row("", "", "…", "", Text(number(left, "rarer reason"), style=FAINT))
    return table


def _preemption_helps(preemption: Preemption | None, group: Rejection) -> Text:
    if preemption is None or group.status.code is not Code.UNSCHEDULABLE:
        return Text("no")
    if not preemption.eligible:
        return Text("not eligible")
    helped = sum(name in preemption.candidates or name == preemption.nominated_node for name in group.nodes)
    if not helped:
        return Text("no victims")
    return Text("yes" if helped == len(group.nodes) else f"on {helped:,} of them", style=HOPE)


def _candidates(evaluated: EvaluatedPod, preemption: Preemption) -> Table:
    """The nodes on which preemption would help, in the order in which it prefers them."""
    rule = f" (priority below {evaluated.pod.priority:,})" if evicts_by_priority(evaluated.framework) else ""
    table = make_table("node", f"victims{rule}", "")
    chosen = preemption.nominated_node
    names = sorted(preemption.candidates, key=lambda name: name != chosen)
    for name in names[:MAX_CANDIDATES]:
        candidate = preemption.candidates[name]
        table.add_row(
            Text(name, style=HOPE if name == chosen else ""),
            Text(_with_priorities(candidate)),
            Text(_remark(candidate, is_chosen=name == chosen), style=FAINT),
        )
    left = [preemption.candidates[name] for name in names[MAX_CANDIDATES:]]
    if left:
        breaking = sum(candidate.pdb_violations > 0 for candidate in left)
        remark = f", {breaking:,} of them violating a PodDisruptionBudget" if breaking else ""
        table.add_row("…", Text(f"{number(len(left), 'more node')}{remark}", style=FAINT))
    return table


def _remark(candidate: Candidate, *, is_chosen: bool) -> str:
    violations = candidate.pdb_violations
    remarks = (
        "cheapest; would be chosen" if is_chosen else "",
        f"violates a PodDisruptionBudget for {number(violations, 'pod')}" if violations else "",
    )
    return "; ".join(filter(None, remarks))


def _with_priorities(candidate: Candidate) -> str:
    victims = zip(candidate.victims, candidate.priorities, strict=True)
    shown = [f"{victim} ({priority:,})" for victim, priority in islice(victims, MAX_VICTIMS)]
    left = len(candidate.victims) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


# Formatting


class _Table(Table):
    """A table whose cells are one line of text each before they are wrapped.

    Where a word would have to be broken, because the terminal is narrow or a name is long, each row is
    printed as lines of "heading: cell" instead.
    """

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(one_line, cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        longest = [
            max(cell_len(word) for cell in (column.header, *column.cells) for word in _words(cell))
            for column in self.columns
        ]
        if sum(longest) + 2 * (len(longest) - 1) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            indent = 0
            line = Text()
            for column, cell in zip(self.columns, cells, strict=True):
                text = cell if isinstance(cell, Text) else Text(str(cell or ""))
                if column.header and line:
                    yield Padding(line, (0, 0, 0, indent))
                    line, indent = Text(), 2
                if text:
                    line.append(f"{column.header}: " if column.header else "  ", style=FAINT)
                    line.append_text(text)
            yield Padding(line, (0, 0, 0, indent))


def _words(cell: RenderableType | None) -> list[str]:
    return str(cell or "").split() or [""]


def one_line(part: Any) -> Any:
    """A text or string without characters that act on a terminal; anything else as it is."""
    if isinstance(part, str):
        return printable(part)
    if not isinstance(part, Text) or printable(part.plain) == part.plain:
        return part
    made, pieces = part.blank_copy(), part.divide(range(1, len(part)))
    for piece in pieces:
        made.append_text(piece if printable(piece.plain) == piece.plain else Text(printable(piece.plain)))
    return made


def make_table(*headings: str) -> Table:
    """A table without lines; a heading that begins with ">" makes its column right-aligned."""
    table = _Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for heading in headings:
        justify: JustifyMethod = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, overflow="fold")
    return table


def indented(part: RenderableType) -> Padding:
    return Padding(one_line(part), (1, 0, 0, 2))


def print_part(console: Console, part: RenderableType) -> None:
    """Prints; in files without the spaces that rich adds at the end of lines."""
    if console.is_terminal:
        console.print(part)
        return
    with console.capture() as captured:
        console.print(part)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def some_names(names: Sequence[str], max_width: int) -> str:
    """As many names as fit, and the number of the others."""
    names = sorted(names)
    if len(names) > 1 and len(names[0]) > max_width:
        return ""
    shown, width = 1, len(names[0])
    while shown < len(names) and width + 1 + len(names[shown]) <= max_width:
        width += 1 + len(names[shown])
        shown += 1
    left = len(names) - shown
    return " ".join(names[:shown]) + (f" +{left:,}" if left else "")


def _listed(names: Sequence[str]) -> str:
    if len(names) > 2:
        return f"{names[0]} and {len(names) - 1:,} more"
    return " and ".join(names)


def number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _signed(number: int) -> str:
    return f"−{-number:,}" if number < 0 else f"+{number:,}"
