"""Pods without room: which limit they wait for, and how that is reported.

A limit is the ceiling of a queue on the path, the number of applications there, or what the owner may use.
For a pod that waits for a limit, one `Notice` with the numbers is reported, and another one if it was tried
in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts
from bayplan.queues.order import QueueOrder
from bayplan.queues.records import PodClass, PodGroupOf
from bayplan.queues.tree import Blocking, Queue
from bayplan.queues.usage import QueueTree
from bayplan.queues.users import APPLICATIONS
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.scheduling_queue.queued import Entity, QueuedPod, members_of
from bayplan.state.pods import PodInfo

MAX_REPORTED_AT_ONCE: Final = 100
"""How many waiting pods are reported in one pop; the others follow with the next one."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A pod that has to wait, and the reason."""

    info: Entity
    message: str
    grows_with_cluster: bool = False
    """Whether more nodes would raise the limit."""


class BlockedPods(QueueOrder):
    """Which limit each pod waits for, and which pods were not reported yet."""

    def __init__(
        self,
        partition: QueueTree,
        infos: Callable[[Pod], PodInfo],
        namespace: Callable[[str], Namespace | None],
    ) -> None:
        super().__init__(partition, infos, namespace)
        self.notices: list[Notice] = []
        """Pods that have to wait, not reported yet."""

    def take_notices(self) -> list[tuple[QueuedPod, Notice]]:
        """Pods that have to wait and were not reported yet, with the reason."""
        notices, self.notices = self.notices, []
        return [(member, notice) for notice in notices for member in members_of(notice.info)]

    def _first_full(self, group: PodGroupOf) -> Blocking | None:
        full = tree.first_full(group.queue, group.name)
        if full is not None:
            return Blocking(full.path, APPLICATIONS, full.running, 1, full.max_groups)
        return self.partition.user_limits.first_full(group)

    def _blocking(self, group: PodGroupOf, amounts: Amounts) -> Blocking | None:
        if not tree.has_room(group.queue, amounts):
            return tree.blocking(group.queue, amounts)
        if self.partition.user_limits.limits:
            return self.partition.user_limits.blocking(group, amounts)
        return None

    def _blocking_reserved(self, group: PodGroupOf, amounts: Amounts, pods: Iterable[Pod]) -> Blocking | None:
        """The limit that pods do not fit into beside what is reserved for others; None if they fit.

        What was freed for a pod is reserved for it until it has a node: if others took it, pods would have
        been evicted in vain.
        """
        if not self.partition.user_limits.limits and self._fits_beside_all(group.queue, amounts):
            return None
        reserved = [(each.group, each.amounts) for each in self.reserved(pods)]
        found = tree.blocking(group.queue, amounts, reserved)
        return found or self.partition.user_limits.blocking(group, amounts, reserved)

    def _fits_beside_all(self, leaf: Queue, amounts: Amounts) -> bool:
        """Whether a request fits below all ceilings beside everything that is reserved, for itself, too."""
        for queue in leaf.path_up:
            reserved = self._reserved.get(queue.path)
            if not reserved or not queue.ceiling:
                continue
            for kind, limit in queue.ceiling.items():
                amount = amounts.get(kind, 0)
                if amount > 0 and queue.used.get(kind, 0) + reserved.get(kind, 0) + amount > limit:
                    return False
        return True

    def _first_full_reserved(self, group: PodGroupOf, pods: Iterable[Pod]) -> Blocking | None:
        """The limit on the number of groups that this one exceeds beside those of reserved pods; None if it
        may run."""
        limits = self.partition.user_limits.limits
        if not limits and not any(queue.max_groups for queue in group.queue.path_up):
            return None
        others = {each.group.name: each.group for each in self.reserved(pods)}
        starting = [
            other
            for name, other in others.items()
            if name != group.name and (name not in self._groups or not self._groups[name].tasks)
        ]
        if not starting:
            return None
        for queue in group.queue.path_up:
            count = queue.running + sum(queue in other.queue.path_up for other in starting)
            if queue.max_groups and count >= queue.max_groups:
                return Blocking(queue.path, APPLICATIONS, count, 1, queue.max_groups)
        return self.partition.user_limits.first_full(group, starting)

    def blocking(self, pod: Pod, asked: Amounts | None = None) -> Blocking | str | None:
        """What keeps a pod waiting now: a limit, or why no queue accepts it; None if it has room.

        Args:
            asked: what the members of its group ask for together; by default what the pod asks for.
        """
        try:
            group = self.group_of(pod)
        except PlacementError as error:
            return error.explained()
        amounts = self.amounts_of(pod) if asked is None else asked
        found = self._blocking(group, amounts)
        if found is None and not group.tasks:
            found = self._first_full(group)
        if found is None and self._nominated:
            found = self._blocking_reserved(group, amounts, [pod])
            if found is None and not group.tasks:
                found = self._first_full_reserved(group, [pod])
        self._forget_if_empty(group)
        return found

    def blocking_besides(self, pod: Pod, asked: Amounts) -> Blocking | None:
        """What would keep a pod waiting if there were room below all ceilings.

        That is a limit of its owner, or one on the number of applications.
        """
        group = self.group_of(pod)
        found = self.partition.user_limits.blocking(group, asked)
        return self._first_full(group) if found is None and not group.tasks else found

    def further_blocking(self, pod: Pod, asked: Amounts, first: Blocking) -> list[Blocking]:
        """The other limits that a pod, or its group, does not fit into now, beside the first."""
        group = self.group_of(pod)
        found = [*tree.all_blocking(group.queue, asked), self.partition.user_limits.blocking(group, asked)]
        if not group.tasks:
            found.append(self._first_full(group))
        return [each for each in found if each is not None and each != first]

    def _report(self, each: PodClass, blocking: Blocking, *, new_only: bool = False) -> None:
        """Reports the limit for unreported pods of this class, or only for those of new groups."""
        waiting = _take(each.unreported_new, MAX_REPORTED_AT_ONCE)
        if new_only:
            begun = {entity: None for entity in waiting if entity.ticket[-1].group.tasks}
            each.unreported.update(begun)
            waiting = [entity for entity in waiting if entity not in begun]
        else:
            waiting += _take(each.unreported, MAX_REPORTED_AT_ONCE)
        if waiting:
            sentence, grows = blocking.sentence(), blocking.grows_with_cluster
            self.notices += (Notice(entity, sentence, grows) for entity in waiting)


def _take(entities: dict[Entity, None], count: int) -> list[Entity]:
    """Removes the first entities, at most this many."""
    taken = list(islice(entities, count))
    for entity in taken:
        del entities[entity]
    return taken
