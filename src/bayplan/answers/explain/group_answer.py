"""The answer about a pod group, as `bayplan explain group` prints it and programs read it.

`groups.py` makes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from bayplan.answers.capacity_queues import WaitingPod
from bayplan.answers.explain.group_domains import DomainAnswer
from bayplan.answers.sources.groups import ASSUMED_DIALECT, ASSUMED_GATE
from bayplan.config.model import PodGroupDialect
from bayplan.state.groups import Group, GroupKey


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """One waiting member: its node, or why it has none."""

    pod: str
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """One PodGroup of a composite group."""

    name: str
    policy: str
    scheduled: int
    waiting: int
    result: str
    """What becomes of its waiting members; empty if it was not evaluated."""


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """Everything about one group; about one in a composite group, everything about that."""

    key: GroupKey
    group: Group | None
    """None if there is no such object."""
    verdict: str
    is_schedulable: bool
    scheduled: tuple[tuple[str, str], ...]
    """Members with a node, and their nodes."""
    waiting: tuple[MemberAnswer, ...]
    """In the order in which they are tried."""
    victims: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    """What can be done, each of them on its own."""
    dialect: PodGroupDialect = PodGroupDialect.KUBERNETES
    is_judged: bool = True
    """Whether all its members belong to a profile of the configuration."""
    parts: tuple[PartAnswer, ...] = ()
    """The PodGroups of a composite group."""
    domains: tuple[DomainAnswer, ...] = ()
    """Of a group with a topology constraint, if it was evaluated."""
    last_error: str = ""
    """That the scheduler's last attempt failed with an error, and which; empty if it did not."""
    capacity: WaitingPod | None = None
    """Where it stands in its capacity queue; None without such queues, or if it is not tried."""

    @property
    def policy(self) -> str:
        return "unknown, without its PodGroup" if self.group is None else policy_text(self.group)

    @property
    def assumption(self) -> str:
        """What is not known of the scheduler, and assumed."""
        if self.dialect is PodGroupDialect.KUBERNETES:
            return ASSUMED_GATE
        return ASSUMED_DIALECT.format(dialect=self.dialect.value)

    def in_words_of(self, field: str) -> GroupAnswer:
        """The same with the dialect's name of the number of members, which the scheduler calls minCount."""

        def worded(text: str) -> str:
            return text.replace("minCount", field)

        waiting = tuple(replace(one, reason=worded(one.reason)) for one in self.waiting)
        return replace(
            self,
            verdict=worded(self.verdict),
            waiting=waiting,
            last_error=worded(self.last_error),
            remedies=tuple(map(worded, self.remedies)),
        )

    def _composite(self) -> dict[str, Any]:
        """What only composite groups have."""
        if self.group is None or not self.key.is_composite:
            return {}
        return {"minGroupCount": self.group.min_count, "podGroups": [asdict(part) for part in self.parts]}

    def member(self, pod: str) -> MemberAnswer | None:
        """The answer about a waiting member, by namespace/name."""
        return next((one for one in self.waiting if one.pod == pod), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "group": str(self.key),
            "dialect": self.dialect.value,
            "policy": self.policy,
            "minCount": None if self.group is None or self.key.is_composite else self.group.min_count,
            "schedulable": self.is_schedulable,
            "verdict": self.verdict,
            "remedies": list(self.remedies),
            "scheduled": [{"pod": pod, "node": node} for pod, node in self.scheduled],
            "waiting": [
                {"pod": one.pod} | ({"node": one.node} if one.node else {"reason": one.reason})
                for one in self.waiting
            ],
            "victims": list(self.victims),
            **({"lastError": self.last_error} if self.last_error else {}),
            **({"domains": [asdict(one) for one in self.domains]} if self.domains else {}),
            **({} if self.capacity is None else {"capacityQueue": self.capacity.described()}),
            **self._composite(),
        }


def policy_text(group: Group) -> str:
    """What a group asks for, in words."""
    if group.key.is_composite:
        least = f", at least {group.min_count} of its groups together" if group.is_gang else ", basic"
        return f"composite group{least}"
    together = f", all on nodes with the same {group.topology_key}" if group.topology_key else ""
    return (f"gang of at least {group.min_count}" if group.is_gang else "basic") + together
