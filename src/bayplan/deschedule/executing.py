"""Makes the moves of a plan, one after the other, each checked against the cluster as it is now.

For each step: bring the copy of the cluster up to date → is the pod still there, is its owner ready, does the
scheduler still choose the node of the plan? → evict, with the pod's uid as a precondition → wait for the
replacement. A step that no longer holds is skipped with a reason; the steps after it are checked in the same
way, so a skipped step stops only those that depend on it. Nothing is written but evictions (and, with `mode:
surge`, what `surge.py` says).

In the process of a scheduler the room of the replacement is reserved before the eviction (`Room`), and the
replacement is nominated to the node, so that no other pod takes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.controllers.pods import is_ready
from bayplan.deschedule.eviction import Answer
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.plan import Move
from bayplan.deschedule.replacements import owner_of, place_replacement, template_of

POLL_SECONDS: Final = 1.0


class Outcome(StrEnum):
    """The outcome of a step."""

    MOVED = "moved"
    ELSEWHERE = "elsewhere"
    """The replacement got another node than the plan's: the cluster changed."""
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    """The API server rejected the eviction."""
    WAITING = "waiting"
    """The replacement has no node yet."""


@dataclass(frozen=True, slots=True)
class Step:
    """A move and its outcome."""

    move: Move
    outcome: Outcome
    why: str = ""
    node: str = ""
    """The node of the replacement."""


class EvictionAPI(Protocol):
    """The requests to the API server."""

    async def load(self) -> Cluster:
        """The cluster as it is now."""

    async def objects(self) -> Sequence[Object]:
        """All objects as they are now."""

    async def pods(self, namespace: str) -> Sequence[Pod]:
        """The pods of a namespace as they are now."""

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        """Evicts a pod, if it is still this one."""


class Room(Protocol):
    """Where replacements are nominated before they exist (`scheduler/reservations.py`)."""

    def reserve(self, pod: Pod, node_name: str) -> None:
        """The next pod of this pod's controller is nominated to the node; until then its room is kept."""

    def release(self, pod: Pod) -> None:
        """The reservation ends, if it was not used."""


class Surge(Protocol):
    """Creates replacements first, where the owner allows it (`surge.py`)."""

    async def move(self, pod: Pod, target: str, cluster: Cluster, *, nominated: bool) -> str | None:
        """Replaces a pod; a text if that failed; None if its owner does not allow it."""


@dataclass(slots=True)
class Rate:
    """Limits the number of evictions per minute."""

    per_minute: int
    _next: float = 0.0

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._next - loop.time()))
        self._next = loop.time() + 60.0 / self.per_minute


@dataclass(slots=True)
class Executor:
    """Makes moves at a limited rate."""

    api: EvictionAPI
    memory: Memory
    rate: Rate
    replacement_seconds: float = 300.0
    grace_period_seconds: int | None = None
    now: Callable[[], float] = time.time
    may_go_on: Callable[[], bool] = lambda: True
    """False: stop before the next eviction (paused, or no longer the leader)."""
    room: Room | None = None
    surge: Surge | None = None

    async def run(self, moves: Sequence[Move], on_step: Callable[[Step], None] | None = None) -> list[Step]:
        """Makes the moves in order."""
        steps = []
        for move in moves:
            if not self.may_go_on():
                break
            step = await self._step(move)
            steps.append(step)
            if on_step is not None:
                on_step(step)
        return steps

    async def _step(self, move: Move) -> Step:
        cluster = await self.api.load()
        pod, problem = _checked(move, cluster)
        if pod is None:
            return Step(move, Outcome.SKIPPED, problem)
        if move.target and (unready := await self._until_ready(pod)):
            return Step(move, Outcome.SKIPPED, unready)
        await self.rate.wait()
        known = {one.uid for one in await self.api.pods(pod.namespace)}
        moves = bool(move.target) and move.target != move.source
        if self.room is not None and moves:
            self.room.reserve(pod, move.target)
        try:
            if problem := await self._remove(pod, move, cluster, surges=moves):
                return Step(move, Outcome.BLOCKED, problem)
            if not move.target:
                return Step(move, Outcome.MOVED)
            node = await self._replacement(pod, known)
        finally:
            if self.room is not None:
                self.room.release(pod)
        if not node:
            return Step(move, Outcome.WAITING, f"no replacement within {self.replacement_seconds:g} s")
        if moves:
            self.memory.moved(owner_of(pod), template_of(pod), move.source, self.now())
        if node == move.target:
            return Step(move, Outcome.MOVED, node=node)
        pause = self.memory.came_back(owner_of(pod), template_of(pod), self.now())
        text = f"its replacement got {node}; {owner_of(pod)} is left alone for {pause:g} s"
        return Step(move, Outcome.ELSEWHERE, text, node)

    async def _remove(self, pod: Pod, move: Move, cluster: Cluster, *, surges: bool) -> str:
        """Evicts a pod, or lets its owner replace it first; a text if that was rejected."""
        if self.surge is not None and surges:
            problem = await self.surge.move(pod, move.target, cluster, nominated=self.room is not None)
            if problem is not None:
                return problem
        reason = f"triggered by {move.profile}/{move.strategy}: {move.why}"
        answer = await self.api.evict(pod, reason, self.grace_period_seconds)
        return (answer.message or f"the API server answered {answer.code}") if answer.code else ""

    async def _until_ready(self, pod: Pod) -> str:
        """Waits until the other pods of the owner are ready; a text if they are not in time."""
        return await self._poll(lambda: self._unready(pod), self.replacement_seconds)

    async def _unready(self, pod: Pod) -> str:
        owner = pod.metadata.controller()
        for one in await self.api.pods(pod.namespace):
            controller = one.metadata.controller()
            if one.uid == pod.uid or owner is None or controller is None or controller.uid != owner.uid:
                continue
            if not one.is_finished and not is_ready(one):
                return f"{one.key} of the same owner is not ready"
        return ""

    async def _replacement(self, pod: Pod, known: set[str]) -> str:
        """The node of the pod that the owner has created since."""
        owner, found = pod.metadata.controller(), ""
        end = asyncio.get_running_loop().time() + self.replacement_seconds
        while not found and owner is not None:
            for one in await self.api.pods(pod.namespace):
                controller = one.metadata.controller()
                if one.uid not in known and controller is not None and controller.uid == owner.uid:
                    found = found or one.spec.node_name
            if found or asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(POLL_SECONDS)
        return found

    async def _poll(self, check: Callable[[], Awaitable[str]], seconds: float) -> str:
        end = asyncio.get_running_loop().time() + seconds
        while (problem := await check()) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(POLL_SECONDS)
        return problem


def _checked(move: Move, cluster: Cluster) -> tuple[Pod | None, str]:
    """The pod of a move that still holds; or why it does not."""
    pod = cluster.find_pod(move.pod)
    if pod is None or pod.uid != move.uid:
        return None, "the pod is gone"
    if pod.is_terminating:
        return None, "the pod is being deleted"
    if pod.spec.node_name != move.source:
        return None, f"the pod is on {pod.spec.node_name or 'no node'}, not on {move.source}"
    if not move.target:
        return (pod, "") if pod.is_finished else (None, "the pod has not finished")
    if move.target == move.source:
        return pod, ""
    with cluster.branch() as trial:
        node, problem = place_replacement(trial, pod, nominated=move.target if move.nominated else "")
    if problem:
        return None, problem
    if node != move.target:
        return None, f"the scheduler would now put it on {node}, not on {move.target}"
    return pod, ""
