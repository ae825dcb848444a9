"""Converts Volcano's objects for the engine: Queues to specs, groups to jobs, limits to sentences.

`VolcanoQueues` (`active.py`) keeps them in a tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from bayplan.api import volcano
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.quantity import resource_amounts
from bayplan.queues.amounts import Amounts, readable
from bayplan.queues.records import PodGroupOf
from bayplan.queues.tree import Blocking, Queue
from bayplan.queues.users import UserLimits
from bayplan.queues.volcano import accounts, drf
from bayplan.queues.volcano.accounts import OPEN, ROOT, Account, Entitlement, Lack, QueueSpec
from bayplan.queues.volcano.resources import Resources

_NOT_USED: Final = ("volcano.sh/dequeue-strategy",)
"""Annotations of queues."""


@dataclass(frozen=True, slots=True)
class QueueLimit(Blocking):
    """The limit of a Volcano queue that a pod waits for."""

    name: str = ""
    """The name of the queue."""
    word: str = "capability"
    """Which limit it is, as Volcano calls it."""
    note: str = ""

    def without_amounts(self) -> str:
        return f"waiting for queue {self.name}: {self.kind or self.note}"

    def sentence(self) -> str:
        if not self.kind:
            return self.without_amounts()
        kind = "vcore" if self.kind == "cpu" else self.kind
        used, asked, limit = (readable(kind, each) for each in (self.used, self.asked, self.limit))
        note = f" ({self.note})" if self.note else ""
        return f"{self.without_amounts()} {used} allocated, {asked} requested, {limit} {self.word}{note}"


def limit_of(lack: Lack, asked: Amounts, kind_of_limit: Entitlement) -> QueueLimit:
    """What a queue lacks, in numbers."""
    account, spec = lack.account, lack.account.spec
    if not lack.kinds:
        note = f"it is {spec.state}, so it accepts no pods"
        return QueueLimit(account.queue.path, "", 0, 0, 0, name=spec.name, word="state", note=note)
    kind = lack.kinds[0]
    limit = accounts.limit_of(account, kind_of_limit).get(kind, 0.0)
    word, note, own = lack.limit, "", spec.capability.get(kind, inf)
    if word == "capability" and limit < own:
        word = "left by the guarantees of other queues"
    elif word == "deserved" and limit >= own:
        word = "capability"  # it deserves no more, whatever its weight
    elif word == "deserved":
        note = f"weight {spec.weight}"
    used, requested = int(account.allocated.get(kind, 0)), int(asked.get(kind, 0))
    return QueueLimit(
        account.queue.path,
        kind,
        used,
        requested,
        int(limit),
        grows_with_cluster=word != "capability" and used + requested <= own,
        name=spec.name,
        word=word,
        note=note,
    )


def limit_for_job(lack: Lack, asked: Amounts, kind_of_limit: Entitlement) -> QueueLimit:
    """What a queue lacks for the minimum of a job, besides what admitted jobs will ask for."""
    limit = limit_of(lack, asked, kind_of_limit)
    reserved = int(lack.account.inqueue.get(limit.kind, 0))
    if not reserved:
        return limit
    shown = readable("vcore" if limit.kind == "cpu" else limit.kind, reserved)
    return replace(limit, note=f"{shown} reserved for jobs that are admitted")


def limit_beside_pipelined(
    lack: Lack, asked: Amounts, kind_of_limit: Entitlement, pipelined: Mapping[str, Resources]
) -> QueueLimit:
    """What a queue lacks for a pod, besides what victims are making room for."""
    limit = limit_of(lack, asked, kind_of_limit)
    kept = int(pipelined.get(lack.account.name, {}).get(limit.kind, 0))
    shown = readable("vcore" if limit.kind == "cpu" else limit.kind, kept)
    return replace(limit, note=f"{shown} pipelined for pods that wait for their victims")


@dataclass(slots=True)
class JobView:
    """A job as `jobs.py` and `victims.py` see it."""

    name: str
    account: Account
    priority: int
    created: float
    min_available: int
    ready: int
    allocated: Resources
    capacity: Resources

    @property
    def is_ready(self) -> bool:
        return self.ready >= self.min_available

    @property
    def share(self) -> float:
        return drf.job_share(self.allocated, self.capacity)


class JobGroup(PodGroupOf):
    """A group with its PodGroup object, and the queue that its pods name, which counts if there is none."""

    __slots__ = ("own_queue", "pod_group")

    def __init__(
        self, name: str, queue: Queue, created: float, own_queue: str, pod_group: volcano.PodGroup | None
    ) -> None:
        super().__init__(name, queue, "", (), created)
        self.own_queue = own_queue
        self.pod_group = pod_group


class VolcanoTree:
    """The tree of queues, without limits by user."""

    def __init__(self) -> None:
        self.root = Queue(ROOT, leaf=False)
        self.user_limits = UserLimits()

    def find(self, path: str) -> Queue | None:
        return self.root.find(path)

    def remove_if_empty(self, queue: Queue) -> bool:
        return False


def same_spec(old: Object | None, new: Object | None) -> bool:
    """Whether a PodGroup asks for the same as before."""
    return isinstance(old, volcano.PodGroup) and isinstance(new, volcano.PodGroup) and old.spec == new.spec


def is_unschedulable(item: volcano.PodGroup) -> bool:
    """Whether an attempt to schedule the group has failed, not only members or room were missing."""
    return any(
        (one.type, one.status, one.reason) == ("Unschedulable", "True", "NotEnoughResources")
        for one in item.status.conditions
    )


def job_name(pod: Pod) -> str:
    """The name of a pod's group: its PodGroup, or the one that Volcano makes for its owner."""
    meta = pod.metadata
    notes = meta.annotations
    name = notes.get(volcano.GROUP_ANNOTATION) or notes.get(volcano.OTHER_GROUP_ANNOTATION, "")
    if name:
        return f"{meta.namespace}/{name}"
    owner = meta.controller()
    return f"{meta.namespace}/podgroup-{meta.uid if owner is None else owner.uid}"


def amounts_of(requests: Mapping[str, int]) -> dict[str, int]:
    """What the pod counts with: its requests, and one of `pods`."""
    amounts = {kind: amount for kind, amount in requests.items() if amount}
    amounts["pods"] = 1
    return amounts


def spec_of(item: volcano.Queue) -> QueueSpec:
    """A Queue object in base units."""
    spec, meta = item.spec, item.metadata
    stamp = meta.creation_timestamp
    return QueueSpec(
        item.name,
        weight=spec.weight,
        capability=resource_amounts(spec.capability),
        deserved=resource_amounts(spec.deserved),
        guarantee=resource_amounts(spec.guarantee.resource),
        parent=spec.parent,
        priority=spec.priority,
        reclaimable=spec.reclaimable is not False,
        state=item.status.state or OPEN,
        created=0.0 if stamp is None else stamp.timestamp(),
        hierarchy=meta.annotations.get("volcano.sh/hierarchy", ""),
        hierarchy_weights=meta.annotations.get("volcano.sh/hierarchy-weights", ""),
        not_used=(*spec.not_used, *(name for name in _NOT_USED if name in meta.annotations)),
    )


def queue_problem(spec: QueueSpec) -> str:
    """Why a queue cannot be used: what Volcano's webhook would reject; "" if it can."""
    if spec.weight < 1:
        return f"queue {spec.name} cannot be used: its weight is {spec.weight}, which must be positive"
    for lower, upper, small, large in (
        ("deserved", "guarantee", spec.guarantee, spec.deserved),
        ("capability", "deserved", spec.deserved, spec.capability),
        ("capability", "guarantee", spec.guarantee, spec.capability),
    ):
        for kind, amount in small.items():
            most = large.get(kind)
            if most is not None and amount > most:
                unit = "vcore" if kind == "cpu" else kind
                shown = (readable(unit, int(each)) for each in (most, amount))
                text = "queue {} cannot be used: {}[{}]={} must be >= {}[{}]={}"
                first, second = shown
                return text.format(spec.name, lower, kind, first, upper, kind, second)
    return ""
