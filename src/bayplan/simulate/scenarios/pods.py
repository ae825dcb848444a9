"""The pods of a simulation: what becomes of each, and the templates that they are made from."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bayplan.api.meta import ObjectMeta, OwnerReference
from bayplan.api.pod import Pod, ResourceRequirements
from bayplan.simulate.scenarios.traces import TraceRow

if TYPE_CHECKING:
    from bayplan.simulate.scenarios.owners import Owner


class Outcome(StrEnum):
    """How a pod ended."""

    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    """Its node failed for longer than it tolerates."""
    NODE_REMOVED = "node-removed"
    DELETED = "deleted"
    """By its owner: scaled down, or its lifetime is over."""


class SimulatedPod:
    """One pod, from its arrival to its end. Times are seconds since the start."""

    __slots__ = (
        "arrived",
        "attempts",
        "ended",
        "is_terminating",
        "name",
        "namespace",
        "node_name",
        "outcome",
        "owner",
        "reason",
        "reason_since",
        "run_seconds",
        "scheduled",
        "shape",
        "timer",
        "uid",
        "workload",
    )

    def __init__(self, workload: str, shape: int, owner: Owner, arrived: float, run_seconds: float | None):
        self.workload = workload
        self.shape = shape
        """The number of its resource requests (`fragmentation.py`)."""
        self.owner = owner
        self.arrived = arrived
        self.run_seconds = run_seconds
        """None: it runs until the end of the simulation."""
        self.name = self.namespace = self.uid = self.node_name = ""
        self.scheduled: float | None = None
        self.ended: float | None = None
        self.outcome: Outcome | None = None
        self.is_terminating = False
        self.attempts = 0
        self.reason = 0
        """The number of the reason why it waits (`figures.py`)."""
        self.reason_since = arrived
        self.timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def make_pod(template: Pod, name: str, labels: dict[str, str], owner: OwnerReference | None) -> Pod:
    """A pod of a template that has its defaults. Records are shared between pods."""
    meta = template.metadata
    return replace(
        template,
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels={**meta.labels, **labels} if labels else meta.labels,
            annotations=meta.annotations,
            owner_references=() if owner is None else (owner,),
        ),
    )


class TraceTemplates:
    """The pods of a trace: a template with other requests, one for each distinct combination."""

    def __init__(self, template: Pod) -> None:
        self._template = template
        self._made: dict[tuple[object, ...], Pod] = {}

    def of(self, row: TraceRow) -> Pod:
        key = row.requests, row.priority, row.annotations
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._make(row)
        return found

    def _make(self, row: TraceRow) -> Pod:
        spec = self._template.spec
        first, *others = spec.containers
        requests = {**first.resources.requests, **dict(row.requests)}
        limits = {name: amount for name, amount in first.resources.limits.items() if name not in requests}
        limits.update({name: amount for name, amount in requests.items() if "/" in name})
        first = replace(first, resources=ResourceRequirements(requests=requests, limits=limits))
        spec = replace(spec, containers=(first, *others))
        if row.priority is not None:
            spec = replace(spec, priority=row.priority)
        meta = self._template.metadata
        if row.annotations:
            meta = replace(meta, annotations={**meta.annotations, **dict(row.annotations)})
        return replace(self._template, metadata=meta, spec=spec)
