"""What each of Volcano's queues is entitled to, how much of it is used, and what may still come in.

An `Account` belongs to one queue of the tree. The tree counts what is allocated, up all ancestors; an account
adds what Volcano derives from it:

    capability       the limit that is configured
    guarantee        kept free for the queue even if unused
    real_capability  what the queue may use at most: the cluster without the guarantees of others
    deserved         its fair amount: configured (plugin capacity), or computed from weights (proportion)
    share            allocated in relation to deserved; the queue with the lowest share is next
    inqueue          what admitted jobs will ask for at least, and do not have yet

`open_accounts` computes them from the specs and the requests, as Volcano does at the start of a session. The
other functions answer: `overused`, `lacking` (room for a pod), `not_admissible` (room for a job),
`may_reclaim`, `standing` (order).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from bayplan.queues.model import Queue
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.resources import Resources

ROOT: Final = "root"
OPEN: Final = "Open"
NOTHING: Final[Mapping[str, Resources]] = {}


class Entitlement(Enum):
    """Which plugin says what a queue deserves."""

    PROPORTION = "proportion"
    CAPACITY = "capacity"
    NONE = ""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A Queue object, with amounts in base units."""

    name: str
    weight: int = 1
    capability: Resources = field(default_factory=dict)
    deserved: Resources = field(default_factory=dict)
    guarantee: Resources = field(default_factory=dict)
    parent: str = ""
    priority: int = 0
    reclaimable: bool = True
    state: str = OPEN
    created: float = 0.0
    hierarchy: str = ""
    """Annotation volcano.sh/hierarchy, for hierarchical DRF."""
    hierarchy_weights: str = ""
    not_used: tuple[str, ...] = ()
    """The fields of the object that are not used."""


@dataclass(slots=True)
class Account:
    """What a queue is entitled to, and uses."""

    spec: QueueSpec
    queue: Queue
    parent: Account | None = None
    children: list[Account] = field(default_factory=list)
    request: Resources = field(default_factory=dict)
    """What is allocated and pending."""
    inqueue: Resources = field(default_factory=dict)
    elastic: Resources = field(default_factory=dict)
    """What jobs have above their minimum."""
    capability: Resources = field(default_factory=dict)
    real_capability: Resources = field(default_factory=dict)
    deserved: Resources = field(default_factory=dict)
    guarantee: Resources = field(default_factory=dict)
    share: float = 0.0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def allocated(self) -> Resources:
        return self.queue.used

    @property
    def staying(self) -> Resources:
        """What is allocated, without victims that are not gone yet."""
        leaving = self.queue.leaving
        return r.minus(self.queue.used, leaving) if leaving else self.queue.used

    @property
    def is_open(self) -> bool:
        return self.spec.state == OPEN

    def upwards(self) -> list[Account]:
        """The account and those of its ancestors, root last."""
        found, account = [self], self.parent
        while account is not None:
            found.append(account)
            account = account.parent
        return found


def open_accounts(
    accounts: Sequence[Account],
    kind: Entitlement,
    capacity: Resources,
    *,
    guarantees: Iterable[Resources] = (),
    root: Account | None = None,
) -> Resources:
    """Computes what all queues are entitled to, and their shares. Returns what no queue deserves.

    Args:
        accounts: of the queues that have jobs; with `root`, of all queues.
        capacity: of the cluster.
        guarantees: of all queues.
        root: the queues form a tree below it.
    """
    rest: Resources = {}
    if root is not None:
        _open_hierarchy(root, capacity)
    else:
        free = r.exceeding(capacity, r.total(guarantees))
        for account in accounts:
            spec = account.spec
            account.guarantee = spec.guarantee
            account.capability = _without_gaps(spec.capability)
            account.real_capability = r.plus(free, spec.guarantee)
            if spec.capability:
                account.real_capability = r.within(account.real_capability, account.capability)
            deserved = r.within(spec.deserved, account.real_capability)
            account.deserved = r.highest(deserved, spec.guarantee)
        if kind is Entitlement.PROPORTION:
            rest = fill(accounts, capacity)
    for account in accounts:
        account.share = share(account, kind)
    return rest


def _without_gaps(capability: Resources) -> dict[str, float]:
    """cpu and memory that are absent or zero are unlimited."""
    standard = {name: capability.get(name, 0.0) for name in ("cpu", "memory")}
    return {**capability, **{name: amount if amount > 0 else inf for name, amount in standard.items()}}


def _open_hierarchy(root: Account, capacity: Resources) -> None:
    """What a queue may use at most is limited by its ancestors; what it does not name is inherited."""
    # capacity.go: buildHierarchicalQueueAttrs, checkHierarchicalQueue
    for account in _downwards(root):
        account.deserved = account.spec.deserved
        account.guarantee = account.spec.guarantee
        account.capability = account.spec.capability
    if r.is_empty(root.capability):
        root.capability = {"cpu": inf, "memory": inf, **dict.fromkeys(capacity, inf)}
    root.real_capability = root.capability
    for parent in _downwards(root):
        for child in parent.children:
            child.deserved = r.highest(child.deserved, child.guarantee)
            own = child.capability.items()
            named = {name: amount for name, amount in own if amount > 0 or name not in ("cpu", "memory")}
            child.capability = {**parent.capability, **named}
        guaranteed = r.total(child.guarantee for child in parent.children)
        if parent.parent is None:
            parent.guarantee = guaranteed
            parent.deserved = r.total(child.deserved for child in parent.children)
        for child in parent.children:
            free = r.plus(r.exceeding(parent.real_capability, guaranteed), child.guarantee)
            child.real_capability = r.within(free, child.capability)


def _downwards(account: Account) -> list[Account]:
    """Parents first."""
    found = [account]
    for each in found:
        found.extend(each.children)
    return found


def fill(accounts: Sequence[Account], capacity: Resources) -> Resources:
    """Distributes the cluster by weight: no queue deserves more than it requests or may use.

    What one queue does not need is distributed to the others in the next round. Returns the rest.
    """
    # proportion.go: OnSessionOpen
    remaining: Resources = dict(capacity)
    unmet = list(accounts)
    for account in accounts:
        account.deserved = {}
    while (weight := sum(account.spec.weight for account in unmet)) > 0:
        before, grown, shrunk = remaining, dict[str, float](), dict[str, float]()
        still = []
        for account in unmet:
            old = account.deserved
            part = r.times(remaining, account.spec.weight / weight)
            wanted = r.within(r.plus(old, part), account.real_capability)
            account.deserved = new = r.highest(r.within_zero(wanted, account.request), account.guarantee)
            if not r.at_most(account.request, new) and not _same(new, old):
                still.append(account)
            grown, shrunk = r.plus(grown, r.exceeding(new, old)), r.plus(shrunk, r.exceeding(old, new))
        unmet = still
        remaining = r.exceeding(r.plus(remaining, shrunk), grown)
        if r.is_empty(remaining) or _same(remaining, before):
            break
    return remaining


def _same(left: Resources, right: Resources) -> bool:
    return all(left.get(kind, 0.0) == right.get(kind, 0.0) for kind in {*left, *right})


def share(account: Account, kind: Entitlement) -> float:
    """How much of what it deserves a queue has. With the plugin capacity it is 1 without `deserved`."""
    if kind is Entitlement.CAPACITY and r.is_empty(account.deserved):
        return 1.0
    return r.largest_ratio(account.allocated, account.deserved)


def standing(account: Account, kind: Entitlement) -> tuple[float, bool]:
    """The place of a queue among queues of the same priority; the lowest is first."""
    return (account.share, kind is Entitlement.CAPACITY and r.is_empty(account.deserved))


def below_common(left: Account, right: Account) -> tuple[Account, Account]:
    """The ancestors that are siblings, whose standing decides about two queues."""
    if left is right:
        return left, right
    ups, others = left.upwards()[::-1], right.upwards()[::-1]
    level = common_level(left, right)
    return ups[min(level + 1, len(ups) - 1)], others[min(level + 1, len(others) - 1)]


def common_level(left: Account, right: Account) -> int:
    """How many levels below the root the nearest common ancestor is, not counting the queues themselves."""
    # capacity.go: getQueueLevel
    level = 0
    for number, (one, other) in enumerate(zip(left.upwards()[:0:-1], right.upwards()[:0:-1], strict=False)):
        if one is not other:
            return level
        level = number
    return level


def overused(account: Account, kind: Entitlement) -> bool:
    """Whether a queue has at least what it deserves of every resource. Used by proportion only."""
    return kind is Entitlement.PROPORTION and r.at_most(account.deserved, account.allocated)


@dataclass(frozen=True, slots=True)
class Lack:
    """The limit that something does not fit into."""

    account: Account
    limit: str
    """`deserved`, `capability`, or `state` if the queue is not open."""
    kinds: tuple[str, ...] = ()


def limit_of(account: Account, kind: Entitlement) -> Resources:
    """What a queue may use at most: with proportion what it deserves, else its real capability."""
    return account.deserved if kind is Entitlement.PROPORTION else account.real_capability


def has_room(account: Account, asked: Resources, kind: Entitlement) -> bool:
    """Whether a pod of this queue fits into all limits of its path."""
    if kind is Entitlement.NONE:
        return True
    if account.spec.state != OPEN:
        return False
    each: Account | None = account
    while each is not None:
        used = each.queue.used
        limit = each.deserved if kind is Entitlement.PROPORTION else each.real_capability
        for name, amount in asked.items():
            if amount > 0 and used.get(name, 0.0) + amount > limit.get(name, 0.0) and name != r.PODS:
                return False
        each = each.parent
    return True


def lacking(
    account: Account,
    asked: Resources,
    kind: Entitlement,
    pipelined: Mapping[str, Resources] = NOTHING,
) -> Lack | None:
    """The limit that a pod of this queue does not fit into; None if there is room for it.

    Args:
        pipelined: by name of the queue: what victims are making room for.
    """
    if kind is Entitlement.NONE:
        return None
    if not account.is_open:
        return Lack(account, "state")
    for each in account.upwards():
        more = pipelined.get(each.name)
        used = r.plus(each.allocated, more) if more else each.allocated
        if kinds := r.not_fitting(used, limit_of(each, kind), asked):
            return Lack(each, "deserved" if kind is Entitlement.PROPORTION else "capability", tuple(kinds))
    return None


def not_admissible(account: Account, min_resources: Resources, kind: Entitlement) -> Lack | None:
    """The limit that the minimum of a job does not fit into, with all admitted jobs; None if it fits."""
    if kind is Entitlement.NONE:
        return None
    if not account.is_open:
        return Lack(account, "state")
    for each in account.upwards():
        used = r.minus(r.plus(r.plus(min_resources, each.allocated), each.inqueue), each.elastic)
        if kinds := r.exceeded(used, each.real_capability, min_resources):
            return Lack(each, "capability", tuple(kinds))
    return None


def may_reclaim(
    account: Account,
    asked: Resources,
    kind: Entitlement,
    *,
    levels: int = 0,
    strict: bool = False,
    pipelined: Mapping[str, Resources] = NOTHING,
) -> bool:
    """Whether a queue is entitled to what it requests, so that it may take from others.

    Args:
        pipelined: by name of the queue: what victims are making room for.
        levels: the number of ancestors that count, too: they may be entitled to what their child is not.
        strict: it must stay within all that it deserves. For Volcano one resource is enough, so a victim that
            is below `deserved` in another resource takes back what it lost, in an endless loop.
    """
    if kind is Entitlement.NONE:
        return True
    if not account.is_open:
        return False

    def with_asked(each: Account) -> Resources:
        return r.total((each.allocated, pipelined.get(each.name, {}), asked))

    used = with_asked(account)
    if kind is Entitlement.PROPORTION:
        return not r.exceeded(used, account.deserved, asked)
    if r.exceeded(used, account.real_capability, asked):
        return False
    above = (each for each in account.upwards()[1 : levels + 1] if each.parent is not None)
    for each in (account, *above):
        after = with_asked(each)
        if r.fits_some(after, each.deserved, asked) and not (
            strict and r.exceeds_some(after, each.deserved, asked)
        ):
            return True
    return False


def may_lose(account: Account, kind: Entitlement) -> bool:
    """Whether a queue has more than it deserves of anything, so that others may take from it."""
    if kind is Entitlement.NONE:
        return True
    deserved = account.deserved
    return any(amount > deserved.get(name, 0.0) for name, amount in account.staying.items() if name != r.PODS)


def inqueue_of(min_resources: Resources, allocated: Resources) -> dict[str, float]:
    """What an admitted job will still ask for to have its minimum."""
    # util.go: GetInqueueResource
    return {
        kind: rest
        for kind, amount in min_resources.items()
        if (rest := amount - allocated.get(kind, 0.0)) > 0
    }


def accounts_by_name(
    specs: Iterable[QueueSpec], *, hierarchy: bool
) -> tuple[dict[str, Account], dict[str, str]]:
    """An account for each queue, with a tree of queues behind them; and why some have none, by name.

    Without a hierarchy all queues are children of a root that is no queue itself. A queue whose parent does
    not exist, or that is its own ancestor, has no account, and neither have those below it.
    """
    known = {spec.name: spec for spec in specs}
    tree = Queue(ROOT, leaf=False)
    found: dict[str, Account] = {}
    problems: dict[str, str] = {}
    if hierarchy:
        found[ROOT] = Account(known.get(ROOT, QueueSpec(ROOT)), tree)

    def add(spec: QueueSpec, below: tuple[str, ...]) -> Account | None:
        if (account := found.get(spec.name)) is not None:
            return account
        parent: Account | None = None
        if hierarchy:
            name = spec.parent or ROOT
            if spec.name in below:
                problems[spec.name] = f"queue {spec.name} is its own ancestor"
                return None
            above = found.get(name) or (add(known[name], (*below, spec.name)) if name in known else None)
            if above is None:
                missing = (
                    f"its parent {name} does not exist"
                    if name not in known
                    else f"its parent {name} is not valid"
                )
                problems.setdefault(spec.name, f"queue {spec.name} cannot be used: {missing}")
                return None
            parent = above
            above.queue.is_leaf = False
        account = found[spec.name] = Account(spec, Queue(spec.name, tree if parent is None else parent.queue))
        if parent is not None:
            account.parent = parent
            parent.children.append(account)
        return account

    for spec in known.values():
        add(spec, ())
    return found, problems
