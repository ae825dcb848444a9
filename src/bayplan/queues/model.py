"""The values of the tree of capacity queues: queues, groups in their leaves, and tasks.

`tree.py` has the functions that change and evaluate them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bayplan.queues.amounts import Amounts, readable, total

MIN_PRIORITY: Final = -(1 << 31)
"""The priority of a queue or group without pending tasks."""
MAX_PRIORITY: Final = (1 << 31) - 1

DEFAULT_PREEMPTION_DELAY: Final = 30.0
DEFAULT_BACKOFF_DELAY: Final = 30.0


class Order(Enum):
    """How the groups of a leaf are compared. Children of a parent are always compared by share."""

    FIFO = "fifo"
    FAIR = "fair"


class Preemption(Enum):
    """Whether tasks of a queue may be victims, and where the search for victims ends."""

    DEFAULT = "default"
    FENCE = "fence"
    DISABLED = "disabled"


class State(Enum):
    ACTIVE = "Active"
    DRAINING = "Draining"
    STOPPED = "Stopped"


@dataclass(slots=True)
class Policy:
    """The settings of a queue other than its amounts. Durations are in seconds."""

    order: Order = Order.FIFO
    by_priority: bool = True
    """Whether priority is compared before shares or times, or after them."""
    priority_offset: int = 0
    priority_fence: bool = False
    """The offset is the priority of everything below, instead of being added to it."""
    preemption: Preemption = Preemption.DEFAULT
    preemption_delay: float = DEFAULT_PREEMPTION_DELAY
    quota_delay: float = 0.0
    """Time after which a lowered ceiling is enforced; 0 is never."""
    backoff_after: int = 0
    """The number of unschedulable tasks after which a group is skipped for a while; 0 is never."""
    backoff_delay: float = DEFAULT_BACKOFF_DELAY


class Task:
    """One pod of a group."""

    __slots__ = (
        "amounts",
        "created",
        "group",
        "is_originator",
        "is_placeholder",
        "key",
        "leaving",
        "may_preempt",
        "opted_out",
        "place",
        "priority",
        "released",
        "required_place",
        "role",
    )

    def __init__(
        self,
        key: str,
        group: Group,
        amounts: Amounts,
        *,
        created: float = 0.0,
        priority: int = 0,
        place: str = "",
        role: str = "",
        required_place: str = "",
        is_placeholder: bool = False,
        is_originator: bool = False,
        may_preempt: bool = True,
        opted_out: bool = False,
    ) -> None:
        self.key = key
        self.group = group
        self.amounts = amounts
        self.created = created
        self.priority = priority
        self.place = place
        """Where it runs, as an opaque name; empty while it is pending."""
        self.role = role
        self.required_place = required_place
        self.is_placeholder = is_placeholder
        self.is_originator = is_originator
        self.may_preempt = may_preempt
        self.opted_out = opted_out
        """Whether it prefers not to be a victim."""
        self.leaving = False
        """Whether it is a victim that is not gone yet."""
        self.released = False
        """Whether it is being replaced or removed for another reason, so that it cannot be a victim."""

    def is_spared(self) -> tuple[bool, bool]:
        """Whether it prefers not to be a victim, and whether it began its group."""
        return self.opted_out, self.is_originator


class Group:
    """Tasks that belong together, in one leaf."""

    __slots__ = (
        "created",
        "member_of",
        "name",
        "priorities",
        "priority",
        "queue",
        "tasks",
        "used",
        "user",
        "user_groups",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        queue: Queue,
        *,
        user: str = "",
        user_groups: tuple[str, ...] = (),
        created: float = 0.0,
    ) -> None:
        self.name = name
        self.queue = queue
        self.user = user
        self.user_groups = user_groups
        self.member_of: str | None = None
        """The user group that its use counts for; None before it is known, "" for none."""
        self.created = created
        self.used: dict[str, int] = {}
        """What its tasks use, without placeholders."""
        self.waiting = 0
        """The sum of all amounts that are pending."""
        self.priorities: dict[int, int] = {}
        """The number of pending tasks by priority."""
        self.priority = MIN_PRIORITY
        """The highest of them."""
        self.tasks: dict[str, Task] = {}
        """Tasks that have a place, by key."""

    @property
    def pending(self) -> Amounts:
        """What its pending tasks ask for."""
        raise NotImplementedError


class Queue:
    """A node of the tree.

    Attributes:
        ceiling: is never exceeded; None is no limit, an absent type is unlimited.
        guaranteed: what others cannot take from it, and up to which it may take from others; an absent type
            is not part of it.
        reserved: kept free for it even if unused.
        weight: for entitlements that are computed.
        capacity: of the root: what the cluster has; the denominator of shares without a guarantee or ceiling.
    """

    __slots__ = (
        "capacity",
        "ceiling",
        "children",
        "denominators",
        "groups",
        "guaranteed",
        "is_leaf",
        "is_managed",
        "leaving",
        "max_groups",
        "name",
        "parent",
        "path",
        "path_up",
        "policy",
        "priorities",
        "priority",
        "reserved",
        "running",
        "starting",
        "state",
        "used",
        "waiting",
        "weight",
    )

    def __init__(self, name: str, parent: Queue | None = None, *, leaf: bool = True) -> None:
        self.name = name
        self.parent = parent
        self.path: str = name if parent is None else f"{parent.path}.{name}"
        self.is_leaf = leaf
        self.is_managed = True
        """Whether it is configured, not created for a group."""
        self.children: dict[str, Queue] = {}
        self.groups: dict[str, Group] = {}
        self.guaranteed: Amounts | None = None
        self.ceiling: Amounts | None = None
        self.reserved: Amounts = {}
        self.capacity: Amounts = {}
        self.weight = 1.0
        self.max_groups = 0
        """How many groups may run at a time; 0 is no limit."""
        self.policy = Policy()
        self.state = State.ACTIVE
        self.used: dict[str, int] = {}
        self.waiting = 0
        """The sum of all amounts that are pending below."""
        self.leaving: dict[str, int] = {}
        self.running = 0
        """How many groups run."""
        self.starting: set[str] = set()
        """Names of groups that already use resources but do not run yet; they count as running."""
        self.priorities: dict[int, int] = {}
        """How many groups of a leaf, or children of a parent, have each priority."""
        self.priority = MIN_PRIORITY
        """The priority of what waits in it, as its parent sees it."""
        self.path_up: tuple[Queue, ...] = (self, *(() if parent is None else parent.path_up))
        self.denominators: Amounts | None = None
        """What its use is divided by for its share; None until that is computed (`tree.limits_changed`)."""
        if parent is not None:
            parent.children[name] = self

    def __repr__(self) -> str:
        return f"Queue({self.path})"

    @property
    def pending(self) -> dict[str, int]:
        """What its groups, or those below, have pending."""
        parts: Iterable[Group | Queue] = self.groups.values() if self.is_leaf else self.children.values()
        return total(part.pending for part in parts)

    def upwards(self) -> tuple[Queue, ...]:
        """The queue and its ancestors, root last."""
        return self.path_up

    def downwards(self) -> Iterator[Queue]:
        """The queue and everything below, parents first, in the order of creation."""
        yield self
        for child in self.children.values():
            yield from child.downwards()

    def find(self, path: str) -> Queue | None:
        """A queue by its path from this one, which has to be the root."""
        names = path.lower().split(".")
        if names[0] != self.name:
            return None
        queue: Queue | None = self
        for name in names[1:]:
            if queue is None:
                break
            queue = queue.children.get(name)
        return queue


@dataclass(frozen=True, slots=True)
class Blocking:
    """The limit that keeps a request out."""

    queue: str
    """The path of the queue whose limit it is."""
    kind: str
    """The type of resource."""
    used: int
    asked: int
    limit: int
    user: str = ""
    """Whose limit it is, if it is that of a user."""
    user_group: str = ""
    grows_with_cluster: bool = False
    """Whether there would be room with more nodes, because the limit is a part of the cluster."""

    def sentence(self) -> str:
        """Which limit a request waits for, in numbers."""
        used, asked, limit = (readable(self.kind, each) for each in (self.used, self.asked, self.limit))
        return f"{self.without_amounts()} {used} used, {asked} asked, {limit} max"

    def without_amounts(self) -> str:
        """Which limit it is: the same text for all requests that wait for it."""
        whose = f"queue {self.queue}"
        if self.user:
            whose = f"user {self.user} in {whose}"
        elif self.user_group:
            whose = f"group {self.user_group} in {whose}"
        return f"waiting for quota of {whose}: {self.kind}"
