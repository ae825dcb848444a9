"""Answers about pods and nodes as tables for a terminal, or plain text in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from bayplan.answers.explain.group_answer import GroupAnswer
from bayplan.answers.explain.questions import NodeAnswer, PodAnswer, PodState, ResourceUse
from bayplan.answers.explain.remedies import amount_text, pod_state
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
from bayplan.answers.sources.groups import ASSUMED_TREES
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.warnings import Warning

MAX_PODS: Final = 15
MAX_IDENTICAL: Final = 4
ALONE: Final = "On its own, without the members that are tried before it:"


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
    if answer.group is not None:
        yield from _member(answer.group, pod.key)
        if answer.state is PodState.SKIPPED or answer.evaluated is None:
            yield indented(_queue_line(queue))
            return
        yield Text(ALONE, style=FAINT)
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


def _member(group: GroupAnswer, pod: str) -> Iterator[RenderableType]:
    """What holds for a member because of its group."""
    member = group.member(pod)
    waits = "is scheduled with" if group.is_schedulable else "waits with"
    yield Text.assemble((pod, STRONG), f" {waits} its group ", (str(group.key), STRONG), f" · {group.policy}")
    yield Text(group.verdict, style="" if group.is_schedulable else BAD)
    if group.last_error:
        yield Text(group.last_error, style=BAD)
    for remedy in group.remedies:
        yield Text(f"  · {remedy}")
    if member is not None and (member.node or member.reason):
        yield indented(Text(f"this member: {f'→ {member.node}' if member.node else member.reason}"))
    yield indented(Text(f"all members: bayplan explain group {group.key}", style=FAINT))


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


def print_group(console: Console, loaded: LoadedCluster, answer: GroupAnswer, attempt: str = "") -> None:
    """Everything about one pod group. Members with the same result share a line.

    `attempt`: when it is tried next; empty if that is unknown.
    """
    print_part(console, _heading(loaded))
    print_group_parts(console, answer, attempt)
    _print_warnings(console, loaded.warnings)


def print_group_parts(console: Console, answer: GroupAnswer, attempt: str = "") -> None:
    """The same without what concerns the whole cluster."""
    print_part(console, Text())
    scheduled, waiting = len(answer.scheduled), len(answer.waiting)
    counts = f"{scheduled} scheduled, {waiting} waiting"
    print_part(console, Text.assemble((str(answer.key), STRONG), f" · {answer.policy} · {counts}"))
    print_part(console, Text(answer.verdict, style="" if answer.is_schedulable else BAD))
    if answer.last_error:
        print_part(console, Text(answer.last_error, style=BAD))
    for remedy in answer.remedies:
        print_part(console, Text(f"  · {remedy}"))
    if attempt:
        print_part(console, Text(f"queue: {attempt}", style=FAINT))
    if answer.parts:
        parts = make_table("PodGroup", "policy", ">scheduled", ">waiting", "result")
        for part in answer.parts:
            parts.add_row(part.name, part.policy, str(part.scheduled), str(part.waiting), part.result)
        print_part(console, indented(parts))
    if answer.domains and answer.group is not None:
        domains = make_table(answer.group.topology_key, ">nodes", ">members that fit", "result")
        for domain in answer.domains[:MAX_DOMAINS]:
            style = STRONG if domain.is_best else ""
            fit = f"{domain.members} of {waiting}"
            domains.add_row(domain.value, str(domain.nodes), fit, domain.result, style=style)
        left = len(answer.domains) - MAX_DOMAINS
        print_part(console, indented(domains))
        if left > 0:
            print_part(console, indented(Text(f"… and {left} more", style=FAINT)))
    shared: dict[str, list[str]] = {}
    for one in answer.waiting:
        text = f"→ {one.node}" if one.node else one.reason or "waits for the others"
        shared.setdefault(text, []).append(one.pod)
    table = make_table(">members", "waiting", "result")
    for text, pods in shared.items():
        width = max(NAMES_WIDTH, len(min(pods)))
        table.add_row(str(len(pods)), some_names(pods, width), text)
    if shared:
        print_part(console, indented(table))
    if answer.victims:
        names = some_names(answer.victims, 2 * NAMES_WIDTH)
        print_part(console, indented(Text(f"would be evicted: {names}")))
    if answer.scheduled:
        text = ", ".join(f"{pod} on {node}" for pod, node in answer.scheduled[:MAX_SCHEDULED])
        more = f" and {scheduled - MAX_SCHEDULED} more" if scheduled > MAX_SCHEDULED else ""
        print_part(console, indented(Text(f"scheduled: {text}{more}")))
    print_part(console, indented(Text(answer.assumption, style=FAINT)))
    if answer.key.is_composite:
        print_part(console, indented(Text(ASSUMED_TREES, style=FAINT)))


MAX_DOMAINS: Final = 20
"""Domains of a topology constraint that are shown."""
MAX_SCHEDULED: Final = 10
"""Scheduled members that are named."""


def print_node(console: Console, loaded: LoadedCluster, answer: NodeAnswer) -> None:
    """Everything about one node."""
    print_part(console, _heading(loaded))
    print_part(console, Text())
    node = answer.node
    state = Text.assemble((node.name, STRONG), f" has {number(len(answer.pods), 'pod')}")
    if node.spec.unschedulable:
        state.append(", is unschedulable", BAD)
    if node.spec.taints:
        state.append(f", has taints {', '.join(map(str, node.spec.taints))}")
    print_part(console, state)
    print_part(console, indented(_resources(answer)))
    if answer.pods or answer.nominated:
        print_part(console, indented(_pods(answer)))
    if answer.waiting:
        print_part(console, indented(_waiting(answer)))
    elif not answer.skipped:
        print_part(console, indented(Text("no pod is pending", style=FAINT)))
    if answer.not_evaluated:
        text = f"… and {number(answer.not_evaluated, 'more pending pod')}, not evaluated"
        print_part(console, indented(Text(text, style=FAINT)))
    for reason, count in answer.skipped:
        text = f"{number(count, 'pending pod')} not evaluated: {reason}"
        print_part(console, indented(Text(text, style=FAINT)))
    _print_warnings(console, (*loaded.warnings, *answer.warnings))


def _resources(answer: NodeAnswer) -> RenderableType:
    """The resources; what is nominated or will become free only if there is any."""
    extra = {
        "nominated": [one.nominated for one in answer.resources],
        "will be free": [one.releasing for one in answer.resources],
    }
    shown = {heading: amounts for heading, amounts in extra.items() if any(amounts)}
    table = make_table("resource", ">allocatable", ">requested", ">free", *(f">{one}" for one in shown))
    for place, one in enumerate(answer.resources):
        amounts = (one.allocatable, one.requested, *(amounts[place] for amounts in shown.values()))
        texts = [amount_text(one.resource, amount) for amount in amounts]
        table.add_row(one.resource, *texts[:2], free_text(one), *texts[2:])
    return table


def free_text(one: ResourceUse) -> str:
    """What is free; if more is requested than allocatable, how much more."""
    if one.free >= 0:
        return amount_text(one.resource, one.free)
    return f"0 ({amount_text(one.resource, -one.free)} overcommitted)"


def _pods(answer: NodeAnswer) -> RenderableType:
    states = [(pod, pod_state(pod)) for pod in answer.pods]
    states += [(pod, pod_state(pod, nominated=True)) for pod in answer.nominated]
    shown = states[:MAX_PODS]
    table = make_table("pod", ">priority", *([""] if any(state for _, state in states) else []))
    for pod, state in shown:
        table.add_row(Text(pod.key), f"{pod.priority:,}", *([Text(state)] if state else []))
    left = states[MAX_PODS:]
    if left:
        more = f"… and {len(left):,} more"
        marked = sum(bool(state) for _, state in left)
        remark = [Text(f"{marked:,} of them not running", style=FAINT)] if marked else []
        table.add_row(Text(more, style=FAINT), "", *remark)
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
