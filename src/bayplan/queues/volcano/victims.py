"""Victims: which running tasks each of Volcano's plugins allows to be evicted.

A plugin gets the candidates, as columns in the order of eviction, and returns a mask of those that it allows.
The scheduler evicts what all of them allow (`allowed_by_all`); Volcano combines their results by tiers
(`decide`). Candidates on different nodes are separate questions, which one call answers for all nodes: what a
queue or a job may lose counts for each node on its own, because a pod gets its room on one of them.

What a plugin allows depends on the candidates before: a gang may lose two tasks, a queue four CPUs. For most
plugins these are the sums of those before, so nothing here is a loop over candidates.
`tests/queues/plain_victims.py` has the same rules candidate by candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayplan.queues.volcano import drf
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import Account, common_level
from bayplan.queues.volcano.resources import Resources
from bayplan.state.columns import IdColumn

Numbers = NDArray[np.int64] | NDArray[np.float64]
Mask = NDArray[np.bool_]
_LARGE = 2**62
"""Sums up to here are integers, so that they are exact."""


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


class Asking(Protocol):
    """The pod or gang that asks for victims."""

    @property
    def job(self) -> Job: ...
    @property
    def asked(self) -> Resources: ...
    @property
    def priority(self) -> int: ...


class JobTable:
    """Jobs by number, and their queues by number."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        numbers: dict[int, int] = {}
        self.accounts: list[Account] = []
        queue_of = []
        for job in jobs:
            number = numbers.setdefault(id(job.account), len(self.accounts))
            if number == len(self.accounts):
                self.accounts.append(job.account)
            queue_of.append(number)
        self.queue_of: IdColumn = np.array(queue_of, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Running tasks, those at the same place in the order of eviction."""

    table: JobTable
    shapes: Sequence[Resources]
    """What tasks ask for."""
    place: IdColumn
    """The number of the node."""
    job: IdColumn
    shape: IdColumn
    priority: NDArray[np.int64]
    is_critical: Mask

    def __len__(self) -> int:
        return len(self.place)

    def take(self, indexes: IdColumn) -> Candidates:
        return Candidates(
            self.table,
            self.shapes,
            self.place.take(indexes),
            self.job.take(indexes),
            self.shape.take(indexes),
            self.priority.take(indexes),
            self.is_critical.take(indexes),
        )

    @property
    def queue(self) -> IdColumn:
        return self.table.queue_of.take(self.job)

    def asked(self, kind: str) -> Numbers:
        """What each task asks for of a resource."""
        return _numbers((shape.get(kind, 0) for shape in self.shapes), len(self)).take(self.shape)


Plugin = Callable[[Candidates], Mask]


class RunningTask(Protocol):
    """A candidate outside of columns."""

    @property
    def job(self) -> Job: ...
    @property
    def asked(self) -> Resources: ...


T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=RunningTask)
TaskPlugin = Callable[[Sequence[T]], list[T]]


def _numbers(values: Iterable[float], count: int = 1) -> Numbers:
    """As integers, if the sum of so many of them is exact."""
    found = list(values)
    if max(map(abs, found), default=0) * count < _LARGE and all(isinstance(value, int) for value in found):
        return np.array(found, dtype=np.int64)
    return np.array(found, dtype=np.float64)


class _Runs:
    """Entries with the same key, in order.

    Args:
        turn: the order of entries with the same key; None: that of the array.
    """

    def __init__(self, keys: IdColumn, turn: IdColumn | None = None) -> None:
        self._order = keys.argsort(kind="stable") if turn is None else np.lexsort((turn, keys))
        by_key = keys.take(self._order)
        self._first = np.ones(len(keys), dtype=np.bool_)
        self._first[1:] = by_key[1:] != by_key[:-1]
        self._number = self._first.cumsum() - 1

    def _back(self, values: Numbers) -> Numbers:
        result = np.empty_like(values)
        result[self._order] = values
        return result

    def before(self, amounts: Numbers) -> Numbers:
        """For each entry: the sum of those before it with the same key."""
        own = amounts.take(self._order)
        sums = own.cumsum() - own
        sums -= sums[self._first].take(self._number)
        return self._back(sums)

    def rank(self) -> Numbers:
        """For each entry: how many are before it."""
        return self.before(np.ones(len(self._order), dtype=np.int64))

    def numbers(self) -> IdColumn:
        """For each entry: the number of its key; the smallest is 0."""
        return self._back(self._number).astype(np.intp)

    def firsts(self) -> IdColumn:
        """The first entry of each key."""
        return self._order[self._first]


def decide(tiers: Iterable[Iterable[TaskPlugin[T]]], candidates: Sequence[T]) -> list[T]:
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


def allowed_by_all(plugins: Iterable[Plugin], candidates: Candidates) -> IdColumn:
    """The victims that all plugins allow: each is called with those that the plugins before it allow.

    So a plugin that counts (a gang may lose two pods, a queue two CPUs) counts only pods that may go.
    """
    kept = np.arange(len(candidates))
    for plugin in plugins:
        here = plugin(candidates).nonzero()[0]
        kept, candidates = kept.take(here), candidates.take(here)
    return kept


def spared_by_gang(found: Candidates) -> Mask:
    """Tasks that jobs can lose and keep their minimum."""
    jobs = found.table.jobs
    spare = _numbers(job.ready - job.min_available for job in jobs)
    return _Runs(found.place * len(jobs) + found.job).rank() < spare.take(found.job)


def of_lower_priority(asking: Asking, found: Candidates) -> Mask:
    """Tasks of jobs with a lower priority; in the same job, tasks with a lower one."""
    jobs = found.table.jobs
    is_lower = np.array([job.priority < asking.job.priority for job in jobs], dtype=np.bool_)
    is_own = np.array([job is asking.job for job in jobs], dtype=np.bool_)
    return np.where(is_own.take(found.job), found.priority < asking.priority, is_lower.take(found.job))


def nobody(found: Candidates) -> Mask:
    return np.zeros(len(found), dtype=np.bool_)


def not_critical(found: Candidates) -> Mask:
    return ~found.is_critical


def of_larger_share(asking: Asking, found: Candidates, capacity: Resources) -> Mask:
    """Tasks of jobs that keep at least the share that the asking job will have."""
    own = drf.job_share(r.plus(asking.job.allocated, asking.asked), capacity)
    jobs = found.table.jobs
    runs = _Runs(found.place * len(jobs) + found.job)
    theirs: NDArray[np.float64] = np.zeros(len(found))
    for kind, limit in capacity.items():
        if limit >= r.min_amount(kind):
            asked = found.asked(kind)
            allocated = _numbers(job.allocated.get(kind, 0) for job in jobs)
            rest = allocated.take(found.job) - runs.before(asked) - asked
            theirs = np.maximum(theirs, rest / limit)
    return (own < theirs) | (np.abs(own - theirs) <= drf.SHARE_DELTA)


def above_deserved(found: Candidates) -> Mask:
    """Plugin proportion: tasks of queues that have more than they deserve, while they do."""
    accounts, queue = found.table.accounts, found.queue
    runs = _Runs(found.place * len(accounts) + queue)
    above: Mask = np.zeros(len(found), dtype=np.bool_)
    staying = [account.staying for account in accounts]
    for kind in {kind for each in staying for kind in each}:
        used = _numbers(each.get(kind, 0) for each in staying).take(queue) - runs.before(found.asked(kind))
        limit = np.array([each.deserved.get(kind, 0.0) for each in accounts], dtype=np.float64).take(queue)
        above |= ~_within(used, limit, kind)
    return above


def _within(amounts: Numbers, limit: Numbers, kind: str) -> Mask:
    """`r.at_most` for one resource."""
    with np.errstate(invalid="ignore"):  # of two infinite amounts
        return (amounts < limit) | (np.abs(amounts - limit) < r.min_amount(kind))


def reclaimable(asking: Asking, found: Candidates, *, levels: int = 0) -> Mask:
    """Plugin capacity: tasks of queues above `deserved` in what the task uses, that keep their guarantee.

    A task that uses nothing of what its queue deserves may always be evicted.

    Args:
        levels: the number of ancestors of a victim that must be above `deserved`, too, unless the asking
            queue shares them.
    """
    return _Reclaim(asking, found, levels).mask()


class _Reclaim:
    """Which tasks the plugin capacity allows to be reclaimed.

    A queue has less with each victim, so once it has to keep a task it keeps all later ones that ask for the
    same. So there is one step for each such request, and not for each task: all that are left are taken
    together, and the first one that its queue has to keep ends the turn of its request.
    """

    def __init__(self, asking: Asking, found: Candidates, levels: int) -> None:
        self._found = found
        table, queue = found.table, found.queue
        accounts = list(table.accounts)
        known = {id(account): number for number, account in enumerate(accounts)}
        own = asking.job.account
        rows = []
        for account in table.accounts:
            others = _others(own, account, levels) if levels else []
            for each in others:
                if id(each) not in known:
                    known[id(each)] = len(accounts)
                    accounts.append(each)
            rows.append([known[id(account)], *(known[id(each)] for each in others)])
        width = max(map(len, rows), default=1)
        padded = np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.intp)
        self._accounts = accounts
        self._limited: IdColumn = padded.reshape(len(rows), width).take(queue, axis=0)
        """By candidate: the numbers of its queue, and of ancestors that must be above `deserved`."""
        self._domain = _Runs(found.place if levels else found.place * len(rows) + queue).numbers()
        """Those in different ones have no influence on each other."""
        request = _Runs(queue * len(found.shapes) + found.shape)
        of_request = request.numbers()
        firsts = request.firsts()
        may_go, needs = [], []
        for index in firsts.tolist():
            account, asked = table.accounts[queue[index]], found.shapes[found.shape[index]]
            may_go.append(_may_ever_go(asking, account, asked, levels))
            needs.append(
                [
                    number >= 0 and r.share_some(asked, accounts[number].deserved)
                    for number in self._limited[index]
                ]
            )
        self._may_go: Mask = np.array(may_go, dtype=np.bool_).take(of_request)
        self._needs_excess: Mask = np.array(needs, dtype=np.bool_).reshape(-1, width).take(of_request, axis=0)
        self._request = _Runs(found.place * len(firsts) + of_request).numbers()

    def mask(self) -> Mask:
        allowed: Mask = np.zeros(len(self._found), dtype=np.bool_)
        left = self._may_go.nonzero()[0]
        left = left[self._keep_enough(left, alone=True)]
        kept_from = np.full(len(self._found), len(self._found), dtype=np.intp)
        while len(left):
            enough = self._keep_enough(left)
            if enough.all():
                allowed[left] = True
                break
            failed = left[~enough]
            first = failed.take(_Runs(self._domain.take(failed)).firsts())
            kept_from[self._request.take(first)] = first
            is_open = np.zeros(len(self._found), dtype=np.bool_)
            is_open[self._domain.take(first)] = True
            again = is_open.take(self._domain.take(left))
            allowed[left[~again]] = True
            left = left[again]
            left = left[left < kept_from.take(self._request.take(left))]
        return allowed

    def _keep_enough(self, left: IdColumn, *, alone: bool = False) -> Mask:
        """Whether each of these may go after those before it; with `alone`, as the only one."""
        found, accounts = self._found.take(left), self._accounts
        limited, needs = self._limited.take(left, axis=0), self._needs_excess.take(left, axis=0)
        turn, level = (limited >= 0).nonzero()
        account = limited[turn, level]
        runs = None if alone else _Runs(found.place.take(turn) * len(accounts) + account, turn)
        exceeds: Mask = ~needs[turn, level]
        keeps: Mask = np.ones(len(turn), dtype=np.bool_)
        is_own = level == 0
        kinds = {kind for each in accounts for kind in (*each.deserved, *each.guarantee)}
        staying = [each.staying for each in accounts]
        for kind in kinds:
            asked = found.asked(kind).take(turn)
            used = _numbers(each.get(kind, 0) for each in staying).take(account)
            if runs is not None:
                used = used - runs.before(asked)
            if kind != r.PODS:
                limit = np.array([_limit(each.deserved, kind) for each in accounts]).take(account)
                exceeds |= (asked > 0) & (used > limit)
            least = np.array([each.guarantee.get(kind, -inf) for each in accounts]).take(account)
            keeps &= ~is_own | _within(least, used - asked, kind)
        result: Mask = np.ones(len(left), dtype=np.bool_)
        result[turn[~(exceeds & keeps)]] = False
        return result


def _limit(deserved: Resources, kind: str) -> float:
    """The amount above which `r.exceeds_some` counts a resource."""
    amount = deserved.get(kind, inf)
    return inf if kind in ("cpu", "memory") and amount < r.MIN_AMOUNT else amount


def _may_ever_go(asking: Asking, account: Account, asked: Resources, levels: int) -> bool:
    """Whether a task may be reclaimed from a queue, as far as its amounts do not matter."""
    if not r.share_some(asked, asking.asked, count_pods=False):
        return False
    own = asking.job.account
    is_sibling = levels > 0 and _share_ancestor(own, account, levels)
    return not is_sibling or r.share_some(asked, account.deserved) or r.share_some(asking.asked, own.deserved)


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
    asking: Asking, candidates: Sequence[TaskT], jobs: Mapping[str, drf.JobUse], capacity: Resources
) -> list[TaskT]:
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
