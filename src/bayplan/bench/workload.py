"""A workload: templates of objects, and how many of each are created.

`workloads.py` has the list, `templates.py` the objects. Everything is generated from counters: two runs of
the same size create identical objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import ObjectMeta
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.pod_group import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from bayplan.bench.devices import PODS_A_CLAIM, Claims, DeviceSetup
from bayplan.bench.templates import HOSTNAME, NODE, ZONE

CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The creation time of every object: schedulers use the order of arrival, not this."""

BACKGROUND_EVERY: Final = 50
"""Measured pods for each background pod.

Upstream adds one every 200 ms. A ratio is repeatable, and the same for fast and slow schedulers; this is
upstream's ratio at 250 pods per second.
"""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are created together: `templates` alternate, `namespaces` are filled one after the other."""

    templates: tuple[Pod, ...]
    namespaces: tuple[str, ...]

    def make(self, role: str, count: int, first: int = 0) -> Iterator[Pod]:
        """Yields `count` pods, numbered from `first`; role and number make name and uid unique."""
        for index in range(count):
            template = self.templates[index % len(self.templates)]
            meta = template.metadata
            number = first + index
            yield replace(
                template,
                metadata=replace(
                    meta,
                    name=f"{meta.generate_name}{role}{number:06d}",
                    namespace=self.namespaces[index * len(self.namespaces) // count],
                    uid=_uid(role, number),
                    resource_version="1",
                    creation_timestamp=CREATED,
                ),
            )


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark: its objects, and its default sizes."""

    name: str
    summary: str
    nodes: int
    init_pods: int
    """Pods that exist when measuring starts, all sets of `init` together."""
    pods: int
    init: tuple[PodSet, ...]
    measured: PodSet
    background: PodSet | None = None
    """Pods that are created in between and not counted: `BACKGROUND_EVERY`."""
    zones: tuple[str, ...] = ()
    """Values of the zone label, assigned to the nodes in turn; empty: nodes have no zone."""
    namespace_labels: tuple[tuple[str, str], ...] = ()
    group_size: int = 0
    """Measured pods are created in gangs of this size; 0: no gangs."""
    devices: DeviceSetup | None = None
    """The devices of the nodes, and how the pods request them."""

    @property
    def needs_scheduler(self) -> bool:
        """Whether deciding alone is not enough: pods wait for each other, or claims are written."""
        return bool(self.group_size) or self.devices is not None

    def make_nodes(self, count: int) -> Iterator[Node]:
        """Yields nodes, each with its own host name, as a kubelet would register them."""
        for number in range(count):
            name = f"scheduler-perf-{number:05d}"
            labels = {HOSTNAME: name}
            if self.zones:
                labels[ZONE] = self.zones[number % len(self.zones)]
            yield replace(NODE, metadata=_meta(name, "n", number, labels))

    def make_namespaces(self) -> Iterator[Namespace]:
        """Yields every namespace of the workload's pods, whatever the number of pods."""
        sets = (*self.init, *([self.background] if self.background else []), self.measured)
        names = dict.fromkeys(name for pods in sets for name in pods.namespaces)
        for number, name in enumerate(names):
            labels = {"kubernetes.io/metadata.name": name, **dict(self.namespace_labels)}
            yield Namespace(metadata=_meta(name, "s", number, labels))

    def make_init_pods(self, count: int) -> Iterator[Pod]:
        """Yields the initial pods, set after set, in equal parts."""
        first = 0
        for index, pods in enumerate(self.init):
            share = count * (index + 1) // len(self.init) - first
            yield from self._claiming("i", pods.make("i", share, first))
            first += share

    def make_groups(self, count: int) -> Iterator[PodGroup]:
        """Yields the groups of this number of measured pods."""
        if not self.group_size:
            return
        for number in range(-(-count // self.group_size)):
            meta = replace(_meta(_group(number), "g", number, {}), namespace=self.measured.namespaces[0])
            members = min(self.group_size, count - number * self.group_size)
            yield PodGroup(metadata=meta, spec=PodGroupSpec(min_member=members))

    def _grouped(self, pods: Iterator[Pod]) -> Iterator[Pod]:
        if not self.group_size:
            yield from pods
            return
        for number, pod in enumerate(pods):
            labels = {**pod.labels, POD_GROUP_LABEL: _group(number // self.group_size)}
            yield replace(pod, metadata=replace(pod.metadata, labels=labels))

    def _claiming(self, role: str, pods: Iterator[Pod]) -> Iterator[Pod]:
        if self.devices is None or self.devices.claims is not Claims.SHARED:
            yield from pods
            return
        for number, pod in enumerate(pods):
            (entry,) = pod.spec.resource_claims
            name = f"{entry.resource_claim_name}-{role}{number // PODS_A_CLAIM:06d}"
            claims = (replace(entry, resource_claim_name=name),)
            yield replace(pod, spec=replace(pod.spec, resource_claims=claims))

    def make_pods(self, count: int) -> Iterator[Pod]:
        """Yields `count` measured pods in order of arrival, with the background pods between them."""
        arrivals = self._grouped(self._claiming("m", self.measured.make("m", count)))
        if self.background is None:
            yield from arrivals
            return
        intruders = self.background.make("b", -(-count // BACKGROUND_EVERY))
        for number, pod in enumerate(arrivals):
            if number % BACKGROUND_EVERY == 0:
                yield next(intruders)
            yield pod


def _meta(name: str, role: str, number: int, labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        uid=_uid(role, number),
        resource_version="1",
        labels=labels,
        creation_timestamp=CREATED,
    )


def _group(number: int) -> str:
    return f"group-{number:04d}"


def _uid(role: str, number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{ord(role):012x}"
