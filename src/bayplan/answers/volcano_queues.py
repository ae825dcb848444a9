"""Answers about Volcano's queues, in Volcano's words: allocated, deserved, capability, share, reclaimable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf
from typing import Any

from bayplan.answers.capacity_queues import QueueQuestions, QueueRow, WaitingPod
from bayplan.answers.must_end import MAX_NAMED, MustEnd, what_must_end
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.pod import Pod
from bayplan.config import QueueDialect, QueuesConfiguration
from bayplan.preemption.units import pods_in
from bayplan.queues.amounts import Amounts, readable
from bayplan.queues.records import PodGroupOf
from bayplan.queues.tree import Blocking, Group, Queue
from bayplan.queues.volcano.accounts import Account, standing
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.objects import QueueLimit
from bayplan.queues.volcano.preemption import VictimChoice, asking_pod, is_entitled, not_entitled, why_not
from bayplan.queues.volcano.resources import Resources
from bayplan.scheduler.core import SchedulingCore


def ask_queues(
    loaded: LoadedCluster, settings: QueuesConfiguration, core: SchedulingCore | None = None
) -> QueueQuestions:
    """Questions about the queues of a configuration, in the words of its dialect.

    Raises:
        ConfigError: the configuration of the queues is invalid.
    """
    if settings.dialect is QueueDialect.VOLCANO:
        return VolcanoQuestions(loaded, settings, core)
    return QueueQuestions(loaded, settings, core)


def amounts_text(amounts: Resources) -> str:
    """Amounts in Kubernetes' units; infinite ones are left out."""
    return ", ".join(
        f"{kind} {readable('vcore' if kind == 'cpu' else kind, int(amount))}"
        for kind, amount in sorted(amounts.items())
        if not isinf(amount) and (amount or kind != "pods")
    )


def deserved_text(account: Account) -> str:
    """What a queue deserves, without what it does not ask for."""
    return amounts_text({kind: amount for kind, amount in _without_pods(account.deserved).items() if amount})


def _without_pods(amounts: Resources) -> Resources:
    """Volcano counts pods, and compares their number with no limit."""
    return {kind: amount for kind, amount in amounts.items() if kind != "pods"}


def _finite(amounts: Resources) -> dict[str, float]:
    return {kind: round(amount, 3) for kind, amount in amounts.items() if not isinf(amount)}


@dataclass(frozen=True, slots=True)
class VolcanoRow(QueueRow):
    """One of Volcano's queues; the root is not one if there is no hierarchy."""

    account: Account
    problem: str

    def described(self) -> dict[str, Any]:
        account, spec = self.account, self.account.spec
        return {
            "queue": spec.name,
            "parent": spec.parent or None,
            "state": spec.state,
            "weight": spec.weight,
            "priority": spec.priority,
            "reclaimable": spec.reclaimable,
            "allocated": dict(account.allocated),
            "deserved": _finite(account.deserved),
            "guarantee": _finite(account.guarantee),
            "capability": _finite(account.real_capability),
            "share": round(self.share, 6),
            "pendingPods": self.pending,
            "problem": self.problem or None,
            "notUsed": list(spec.not_used),
        }

    def cells(self) -> tuple[str, ...]:
        """For the columns of `VOLCANO_COLUMNS`."""
        account, spec = self.account, self.account.spec
        state = self.problem or spec.state + ("" if spec.reclaimable else ", not reclaimable")
        state += f", without {' and '.join(spec.not_used)}" if spec.not_used else ""
        return (
            "  " * self.depth + spec.name,
            amounts_text(account.allocated),
            deserved_text(account),
            amounts_text(_without_pods(account.real_capability)),
            f"{self.share:.2f}",
            f"{self.pending:,}",
            state,
        )


VOLCANO_COLUMNS = ("queue", "allocated", "deserved", "capability", "share", "pending", "state")


class WaitingMember(WaitingPod):
    """Where a pending pod stands in one of Volcano's queues."""

    def _lines(self) -> Iterator[str]:
        yield f"queue {self.queue}, job {self.application}"
        yield f"its queue: {self.standing}"
        if self.blocking is not None:
            yield self.blocking.sentence()
        yield f"position {self.position} of {self.length} in its queue"
        yield from self._what_helps()

    def text(self, key: str) -> Iterator[str]:
        if not self.queue:
            yield f"{key} has no queue: {self.problem}"
        else:
            yield f"{key} waits for its queue" if self.waits else f"{key} has room in its queue"
            yield from (f"  {line}" for line in self._lines())
        yield "Without the limits of queues:" if self.waits else "With room in its queue:"


class VolcanoQuestions(QueueQuestions):
    """Answers questions about Volcano's queues."""

    queues: VolcanoQueues
    waiting_type = WaitingMember

    def __init__(
        self, loaded: LoadedCluster, settings: QueuesConfiguration, core: SchedulingCore | None = None
    ) -> None:
        core = loaded.core() if core is None else core
        super().__init__(loaded, settings, core)
        self._cluster = core.cluster

    def rows(self) -> list[QueueRow]:
        counts = {row.queue.path: row.pending for row in super().rows()}
        queues, found = self.queues, list[QueueRow]()
        flat = 0 if queues.conf.hierarchy else 1
        for queue in queues.partition.root.downwards():
            account = queues.account(queue)
            if account is not None:
                share = queues.share(queue)
                problem = queues.problems.get(account.name, "")
                depth, pending = queue.path.count(".") - flat, counts.get(queue.path, 0)
                found.append(VolcanoRow(queue, depth, share, pending, account, problem))
        return found

    def not_admitted(self, group: str) -> str:
        for item, limit in self.queues.admit():
            if item.key == group and limit is not None:
                return limit if isinstance(limit, str) else limit.sentence()
        return ""

    def _queue_reason(self, first: Queue, second: Queue) -> str:
        """What Volcano compares: priority, share, whether they deserve anything, age, name."""
        one, other = self.queues.account(first), self.queues.account(second)
        if one is None or other is None:
            return super()._queue_reason(first, second)
        if one.spec.priority != other.spec.priority:
            return f"priority {one.spec.priority} ({other.name} has {other.spec.priority})"
        share, its_share = self.queues.share(first), self.queues.share(second)
        if share != its_share:
            digits = 2 if f"{share:.2f}" != f"{its_share:.2f}" else 6
            return f"share {share:.{digits}f} ({other.name} has {its_share:.{digits}f})"
        if standing(one, self.queues.kind) != standing(other, self.queues.kind):
            return f"which has deserved resources ({other.name} has none)"
        if one.spec.created != other.spec.created:
            return f"which was created earlier (the shares are {share:.2f})"
        return f"which is first by name (the shares are {share:.2f})"

    def _reason(self, first: Group, second: Group) -> str:
        assert isinstance(first, PodGroupOf)
        assert isinstance(second, PodGroupOf)
        one, other = self.queues.job(first), self.queues.job(second)
        for name in self.queues.order_of_jobs:
            if name == "priority" and one.priority != other.priority:
                return f"priority {one.priority} (this one has {other.priority})"
            if name == "gang" and one.is_ready != other.is_ready:
                return "which does not have its minimum yet"
            if name == "drf" and one.share != other.share:
                return f"share {one.share:.2f} (this one has {other.share:.2f})"
        return "which was created earlier"

    word = "job"
    has_task_groups = False

    def _must_end(self, blocking: Blocking) -> MustEnd:
        computed = isinstance(blocking, QueueLimit) and blocking.word not in ("capability", "state")
        may_move = (
            "the limit follows what other queues request and are guaranteed, and the size of the cluster"
            if computed
            else ""
        )
        return what_must_end(self.queues, blocking, self._names, may_move)

    def _task_groups_problem(self, pod: Pod) -> str:
        return ""

    def _standing(self, leaf: Queue) -> str:
        account = self.queues.account(leaf)
        if account is None:
            return "does not exist"
        has, deserved = amounts_text(account.allocated) or "nothing", deserved_text(account) or "nothing"
        kept = "" if account.spec.reclaimable else ", not reclaimable"
        return f"{has} allocated, {deserved} deserved, share {self.queues.share(leaf):.2f}{kept}"

    def _preemption(self, pod: Pod, asked: Amounts, leaf: Queue, blocking: Blocking | None) -> str:
        queues = self.queues
        if pod.spec.preemption_policy == "Never":
            return "nothing would be evicted for it: its preemptionPolicy is Never"
        account, group = queues.account(leaf), queues.group_of(pod)
        reason = why_not(queues, group, asked)
        if account is None or reason:
            why = reason.removeprefix("preemption: ") or "its queue does not exist"
            return f"nothing would be evicted for it: {why}"
        cluster = self._cluster
        slots = VictimChoice(queues, asking_pod(queues, pod, asked)).everywhere(cluster)
        names = [pod.key for pod in pods_in(cluster, sorted(slots.tolist()))]
        if not names:
            why = "" if is_entitled(queues, account, asked) else f": {not_entitled(account, asked)}"
            return f"nothing could be evicted for it{why}"
        if blocking is not None:
            return "nothing is evicted for it while its queue has no room"
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        verb = "reclaim" if is_entitled(queues, account, asked) else "preempt"
        return f"if no node has room, it may {verb} from {', '.join(names[:MAX_NAMED])}{more}"
