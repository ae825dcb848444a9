"""Which tasks may be evicted, candidate by candidate: `bayplan.queues.volcano.victims` without columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from bayplan.api.pod import Pod
from bayplan.queues.volcano import drf, victims
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import Account, Entitlement
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.candidates import CRITICAL, is_preemptable
from bayplan.queues.volcano.preemption import VictimChoice
from bayplan.queues.volcano.resources import Resources
from bayplan.queues.volcano.victims import Asking, Job


@dataclass(eq=False)
class Task:
    """A running task."""

    name: str
    job: Job
    asked: Resources
    priority: int = 0
    created: float = 0.0
    is_critical: bool = False


def spared_by_gang(candidates: Sequence[Task]) -> list[Task]:
    """Tasks that jobs can lose and keep their minimum."""
    left: dict[str, int] = {}
    allowed = []
    for task in candidates:
        job = task.job
        if left.setdefault(job.name, job.ready) > job.min_available:
            left[job.name] -= 1
            allowed.append(task)
    return allowed


def of_lower_priority(asking: Asking, candidates: Sequence[Task]) -> list[Task]:
    """Tasks of jobs with a lower priority; in the same job, tasks with a lower one."""
    return [
        task
        for task in candidates
        if (
            task.priority < asking.priority
            if task.job is asking.job
            else task.job.priority < asking.job.priority
        )
    ]


def not_critical(candidates: Sequence[Task]) -> list[Task]:
    return [task for task in candidates if not task.is_critical]


def of_larger_share(asking: Asking, candidates: Sequence[Task], capacity: Resources) -> list[Task]:
    """Tasks of jobs that keep at least the share that the asking job will have."""
    own = drf.job_share(r.plus(asking.job.allocated, asking.asked), capacity)
    left: dict[str, Resources] = {}
    allowed = []
    for task in candidates:
        rest = left[task.job.name] = r.minus(left.get(task.job.name, task.job.allocated), task.asked)
        theirs = drf.job_share(rest, capacity)
        if own < theirs or abs(own - theirs) <= drf.SHARE_DELTA:
            allowed.append(task)
    return allowed


def above_deserved(candidates: Sequence[Task]) -> list[Task]:
    """Plugin proportion: tasks of queues that have more than they deserve, while they do."""
    left: dict[str, Resources] = {}
    allowed = []
    for task in candidates:
        account = task.job.account
        used = left.setdefault(account.name, account.staying)
        if not r.at_most(used, account.deserved):
            left[account.name] = r.minus(used, task.asked)
            allowed.append(task)
    return allowed


def reclaimable(asking: Asking, ordered: Iterable[Task], *, levels: int = 0) -> list[Task]:
    """Plugin capacity: tasks of queues above `deserved` in what the task uses, that keep their guarantee.

    A task that uses nothing of what its queue deserves may always be evicted.

    Args:
        ordered: the candidates, in the order of eviction.
        levels: the number of ancestors of a victim that must be above `deserved`, too, unless the asking
            queue shares them.
    """
    own = asking.job.account
    left: dict[str, Resources] = {}
    """By name of the queue: what it has without the victims so far."""
    kept: set[tuple[str, int]] = set()
    """Requests that a queue keeps. It has less with each victim, so no later task with the same may go."""

    def may_go(asked: Resources, account: Account, others: Sequence[Account]) -> bool:
        if not r.share_some(asked, asking.asked, count_pods=False):
            return False
        used = left.get(account.name, account.staying)
        if not r.at_most(account.guarantee, r.minus(used, asked)):
            return False
        if not r.share_some(asked, account.deserved):
            sibling = levels > 0 and victims._share_ancestor(own, account, levels)
            if sibling and not r.share_some(asking.asked, own.deserved):
                return False
        elif not r.exceeds_some(used, account.deserved, asked):
            return False
        return all(
            not r.share_some(asked, each.deserved)
            or r.exceeds_some(left.get(each.name, each.staying), each.deserved, asked)
            for each in others
        )

    allowed = []
    for task in ordered:
        account, asked = task.job.account, task.asked
        request = (account.name, id(asked))
        if request in kept:
            continue
        others = victims._others(own, account, levels) if levels else []
        if not may_go(asked, account, others):
            kept.add(request)
            continue
        for each in (account, *others):
            left[each.name] = r.minus(left.get(each.name, each.staying), asked)
        allowed.append(task)
    return allowed


def chosen(queues: VolcanoQueues, asking: Asking, choice: VictimChoice, pods: Iterable[Pod]) -> set[str]:
    """The uids of the pods that may all be evicted together, with these jobs in the order of eviction.

    For a configuration with priority, gang and drf in the same tier.
    """
    found, levels = set[str](), queues.conf.reclaim_levels if queues.conf.hierarchy else 0
    asked: dict[str, list[tuple[int, Task]]] = {"reclaim": [], "preempt": []}
    ranks = {
        view.name: (action, rank, view)
        for action, ranked in (("reclaim", choice.others), ("preempt", choice.own))
        for rank, view in enumerate(ranked)
    }
    for pod in pods:
        if pod.is_terminating:
            found.add(pod.uid)
            continue
        task = queues.task_of(pod.uid)
        if task is None or task.group.name not in ranks or not is_preemptable(pod):
            continue
        action, rank, view = ranks[task.group.name]
        critical = pod.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL
        made = Task(pod.uid, view, task.amounts, task.priority, task.created, critical)
        asked[action].append((rank, made))
    for action, switch in (("reclaim", "enableReclaimable"), ("preempt", "enablePreemptable")):
        plugins = [not_critical]
        if queues.conf.has("gang", switch):
            plugins.append(spared_by_gang)
        if action == "preempt":
            plugins.append(partial(of_lower_priority, asking))
            plugins.append(partial(of_larger_share, asking, capacity=queues.partition.root.capacity))
        elif queues.kind is Entitlement.PROPORTION:
            plugins.append(above_deserved)
        else:
            plugins.append(partial(reclaimable, asking, levels=levels))
        asked[action].sort(key=lambda each: (each[0], each[1].priority, -each[1].created, each[1].name))
        tasks = [task for _, task in asked[action]]
        for plugin in plugins:
            tasks = plugin(tasks)
        found.update(task.name for task in tasks)
    return found
