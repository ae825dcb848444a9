"""Answers about pods and nodes as tables for a terminal, or plain text in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from bayplan.answers.explain.details import amount_text
from bayplan.answers.explain.questions import NodeAnswer, PodAnswer, PodState
from bayplan.answers.explain.tables import (
    BAD,
    FAINT,
    GOOD,
    HOPE,
    NAMES_WIDTH,
    NAMES_WIDTH_NARROW,
    STRONG,
    WIDE,
    indented,
    make_table,
    number,
    print_part,
    section,
    some_names,
)
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.warnings import Warning

MAX_PODS: Final = 15
MAX_IDENTICAL: Final = 4


def print_pod(console: Console, loaded: LoadedCluster, answer: PodAnswer, queue: str) -> None:
    """Everything about one pod."""
    width = NAMES_WIDTH if console.width >= WIDE else NAMES_WIDTH_NARROW
    print_part(console, _heading(loaded))
    for part in _pod_parts(answer, width, queue):
        print_part(console, part)
    _print_warnings(console, (*loaded.warnings, *answer.warnings))


def _heading(loaded: LoadedCluster) -> Text:
    version = f", Kubernetes {loaded.server_version}" if loaded.server_version else ""
    text = (
        f"{loaded.name} ({loaded.origin.value}{version}): {number(loaded.node_count, 'node')}, "
        f"{number(loaded.assigned_count, 'assigned pod')}; {loaded.decided_as}"
    )
    return Text(text, style=FAINT)


def _pod_parts(answer: PodAnswer, width: int, queue: str) -> Iterator[RenderableType]:
    pod = answer.pod
    yield Text()
    if answer.state is PodState.SKIPPED or answer.evaluated is None:
        yield Text.assemble((pod.key, STRONG), f" is not evaluated: {answer.reason}")
        if queue:
            yield indented(_queue_line(queue))
        return
    if answer.state is PodState.ASSIGNED:
        yield _assigned(answer)
        yield from section(answer.evaluated, width, with_result=False, current=pod.spec.node_name)
        return
    yield from section(answer.evaluated, width)
    if answer.identical:
        names = some_names(answer.identical, 80)
        yield indented(Text(f"{number(len(answer.identical), 'identical pod')}: {names}"))
    if answer.events:
        table = make_table("requeued by", "events")
        for plugin, events in answer.events.items():
            table.add_row(Text(plugin), Text("; ".join(events)))
        yield indented(table)
    yield indented(_queue_line(queue))


def _queue_line(queue: str) -> Text:
    return Text(f"queue: {queue}", style=FAINT)


def _assigned(answer: PodAnswer) -> Text:
    """The node of a pod, and how the scheduler would decide now."""
    assert answer.explanation is not None
    explanation, node = answer.explanation, answer.pod.spec.node_name
    text = Text.assemble((answer.pod.key, STRONG), " is assigned to ", (node, f"{STRONG} {GOOD}"))
    if explanation.error:
        return text.append(f"; evaluating it now fails: {explanation.error}")
    if node in explanation.best:
        tied = len(explanation.best) - 1
        if len(explanation.feasible) == 1:
            return text.append(", the only feasible node")
        text.append(f", the best of {number(len(explanation.feasible), 'feasible node')}")
        return text.append(f", tied with {number(tied, 'other')}" if tied else "")
    if node in explanation.total:
        lost = explanation.total[explanation.chosen] - explanation.total[node]
        return text.append(f"; {explanation.chosen} would be chosen now, by {number(lost, 'point')}")
    status = explanation.node_status.get(node)
    if status is None:
        return text.append("; there is no Node object of this name", BAD)
    text.append(f"; {status.plugin or 'PreFilter'} would reject this node now: {status.message}", BAD)
    if explanation.chosen:
        text.append(f"; {explanation.chosen} would be chosen")
    return text


def print_node(console: Console, loaded: LoadedCluster, answer: NodeAnswer) -> None:
    """Everything about one node."""
    print_part(console, _heading(loaded))
    print_part(console, Text())
    node = answer.node
    state = Text.assemble((node.name, STRONG), f" has {number(len(answer.pods), 'pod')}")
    if node.spec.unschedulable:
        state.append(", is unschedulable", BAD)
    taints = [f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in node.spec.taints]
    if taints:
        state.append(f", has taints {', '.join(taints)}")
    print_part(console, state)
    print_part(console, indented(_resources(answer)))
    if answer.pods:
        print_part(console, indented(_pods(answer)))
    if answer.waiting:
        print_part(console, indented(_waiting(answer)))
    else:
        print_part(console, indented(Text("no pod is pending", style=FAINT)))
    if answer.not_evaluated:
        text = f"… and {number(answer.not_evaluated, 'more pending pod')}, not evaluated"
        print_part(console, indented(Text(text, style=FAINT)))
    _print_warnings(console, (*loaded.warnings, *answer.warnings))


def _resources(answer: NodeAnswer) -> RenderableType:
    table = make_table("resource", ">allocatable", ">requested", ">free")
    for one in answer.resources:
        amounts = (one.allocatable, one.requested, one.free)
        table.add_row(one.resource, *(amount_text(one.resource, amount) for amount in amounts))
    return table


def _pods(answer: NodeAnswer) -> RenderableType:
    table = make_table("pod", ">priority")
    for pod in answer.pods[:MAX_PODS]:
        table.add_row(Text(pod.key), f"{pod.priority:,}")
    left = len(answer.pods) - MAX_PODS
    if left > 0:
        table.add_row(Text(f"… and {left:,} more", style=FAINT), "")
    return table


def _waiting(answer: NodeAnswer) -> RenderableType:
    table = make_table("pending pods", "this node", "")
    for one in answer.waiting:
        names = one.pods[0] if len(one.pods) == 1 else f"{one.pods[0]} and {len(one.pods) - 1:,} identical"
        if one.error:
            table.add_row(Text(names), Text("unknown", style=BAD), Text(one.error))
        elif one.status is None:
            chosen = "would be chosen" if one.chosen == answer.node.name else f"{one.chosen} is better"
            held = chosen if one.chosen else "but Permit holds the pod"
            table.add_row(Text(names), Text("fits", style=GOOD), Text(held))
        else:
            detail = f" ({one.detail})" if one.detail else ""
            plugin = one.status.plugin or "PreFilter"
            table.add_row(Text(names), Text(f"rejected by {plugin}"), Text(one.status.message + detail))
    return table


def _print_warnings(console: Console, warnings: Sequence[Warning]) -> None:
    found = list(dict.fromkeys(warning.message for warning in warnings))
    if found:
        print_part(console, Text())
    for message in found:
        print_part(console, Text(f"warning: {message}", style=HOPE))
