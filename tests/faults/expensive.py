"""Expensive claims in a fault run: searches that take time, while probes wait and other pods are to be bound.

Some of the seeds with devices have them (`has_expensive_claims`). The scheduler gets a clock on which the
steps of a search take time, so the whole loop stands still meanwhile, as it does in a live scheduler.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from bayplan.api.devices import ResourceClaim, ResourceSlice
from bayplan.api.meta import ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Container, Pod, PodResourceClaim, PodSpec
from bayplan.dra.budget import LIVE_SHARE, MAX_DEBT_SECONDS
from bayplan.errors import APIError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.simulate.virtual_time import VirtualLoop
from bayplan.testing.builders import make_device_class
from tests.dra.hard import hard_claim, hard_slices
from tests.faults.devices import EVERY, NAMESPACE, SCHEDULER

STEPS_PER_SECOND: Final = 50_000
"""A tenth of a fast machine's, so that a life takes less real time."""
MAX_PODS: Final = 4
PREFIX: Final = "hard-"
DRIVER: Final = "partitions.example.com"
CLASS: Final = "partition"
PROBE_SECONDS: Final = 0.5
MAX_DELAY_SECONDS: Final = 1.0
"""Within which a probe has to be answered."""


def has_expensive_claims(seed: int) -> bool:
    return seed % (2 * EVERY) == 0


class SlowSearches:
    """The clock of searches: others wait while one takes time."""

    is_live = True

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.seconds = 0.0

    def advance(self, steps: int) -> float:
        seconds = steps / STEPS_PER_SECOND
        self.seconds += seconds
        self._loop.busy(seconds)
        return self._loop.time()

    def problems(self, lives: int) -> Iterator[str]:
        """The searches took so much time that other pods had to wait; each scheduler starts from zero."""
        allowed = self._loop.time() * LIVE_SHARE * 1.5 + lives * 3 * MAX_DEBT_SECONDS
        if self.seconds > allowed:
            yield f"searches took {self.seconds:.1f} of {self._loop.time():.1f} s"


class Probes:
    """Asks again and again whether the loop answers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.max_delay = 0.0

    async def run(self) -> None:
        while True:
            due = self._loop.time() + PROBE_SECONDS
            await asyncio.sleep(PROBE_SECONDS)
            self.max_delay = max(self.max_delay, self._loop.time() - due)

    def problems(self) -> Iterator[str]:
        if self.max_delay > MAX_DELAY_SECONDS:
            yield f"a probe was answered after {self.max_delay:.1f} s"


class ExpensiveClaims:
    """Users that ask for devices which no node has, in a way that takes long to find out."""

    def __init__(self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None]) -> None:
        self._store = store
        self._rng = rng
        self._trace = trace
        self._count = 0
        self.actions: list[tuple[int, Callable[[], None]]] = [(12, self.publish), (12, self.create_pod)]

    def begin(self) -> None:
        self._store.create(make_device_class(CLASS, f'device.driver == "{DRIVER}"'))
        for _ in range(4):
            self.publish()
        self.create_pod()

    def publish(self) -> None:
        """A driver publishes partitions of the devices of a node."""
        known = {item.name for item in self._store.list(ResourceSlice)}
        nodes = [node.name for node in self._store.list(Node) if f"{node.name}-devices" not in known]
        if nodes:
            name = self._rng.choice(nodes)
            self._trace(f"node {name} has partitions")
            for item in hard_slices(name, DRIVER):
                self._store.create(item)

    def create_pod(self) -> None:
        if len(self._pods()) >= MAX_PODS:
            return
        self._count += 1
        name = f"{PREFIX}{self._count}"
        self._trace(f"pod {name} comes: with an expensive claim")
        self._store.create(hard_claim(name, CLASS))
        spec = PodSpec(
            scheduler_name=SCHEDULER,
            containers=(Container(name="main"),),
            resource_claims=(PodResourceClaim(name="gpu", resource_claim_name=name),),
        )
        self._store.create(Pod(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec))

    def give_up(self) -> None:
        """The users delete their pods, so that what is left can be checked without long searches."""
        for pod in self._pods():
            with suppress(APIError):
                self._store.delete(Pod, pod.name, pod.namespace)
                self._store.delete(ResourceClaim, pod.name, pod.namespace)

    def _pods(self) -> list[Pod]:
        return [pod for pod in self._store.list(Pod) if pod.name.startswith(PREFIX)]
