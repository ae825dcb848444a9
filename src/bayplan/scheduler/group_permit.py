"""Permit for the members that one attempt of a group has placed: so many pass as must run together, or none.

Reserve and Permit run for all members before the first of them is bound. If a plugin lets a member wait
without which too few are left, the others wait with it. If such a member is rejected, so are the others. A
gang is therefore not bound in part, and does not hold nodes for members that do not come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from bayplan.framework.points import Point
from bayplan.framework.status import SUCCESS, Code, Status
from bayplan.runtime.extension_points import MAX_WAIT_SECONDS, RejectedError
from bayplan.runtime.profile import Profile
from bayplan.scheduler.binding import Attempt, Bindings
from bayplan.scheduler.waiting import WaitingPod
from bayplan.state.groups import SCHEDULED_COUNT, Group, GroupState, GroupStates

GANG_SCHEDULING: Final = "GangScheduling"
"""The plugin that requires members to be scheduled together. Profiles may disable it."""
SIBLINGS: Final = "PodGroup"
"""Shown in place of a plugin for members that wait for others."""
REJECTED: Final = (
    "pod group is unschedulable, pod {pod} was rejected after a node had been found for it: {why}"
)


class GroupPermit:
    """The members of one attempt between their placement and their bindings.

    Args:
        root: the group, or that above all of them.
        ended: called once with the result, as soon as it is known whether they are bound.
    """

    def __init__(
        self, bindings: Bindings, states: GroupStates, root: Group, ended: Callable[[Status], None]
    ) -> None:
        self._bindings = bindings
        self._states = states
        self._root = root
        self._ended: Callable[[Status], None] | None = ended
        self._waiting: dict[str, WaitingPod] = {}
        """By uid."""
        self._why = ""
        """Who was rejected first, and why."""

    def commit(self, attempts: Sequence[Attempt], profile: Profile) -> Code:
        """Runs Reserve and Permit for members that are assumed, and starts their bindings.

        Returns success if no member failed: those that did must not be tried again at once.
        """
        together = self._root.is_gang or self._root.key.is_composite
        together = together and any(step.name == GANG_SCHEDULING for step in profile.permits)
        also = {SIBLINGS: MAX_WAIT_SECONDS} if together else {}
        committed, code = [], Code.SUCCESS
        for attempt in attempts:
            if together and self._why and not self._states.is_ready(self._root, SCHEDULED_COUNT):
                self._bindings.reject(attempt, RejectedError(self._rejection(), Point.PERMIT))
                continue
            error = self._bindings.commit(attempt, also)
            if error is None:
                committed.append(attempt)
            else:
                self._rejected(attempt, str(error))
                code = Code.UNSCHEDULABLE if isinstance(error, RejectedError) else Code.ERROR
        waits = any(attempt.waiting is not None for attempt in committed)
        if together and (waits or len(committed) < len(attempts)):
            self._hold(committed)
        for attempt in committed:
            self._bindings.start(attempt)
        self._check()
        return code

    def _rejection(self) -> Status:
        return Status(Code.UNSCHEDULABLE, (self._why,), GANG_SCHEDULING)

    def _hold(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if attempt.waiting is None:
                self._bindings.hold(attempt, {SIBLINGS: MAX_WAIT_SECONDS})
            waiting = attempt.waiting
            assert waiting is not None
            if waiting.is_rejected:
                self._rejected(attempt, waiting.message)
            self._waiting[attempt.pod.uid] = waiting
            waiting.changed = lambda attempt=attempt, waiting=waiting: self._changed(attempt, waiting)

    def _changed(self, attempt: Attempt, waiting: WaitingPod) -> None:
        if waiting.is_rejected:
            self._rejected(attempt, waiting.message)
        self._check()

    def _rejected(self, attempt: Attempt, why: str) -> None:
        self._why = self._why or REJECTED.format(pod=attempt.pod.key, why=why)

    def _check(self) -> None:
        """Lets the members pass if enough of them may, and rejects them if that is no longer possible."""
        ended, states = self._ended, self._states
        if ended is None:
            return
        waiting = list(self._waiting.items())
        rejected = {uid for uid, one in waiting if one.is_rejected}
        held = {uid for uid, one in waiting if set(one.pending_plugins) - {SIBLINGS}}
        root = states.group(self._root.key) or self._root
        if states.is_ready(root, _without(rejected | held)) or not (self._why or waiting):
            result = SUCCESS
        elif states.is_ready(root, _without(rejected)):
            return
        else:
            result = self._rejection()
        self._ended = None
        for _, one in waiting:
            if result.is_success:
                one.allow(SIBLINGS)
            else:
                one.reject(GANG_SCHEDULING, self._why)
        ended(result)


def _without(uids: Collection[str]) -> Callable[[GroupState], int]:
    """Counts the members that are scheduled, without some."""
    if not uids:
        return SCHEDULED_COUNT
    return lambda state: state.scheduled_count - sum(uid in state.scheduled for uid in uids)
