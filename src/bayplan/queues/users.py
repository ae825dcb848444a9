"""Limits by user and user group, at any queue of the tree.

A user's use is counted at every queue of a path. The limit at a queue is the one that names the user, else
the one for all users (`*`). Of a user's groups one counts for each group of tasks: it is chosen at the first
check, from the leaf upwards: the first group with a limit there that the user is in, in the order of the
configuration, else `*` if that queue has one; without any, none counts.

https://yunikorn.apache.org/docs/user_guide/queue_config#limits
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bayplan.queues.amounts import Amounts, is_zero, left_over, lowest, minus, plus, total
from bayplan.queues.tree import Blocking, Group, Queue

EVERYBODY: Final = "*"
APPLICATIONS: Final = "applications"
"""What a limit on the number of groups counts."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one user or user group may use below a queue."""

    max: Amounts | None = None
    max_groups: int = 0
    """How many groups may run at a time; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits at one queue, in the order of the configuration."""

    users: Mapping[str, Limit] = field(default_factory=dict)
    user_groups: Mapping[str, Limit] = field(default_factory=dict)

    def of_user(self, user: str) -> Limit | None:
        return self.users.get(user) or self.users.get(EVERYBODY)


@dataclass(slots=True)
class Use:
    """What a user or user group uses below a queue."""

    amounts: dict[str, int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


class UserLimits:
    """The limits of a tree, and the use of everybody."""

    def __init__(self, limits: Mapping[str, QueueLimits] | None = None) -> None:
        self.limits: Mapping[str, QueueLimits] = limits or {}
        """By path."""
        self.users: dict[str, dict[str, Use]] = {}
        """By user and path."""
        self.user_groups: dict[str, dict[str, Use]] = {}

    def replace(self, limits: Mapping[str, QueueLimits]) -> None:
        """New limits hold for the use that is counted already."""
        self.limits = limits

    def member_of(self, group: Group) -> str:
        """The user group that a group of tasks counts for, chosen at the first call; "" for none."""
        if group.member_of is None:
            group.member_of = self._choose(group)
        return group.member_of

    def _choose(self, group: Group) -> str:
        if not group.user_groups:
            return ""
        for queue in group.queue.upwards():
            limits = self.limits.get(queue.path)
            if limits is None:
                continue
            for name in limits.user_groups:
                if name in group.user_groups and name != EVERYBODY:
                    return name
            if EVERYBODY in limits.user_groups:
                return EVERYBODY
        return ""

    def room(self, group: Group) -> dict[str, int] | None:
        """What the owner of a group may still take in its leaf; None without any limit."""
        if not self.limits:
            return None
        result: dict[str, int] | None = None
        for _, limit, use, _, _ in self._limits_of(group):
            if not is_zero(limit.max):
                assert limit.max is not None
                result = lowest(left_over(limit.max, use.amounts), result)
        return result

    def blocking(
        self, group: Group, asked: Amounts, reserved: Sequence[tuple[Group, Amounts]] = ()
    ) -> Blocking | None:
        """The limit of the owner that a request does not fit into; None if it fits.

        Args:
            reserved: what counts as use of other groups, too.
        """
        for queue, limit, use, user, user_group in self._limits_of(group):
            if is_zero(limit.max):
                continue
            assert limit.max is not None
            same = [each for other, each in reserved if self._counts(other, queue, user, user_group)]
            amounts_used = plus(use.amounts, total(same)) if same else use.amounts
            for kind, amount in asked.items():
                most, used = limit.max.get(kind), amounts_used.get(kind, 0)
                if most is not None and amount > 0 and used + amount > most:
                    return Blocking(queue.path, kind, used, amount, most, user, user_group)
        return None

    def may_start(self, group: Group) -> bool:
        return self.first_full(group) is None

    def first_full(self, group: Group, starting: Sequence[Group] = ()) -> Blocking | None:
        """The limit on the number of groups that keeps this one from running; None if it may run.

        Args:
            starting: other groups that count as running.
        """
        if not self.limits:
            return None
        for queue, limit, use, user, user_group in self._limits_of(group):
            same = (each for each in starting if self._counts(each, queue, user, user_group))
            count = len(use.groups.union(each.name for each in same) if starting else use.groups)
            if limit.max_groups and group.name not in use.groups and count >= limit.max_groups:
                return Blocking(queue.path, APPLICATIONS, count, 1, limit.max_groups, user, user_group)
        return None

    def _counts(self, group: Group, queue: Queue, user: str, user_group: str) -> bool:
        """Whether the use of a group counts for the limit of a user or user group at a queue."""
        is_owner = group.user == user if user else self.member_of(group) == user_group
        return is_owner and queue in group.queue.path_up

    def _limits_of(self, group: Group) -> list[tuple[Queue, Limit, Use, str, str]]:
        found = []
        user_group = self.member_of(group)
        for queue in group.queue.upwards():
            limits = self.limits.get(queue.path)
            if limits is None:
                continue
            limit = limits.of_user(group.user)
            if limit is not None:
                use = self.users.get(group.user, {}).get(queue.path, _NO_USE)
                found.append((queue, limit, use, group.user, ""))
            if user_group and (limit := limits.user_groups.get(user_group)) is not None:
                use = self.user_groups.get(user_group, {}).get(queue.path, _NO_USE)
                found.append((queue, limit, use, "", user_group))
        return found

    def charge(self, group: Group, amounts: Amounts) -> None:
        """A task of the group takes its amounts, and the group counts as running for its owner."""
        for uses in self._uses(group):
            for queue in group.queue.upwards():
                use = uses.setdefault(queue.path, Use())
                use.amounts = plus(use.amounts, amounts)
                use.groups.add(group.name)

    def refund(self, group: Group, amounts: Amounts, *, ended: bool) -> None:
        """
        Args:
            ended: whether the group no longer runs.
        """
        for uses in self._uses(group):
            for queue in group.queue.upwards():
                use = uses.get(queue.path)
                if use is None:
                    continue
                use.amounts = minus(use.amounts, amounts)
                if ended:
                    use.groups.discard(group.name)
                if not use.amounts and not use.groups:
                    del uses[queue.path]
        if ended:
            group.member_of = None

    def _uses(self, group: Group) -> list[dict[str, Use]]:
        uses = [self.users.setdefault(group.user, {})]
        if user_group := self.member_of(group):
            uses.append(self.user_groups.setdefault(user_group, {}))
        return uses


_NO_USE: Final = Use()
