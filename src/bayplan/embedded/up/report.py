"""The results of scheduling: the latest attempt of each pod, and the pods grouped by result.

The scheduler reports its attempts to `Outcomes`. A pod counts as bound only after the binding: Permit may
make it wait or reject it after the decision, and the binding may fail. `Report` combines this with the pods
of the API server. Identical pods with the same outcome share a row, so that a Deployment with 100 pods takes
one line.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec
from rich.text import Text

from bayplan.api.pod import Pod
from bayplan.printable import printable
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.failure import waits_for_quota
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.state.groups import group_key

MAX_OUTCOMES: Final = 20_000
"""Maximum number of pods whose latest outcome is kept; then the oldest ones are dropped."""
MAX_NAMED: Final = 3
"""Victims of a preemption that are named."""


class State(Enum):
    """The state of a pod; the value is the title of its section."""

    BOUND = "Bound"
    WAITING = "Waiting at Permit"
    REJECTED = "Rejected after a node was found"
    ERROR = "Scheduling failed with an error"
    UNSCHEDULABLE = "Unschedulable"
    PENDING = "Not attempted yet"

    @property
    def label(self) -> str:
        """The state in a plain line."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The latest attempt for a pod. `node` is where it is bound, or where room is reserved for it."""

    pod: str
    uid: str
    state: State
    node: str
    reason: str
    time: float
    """Seconds since the epoch."""
    failures: int = 0
    """Attempts for this pod that failed, up to now."""
    group: str = ""
    """The pod group that it is a member of, as namespace/name."""


class Outcomes:
    """The latest outcome of each pod. `on_change` is called with every new one."""

    def __init__(
        self, on_change: Callable[[Outcome], None] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.scheduled = 0
        self.failed = 0
        """Attempts."""
        self.version = 0
        """Changes with every outcome."""
        self._on_change = on_change
        self._clock = clock
        self._latest: dict[str, Outcome] = {}
        self._binding: dict[str, str] = {}
        """By uid, why the node was chosen: of pods that are not bound yet."""

    def get(self, uid: str) -> Outcome | None:
        return self._latest.get(uid)

    def is_binding_for_the_first_time(self) -> bool:
        """Whether a pod without failed attempts is being bound, or waits at Permit."""
        return any(uid not in self._latest or not self._latest[uid].failures for uid in self._binding)

    # The scheduler calls these.

    def decided(self, decision: Decision) -> None:
        pod, found = decision.pod, decision.found
        if found is not None:
            self._binding[pod.uid] = why_there(decision)
            return
        state = State.UNSCHEDULABLE if decision.status.is_rejection else State.ERROR
        self._failed(pod, state, "", f"{_preemption(decision)}{decision.message}")

    def progressed(self, progress: BindingProgress) -> None:
        pod, node, plugins = progress.pod, progress.node_name, ", ".join(filter(None, progress.plugins))
        match progress.step:
            case BindingStep.BOUND:
                self.scheduled += 1
                self._set(pod, State.BOUND, node, self._binding.pop(pod.uid, ""))
            case BindingStep.WAITING:
                self._set(pod, State.WAITING, node, f"held by {plugins}")
            case BindingStep.REJECTED:
                by = f"{progress.point} plugin {plugins}" if plugins else progress.point
                self._failed(pod, State.REJECTED, node, f"{by}: {progress.reason}")
            case BindingStep.FAILED:
                reason = progress.reason or f"no plugin at {progress.point} bound it"
                self._failed(pod, State.ERROR, node, reason)

    def _failed(self, pod: Pod, state: State, node: str, reason: str) -> None:
        self.failed += 1
        self._binding.pop(pod.uid, None)
        self._set(pod, state, node, reason, failures=1)

    def _set(self, pod: Pod, state: State, node: str, reason: str, *, failures: int = 0) -> None:
        self.version += 1
        before = self._latest.pop(pod.uid, None)
        if before is not None:
            failures += before.failures
        elif len(self._latest) >= MAX_OUTCOMES:
            del self._latest[next(iter(self._latest))]
        outcome = Outcome(pod.key, pod.uid, state, node, reason, self._clock(), failures, group_name(pod))
        self._latest[pod.uid] = outcome
        if self._on_change is not None:
            self._on_change(outcome)


def group_name(pod: Pod) -> str:
    """The pod group of a member as namespace/name; empty for a single pod."""
    key = group_key(pod)
    return "" if key is None else str(key)


def why_there(decision: Decision) -> str:
    """Why the node was chosen, in a few words."""
    pod, found = decision.pod, decision.found
    assert found is not None
    if found.evaluated == 1 and pod.status.nominated_node_name == found.node_name:
        return "scheduled after preemption"
    if found.feasible == 1:
        return "the only feasible node"
    return f"best of {found.feasible:,} feasible nodes"


def _preemption(decision: Decision) -> str:
    after = decision.post_filter
    if after is None or after.eviction is None:
        return ""
    names = [victim.key for victim in after.eviction.victims]
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"preempting {', '.join(names[:MAX_NAMED])}{more} on {after.eviction.node_name}. "


MAX_NODES_NAMED: Final = 3
"""Maximum number of nodes in a row."""
MAX_COLUMN: Final = 48
"""Width of a column in characters; a longer text is not cut, and shifts the rest of its line."""
INDENT: Final = "  "

_STYLES: Final = {
    State.BOUND: "green",
    State.WAITING: "cyan",
    State.REJECTED: "yellow",
    State.ERROR: "red",
    State.UNSCHEDULABLE: "yellow",
    State.PENDING: "dim",
}
_GATED: Final = "scheduling gates: {gates}"
_OTHER_SCHEDULER: Final = "schedulerName is {name}"


@dataclass(frozen=True, slots=True)
class Row:
    """A pod, or identical pods with the same outcome."""

    time: float
    """Of the latest of them."""
    pods: str
    nodes: str
    reason: str


@dataclass(frozen=True, slots=True)
class Section:
    """All pods in one state, the latest first."""

    state: State
    pods: int
    rows: Sequence[Row]

    @property
    def title(self) -> Text:
        pods = f"{self.pods:,} pod{'' if self.pods == 1 else 's'}"
        return Text.assemble((self.state.value, f"bold {_STYLES[self.state]}"), f": {pods}")


class Report:
    """Groups pods into sections. It caches the group key of pods, so that each is encoded only once."""

    def __init__(
        self,
        outcomes: Outcomes,
        schedulers: Iterable[str] = (),
        why_incomplete: Callable[[Pod], str] = lambda pod: "",
    ) -> None:
        """`why_incomplete` returns what the group of a member waits for before it can be tried."""
        self._why_incomplete = why_incomplete
        self._outcomes = outcomes
        self._schedulers = frozenset(schedulers)
        self._group_keys: dict[str, object] = {}

    def sections(self, pods: Iterable[Pod]) -> list[Section]:
        """One section for each state that some pod has, in the order of `State`."""
        groups: dict[tuple[object, ...], list[Outcome]] = {}
        group_keys: dict[str, object] = {}
        for pod in pods:
            if pod.is_terminating or pod.is_finished:
                continue
            group_key = group_keys[pod.uid] = self._group_keys.get(pod.uid) or _group_key(pod)
            outcome = self._outcome(pod)
            # The reasons of bound pods differ although nothing else does: the best of 9 nodes, then of 8. The
            # reasons of a group's members belong together.
            reason = "" if outcome.state is State.BOUND or outcome.group else outcome.reason
            groups.setdefault((outcome.state, pod.namespace, group_key, reason), []).append(outcome)
        self._group_keys = group_keys
        sections = []
        for state in State:
            found = [group for key, group in groups.items() if key[0] is state]
            if found:
                rows = sorted(map(row_of, found), key=lambda row: (-row.time, row.pods))
                sections.append(Section(state, sum(map(len, found)), rows))
        return sections

    def _outcome(self, pod: Pod) -> Outcome:
        known = self._outcomes.get(pod.uid)
        if pod.spec.node_name:
            if known is not None and known.state is State.BOUND:
                return known
            return Outcome(
                pod.key, pod.uid, State.BOUND, pod.spec.node_name, "", _bound_at(pod), group=group_name(pod)
            )
        if known is not None and known.state is not State.BOUND and not _quota_message(pod):
            return known
        created = pod.metadata.creation_timestamp
        time = created.timestamp() if created else 0
        return Outcome(
            pod.key, pod.uid, State.PENDING, "", self._why_pending(pod), time, group=group_name(pod)
        )

    def _why_pending(self, pod: Pod) -> str:
        if pod.spec.scheduling_gates:
            return _GATED.format(gates=", ".join(gate.name for gate in pod.spec.scheduling_gates))
        if self._schedulers and pod.spec.scheduler_name not in self._schedulers:
            return _OTHER_SCHEDULER.format(name=pod.spec.scheduler_name)
        return self._why_incomplete(pod) or _quota_message(pod)


def _quota_message(pod: Pod) -> str:
    """Which quota a pod waits for in its capacity queue; empty if for none."""
    return next((one.message for one in pod.status.conditions if waits_for_quota(one)), "")


def lines(section: Section) -> list[Text]:
    """The rows of a section, each on one line however long its reason is."""
    pods = min(max((len(row.pods) for row in section.rows), default=0), MAX_COLUMN)
    nodes = min(max((len(row.nodes) for row in section.rows), default=0), MAX_COLUMN)
    style = _STYLES[section.state]
    return [
        Text.assemble(
            INDENT,
            (clock(row.time), "dim"),
            f"  {row.pods:<{pods}}  ",
            *([(f"{row.nodes:<{nodes}}  ", style)] if nodes else []),
            row.reason,
        )
        for row in section.rows
    ]


def clock(seconds: float) -> str:
    """A time of day; empty if it is unknown."""
    return time.strftime("%H:%M:%S", time.localtime(seconds)) if seconds else " " * 8


def _group_key(pod: Pod) -> object:
    """Equal for pods that share a row: those of one group, of one controller, or with the same spec."""
    if group := group_name(pod):
        return group
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner.uid
    return hash(msgspec.json.encode(msgspec.structs.replace(pod.spec, node_name="")))


def row_of(outcomes: Sequence[Outcome]) -> Row:
    """One row for pods of the same state: identical ones, or the members of a group."""
    latest = max(outcomes, key=lambda outcome: outcome.time)
    nodes = list(dict.fromkeys(outcome.node for outcome in outcomes if outcome.node))
    left = f" +{len(nodes) - MAX_NODES_NAMED:,}" if len(nodes) > MAX_NODES_NAMED else ""
    named = " ".join(sorted(nodes)[:MAX_NODES_NAMED]) + left
    count = len(outcomes)
    if latest.group:
        pods, reason = f"group {latest.group}: {count:,} pod{'' if count == 1 else 's'}", _shared(outcomes)
    else:
        pods = min(outcome.pod for outcome in outcomes) + (f" and {count - 1:,} more" if count > 1 else "")
        same = all(outcome.reason == latest.reason for outcome in outcomes)
        reason = latest.reason if same else f"the last one: {latest.reason}"
    return Row(latest.time, printable(pods), printable(named), printable(reason))


def _shared(members: Sequence[Outcome]) -> str:
    """The reasons of a group's members, each once. A reason that is part of another counts as that one: the
    members that were not tried have the beginning of the group's."""
    if members[0].state is State.BOUND:
        return ""
    reasons = Counter(member.reason for member in members if member.reason)
    told = [one for one in reasons if not any(one in other for other in reasons if other != one)]
    if len(told) < 2:
        return "".join(told)
    counts = Counter[str]()
    for reason, count in reasons.items():
        counts[next(one for one in told if reason in one)] += count
    return "; ".join(f"{count:,} of them: {reason}" for reason, count in counts.items())


def _bound_at(pod: Pod) -> float:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.last_transition_time is not None:
            return condition.last_transition_time.timestamp()
    return 0.0
