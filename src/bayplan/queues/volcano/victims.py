"""Victims: which running tasks each of Volcano's plugins allows to be evicted, and in which order.

A plugin gets the candidates and returns those that it allows. The scheduler evicts what all of them allow
(`allowed_by_all`); Volcano combines their results by tiers (`decide`). The functions use tasks and accounts;
they do not depend on nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from bayplan.queues.volcano import drf
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import Account, common_level
from bayplan.queues.volcano.resources import Resources


class Job(Protocol):
    """A job as far as the choice of victims needs it."""

    @property
    def name(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def min_available(self) -> int: ...
    @property
    def ready(self) -> int:
        """The number of its tasks that have a node or have succeeded."""

    @property
    def allocated(self) -> Resources: ...
    @property
    def account(self) -> Account: ...


class Candidate(Hashable, Protocol):
    """A running task, or the preemptor."""

    @property
    def job(self) -> Job: ...
    @property
    def asked(self) -> Resources: ...
    @property
    def priority(self) -> int: ...
    @property
    def is_critical(self) -> bool: ...


T = TypeVar("T", bound=Candidate)
Plugin = Callable[[Sequence[T]], list[T]]


def decide(tiers: Iterable[Iterable[Plugin[T]]], candidates: Sequence[T]) -> list[T]:
    """The victims that the plugins of the first tier with a result agree on.

    As in Volcano, an empty intersection inside a tier starts again with the next plugin of the tier.
    """
    # session_plugins.go: Reclaimable
    for tier in tiers:
        victims: list[T] = []
        for plugin in tier:
            allowed = plugin(candidates)
            if not allowed:
                victims = []
                break
            agreed = {id(task) for task in allowed}
            victims = [task for task in victims if id(task) in agreed] if victims else allowed
        if victims:
            return victims
    return []


def allowed_by_all(plugins: Iterable[Plugin[T]], candidates: Sequence[T]) -> Sequence[T]:
    """The victims that all plugins allow: each is called with those that the plugins before it allow.

    So a plugin that counts (a gang may lose two pods, a queue two CPUs) counts only pods that may go.
    """
    for plugin in plugins:
        candidates = plugin(candidates)
    return candidates


def spared_by_gang(candidates: Sequence[T]) -> list[T]:
    """Tasks that jobs can lose and keep their minimum."""
    left: dict[str, int] = {}
    allowed = []
    for task in candidates:
        job = task.job
        if left.setdefault(job.name, job.ready) > job.min_available:
            left[job.name] -= 1
            allowed.append(task)
    return allowed


def of_lower_priority(asking: Candidate, candidates: Sequence[T]) -> list[T]:
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


def not_critical(candidates: Sequence[T]) -> list[T]:
    return [task for task in candidates if not task.is_critical]


def of_larger_share(asking: Candidate, candidates: Sequence[T], capacity: Resources) -> list[T]:
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


def above_deserved(candidates: Sequence[T]) -> list[T]:
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


def reclaimable(asking: Candidate, ordered: Iterable[T], *, levels: int = 0) -> list[T]:
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
            sibling = levels > 0 and _share_ancestor(own, account, levels)
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
        others = _others(own, account, levels) if levels else []
        if not may_go(asked, account, others):
            kept.add(request)
            continue
        for each in (account, *others):
            left[each.name] = r.minus(left.get(each.name, each.staying), asked)
        allowed.append(task)
    return allowed


def _ancestors(account: Account, levels: int) -> list[Account]:
    return account.upwards()[1 : levels + 1]


def _share_ancestor(one: Account, other: Account, levels: int) -> bool:
    theirs = {each.name for each in _ancestors(other, levels)}
    return any(each.parent is not None and each.name in theirs for each in _ancestors(one, levels))


def _others(own: Account, account: Account, levels: int) -> list[Account]:
    """The ancestors of a victim's queue that the asking queue does not have at the same level."""
    # capacity.go: getReclaimeeAncestorToCheck
    ours = _ancestors(own, levels)
    return [
        each
        for level, each in enumerate(_ancestors(account, levels))
        if each.parent is not None and not (level < len(ours) and ours[level] is each)
    ]


def below_hierarchical_share(
    asking: Candidate, candidates: Sequence[T], jobs: Mapping[str, drf.JobUse], capacity: Resources
) -> list[T]:
    """Hierarchical DRF: tasks of queues that come after the asking one even without them."""
    own = jobs[asking.job.name]
    taken = dict(jobs)
    taken[own.name] = drf.JobUse(
        own.name, own.path, own.weights, r.plus(own.allocated, asking.asked), own.request
    )
    allowed = []
    for task in candidates:
        job = jobs[task.job.name]
        rest = drf.JobUse(job.name, job.path, job.weights, r.minus(job.allocated, task.asked), job.request)
        root = drf.hierarchical_shares({**taken, job.name: rest}.values(), capacity)
        if drf.compare(root, own.path, job.path) < 0:
            allowed.append(task)
    return allowed


def nearness(asking: Account, account: Account) -> int:
    """Queues with a deeper common ancestor come first: the lowest is first."""
    return -common_level(account, asking)
