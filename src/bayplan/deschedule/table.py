"""The cluster as descheduling sees it: columns over all pods, finished ones too, and over the nodes.

`PodColumns` lives as long as the process: `sync` computes only pods that changed. What pods of one template
have in common (requests, tolerations, affinity) is stored once, by the id of their *spec*; labels, owners and
container states are interned in the same way, so that a strategy evaluates a selector or a list of states
once for each distinct value. `ClusterTable` is one cycle: its rows are nodes by name, its slots pods by
namespace and name, which makes every result repeatable; evictions of the cycle change it.

The columns of the scheduler (`bayplan.state`) have only pods that count on a node, so they are not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from itertools import compress, filterfalse
from operator import is_not
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import OwnerReference
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import ContainerStatus, Pod
from bayplan.api.quantity import CPU, MEMORY, PODS, parse_quantity, resource_units
from bayplan.api.requests import BEST_EFFORT, BURSTABLE, GUARANTEED, fit_requests, qos_class
from bayplan.api.selectors import Selector
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.state.columns import Interner, Lookup

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
REQUEST_EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
EVICTION_IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
_MIRROR: Final = "kubernetes.io/config.mirror"
_SOURCE: Final = "kubernetes.io/config.source"

NOT_REQUESTED: Final = -(2**62)
"""Stands for a resource that a pod does not request, in comparisons with what is free."""
MIN_VALUES: Final = 10_000
"""At least this many distinct label sets, owners, states and specs are kept."""
_FIRST_RESOURCES: Final = (CPU, MEMORY, PODS)
BASIC: Final = len(_FIRST_RESOURCES)
"""The number of resources that come first in every table: cpu, memory, pods."""


class Flag(IntFlag):
    """Boolean properties of a pod."""

    MIRROR = 1
    STATIC = 2
    TERMINATING = 4
    OWNED = 8
    LOCAL_STORAGE = 16
    DAEMON = 32
    PVC = 64
    CLAIMS = 128
    EVICT = 256
    PREFER_NO_EVICTION = 512
    REQUEST_EVICT = 1024
    FINISHED = 2048
    FAILED = 4096
    HAS_PRIORITY = 8192


@dataclass(frozen=True, slots=True)
class States:
    """What containers and the pod report: the phase, reasons and exit codes."""

    phase: str
    reason: str
    waiting: frozenset[str] = frozenset()
    terminated: frozenset[str] = frozenset()
    exit_codes: frozenset[int] = frozenset()
    init_waiting: frozenset[str] = frozenset()
    init_terminated: frozenset[str] = frozenset()
    init_exit_codes: frozenset[int] = frozenset()
    ephemeral: frozenset[str] = frozenset()

    def reasons(self, *, init: bool) -> frozenset[str]:
        """Why containers wait or have terminated."""
        found = self.waiting | self.terminated
        return found | self.init_waiting | self.init_terminated if init else found

    def codes(self, *, init: bool) -> frozenset[int]:
        """The exit codes of terminated containers."""
        return self.exit_codes | self.init_exit_codes if init else self.exit_codes


_COLUMNS: Final[dict[str, Any]] = {
    "namespace": np.intp,
    "labels": np.intp,
    "spec": np.intp,
    "owners": np.intp,
    "states": np.intp,
    "node": np.intp,
    "flags": np.int64,
    "priority": np.int64,
    "qos": np.int64,
    "created": np.float64,
    "started": np.float64,
    "restarts": np.int64,
    "init_restarts": np.int64,
}
"""`node`: the id of spec.nodeName; `created`, `started`: seconds, NaN if unknown; `qos`: 0 BestEffort to 2
Guaranteed."""

_encoder: Final = msgspec.msgpack.Encoder()
_Labels = tuple[tuple[str, str], ...]


class PodColumns:
    """What descheduling reads of every pod, one slot a pod, in the order of namespace and name."""

    def __init__(self) -> None:
        self.namespaces: Interner[str] = Interner()
        self.nodes: Interner[str] = Interner()
        self.labels: Interner[_Labels] = Interner()
        self.owners: Interner[tuple[OwnerReference, ...]] = Interner()
        self.states: Interner[States] = Interner()
        self.specs: Interner[bytes] = Interner()
        self.spec_pods: list[Pod] = []
        """A pod of each spec."""
        self.resources: list[str] = list(_FIRST_RESOURCES)
        self.requests: Ints = np.zeros((0, len(self.resources)), np.int64)
        """(specs, resources): what a pod needs, as the scheduler counts it; `pods` is 1."""
        self.requested: Bools = np.zeros((0, len(self.resources)), np.bool_)
        """(specs, resources): whether the pod names the resource, if only with 0."""
        self.pods: list[Pod] = []
        """In the order of namespace and name."""
        self.by_name = {name: np.zeros(0, dtype) for name, dtype in _COLUMNS.items()}
        """The columns, one value a pod. They are replaced, not written to: tables of a cycle share them."""
        self._slots: dict[tuple[str, str], int] = {}
        self._synced: list[Pod] = []
        """The pods as they were given last, in the informer's order."""

    def sync(self, pods: Iterable[Pod]) -> None:
        """Brings the columns up to date with these pods, which are all of the cluster."""
        used = (len(self.labels), len(self.owners), len(self.states), len(self.specs))
        if max(used) > self._max_values():
            self.__init__()  # type: ignore[misc]  # values that no pod has any more are forgotten
        pods = list(pods)
        changed = self._changes(pods)
        if changed is None:
            changed = self._arrange(pods)
        self._synced = pods
        if changed:
            self._write(changed)

    def _changes(self, pods: list[Pod]) -> list[tuple[int, Pod]] | None:
        """The pods that changed since the last sync, with their slots; None if some were added or removed."""
        if len(pods) != len(self._synced):
            return None
        changed = []
        for old, new in compress(zip(self._synced, pods, strict=True), map(is_not, self._synced, pods)):
            if (old.namespace, old.name) != (new.namespace, new.name):
                return None
            changed.append((self._slots[new.namespace, new.name], new))
        if changed:
            self.pods = self.pods.copy()
            for slot, new in changed:
                self.pods[slot] = new
        return changed

    def _arrange(self, pods: list[Pod]) -> list[tuple[int, Pod]]:
        """Gives each pod its slot. Returns those that are new or have changed, with their slots."""
        known, slots = self.pods, self._slots
        by_key = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
        # The kept keys are in order, so that sorting takes little more than one comparison a key.
        order = sorted([*filter(by_key.__contains__, slots), *filterfalse(slots.__contains__, by_key)])
        came_from = np.fromiter((slots.get(key, -1) for key in order), np.intp, len(order))
        for name, column in self.by_name.items():
            self.by_name[name] = np.append(column, column.dtype.type(0))[came_from]
        self._slots = {key: slot for slot, key in enumerate(order)}
        self.pods = [by_key[key] for key in order]
        return [
            (slot, pod)
            for slot, (was, pod) in enumerate(zip(came_from.tolist(), self.pods, strict=True))
            if was < 0 or known[was] is not pod
        ]

    def _max_values(self) -> int:
        return 4 * len(self._slots) + MIN_VALUES

    def _write(self, changed: list[tuple[int, Pod]]) -> None:
        at = np.fromiter((slot for slot, _ in changed), np.intp, len(changed))
        facts = [self._facts(pod) for _, pod in changed]
        for (name, column), values in zip(self.by_name.items(), zip(*facts, strict=True), strict=True):
            self.by_name[name] = column.copy()
            self.by_name[name][at] = np.array(values, _COLUMNS[name])

    def _facts(self, pod: Pod) -> tuple[float, ...]:
        """The values of one pod, in the order of `_COLUMNS`."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        flags = _flags(pod)
        spec_id = self._spec_id(pod)
        statuses = status.container_statuses
        inits = status.init_container_statuses
        if statuses or inits or status.reason or status.ephemeral_container_statuses:
            states = _states(pod)
        else:
            states = States(status.phase, "")
        qos = _QOS.get(status.qos_class)
        started, created = status.start_time, meta.creation_timestamp
        return (
            self.namespaces.intern(meta.namespace),
            self.labels.intern(tuple(sorted(meta.labels.items())) if meta.labels else ()),
            spec_id,
            self.owners.intern(meta.owner_references),
            self.states.intern(states),
            self.nodes.intern(spec.node_name),
            flags,
            spec.priority or 0,
            _QOS_RANKS[qos_class(pod, pod_level=False)] if qos is None else qos,
            np.nan if created is None else created.timestamp(),
            np.nan if started is None else started.timestamp(),
            sum(one.restart_count for one in statuses),
            sum(one.restart_count for one in inits),
        )

    def _spec_id(self, pod: Pod) -> int:
        spec = pod.spec
        key = _encoder.encode(
            (
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
            )
        )
        found = self.specs.intern(key)
        if found == len(self.spec_pods):
            self.spec_pods.append(pod)
            self._add_requests(fit_requests(pod))
        return found

    def _add_requests(self, requests: dict[str, int]) -> None:
        new = [name for name in requests if name not in self.resources]
        if new:
            self.resources += new
            more = ((0, 0), (0, len(new)))
            self.requests = np.pad(self.requests, more)
            self.requested = np.pad(self.requested, more)
        row = np.zeros((1, len(self.resources)), np.int64)
        named = np.zeros((1, len(self.resources)), np.bool_)
        for name, amount in requests.items():
            row[0, self.resources.index(name)] = amount
            named[0, self.resources.index(name)] = True
        row[0, 2] = 1
        count = len(self.spec_pods)
        if len(self.requests) < count:
            grown = max(64, 2 * count)
            self.requests = np.concatenate(
                [self.requests[: count - 1], np.zeros((grown - count + 1, row.shape[1]), np.int64)]
            )
            self.requested = np.concatenate(
                [self.requested[: count - 1], np.zeros((grown - count + 1, row.shape[1]), np.bool_)]
            )
        self.requests[count - 1], self.requested[count - 1] = row[0], named[0]


_QOS: Final = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
_QOS_RANKS: Final = {BEST_EFFORT: 0, BURSTABLE: 1, GUARANTEED: 2}


def _flags(pod: Pod) -> Flag:
    meta, spec = pod.metadata, pod.spec
    flags = 0
    if annotations := meta.annotations:
        flags |= Flag.MIRROR * (_MIRROR in annotations)
        flags |= Flag.STATIC * (annotations.get(_SOURCE, "api") != "api")
        flags |= Flag.EVICT * (EVICT in annotations)
        flags |= Flag.PREFER_NO_EVICTION * (PREFER_NO_EVICTION in annotations)
        flags |= Flag.REQUEST_EVICT * (REQUEST_EVICT_ONLY in annotations)
    if meta.deletion_timestamp is not None:
        flags |= Flag.TERMINATING
    if meta.owner_references:
        flags |= Flag.OWNED
        flags |= Flag.DAEMON * any(owner.kind == "DaemonSet" for owner in meta.owner_references)
    for volume in spec.volumes:
        if volume.host_path is not None or volume.empty_dir is not None:
            flags |= Flag.LOCAL_STORAGE
        elif volume.persistent_volume_claim is not None:
            flags |= Flag.PVC
    if spec.resource_claims:
        flags |= Flag.CLAIMS
    if pod.status.phase in ("Succeeded", "Failed"):
        flags |= Flag.FINISHED
        flags |= Flag.FAILED * (pod.status.phase == "Failed")
    if spec.priority is not None:
        flags |= Flag.HAS_PRIORITY
    return Flag(flags)


def _states(pod: Pod) -> States:
    status = pod.status

    def waiting(statuses: Sequence[ContainerStatus]) -> frozenset[str]:
        found = (one.state.waiting for one in statuses if one.state is not None)
        return frozenset(one.reason for one in found if one is not None)

    def terminated(statuses: Sequence[ContainerStatus]) -> tuple[frozenset[str], frozenset[int]]:
        found = [one.state.terminated for one in statuses if one.state is not None]
        ended = [one for one in found if one is not None]
        return frozenset(one.reason for one in ended), frozenset(one.exit_code for one in ended)

    containers, inits = status.container_statuses, status.init_container_statuses
    ephemeral = status.ephemeral_container_statuses
    return States(
        status.phase,
        status.reason,
        waiting(containers),
        *terminated(containers),
        waiting(inits),
        *terminated(inits),
        waiting(ephemeral) | terminated(ephemeral)[0],
    )


class ClusterTable:
    """One cycle's view: nodes by name, pods by namespace and name. Evictions change it."""

    def __init__(
        self,
        columns: PodColumns,
        nodes: Iterable[Node],
        *,
        namespaces: Iterable[Namespace] = (),
        budgets: Iterable[PodDisruptionBudget] = (),
        claims: Iterable[PersistentVolumeClaim] = (),
    ) -> None:
        self.columns = columns
        self.nodes = sorted(nodes, key=lambda node: node.metadata.name)
        self.row_of = {node.metadata.name: row for row, node in enumerate(self.nodes)}
        self.namespaces = {one.name: one for one in namespaces}
        self.budgets = list(budgets)
        self.claims = {one.key: one for one in claims}
        self.pods, of = columns.pods, columns.by_name
        self.namespace: NDArray[np.intp] = of["namespace"]
        self.labels: NDArray[np.intp] = of["labels"]
        self.spec: NDArray[np.intp] = of["spec"]
        self.owners: NDArray[np.intp] = of["owners"]
        self.states: NDArray[np.intp] = of["states"]
        self.flags: Ints = of["flags"].copy()
        self.priority: Ints = of["priority"]
        self.qos: Ints = of["qos"]
        self.created: Floats = of["created"]
        self.started: Floats = of["started"]
        self.restarts: Ints = of["restarts"]
        self.init_restarts: Ints = of["init_restarts"]
        rows = np.array([self.row_of.get(name, -1) for name in columns.nodes.values], np.intp)
        self.row: NDArray[np.intp] = rows[of["node"]] if len(rows) else np.zeros(0, np.intp)
        """The row of the pod's node; -1 without one."""
        self.alive: Bools = np.ones(len(self.pods), np.bool_)
        """Whether the pod has not been evicted in this cycle."""
        self.changed_rows: list[int] = []
        """The rows of pods that were evicted or moved, in order."""
        self.is_ready: Bools = np.array([is_ready(node) for node in self.nodes], np.bool_)
        self._used: Ints | None = None

    # Nodes

    @cached_property
    def unschedulable(self) -> Bools:
        return np.array([node.spec.unschedulable for node in self.nodes], np.bool_)

    @cached_property
    def allocatable(self) -> Ints:
        """(nodes, resources)"""
        amounts = np.zeros((len(self.nodes), len(self.columns.resources)), np.int64)
        index = {name: i for i, name in enumerate(self.columns.resources)}
        for row, node in enumerate(self.nodes):
            for name, quantity in node.status.allocatable.items():
                if name in index:
                    amounts[row, index[name]] = resource_units(name, parse_quantity(quantity))
        return amounts

    @property
    def used(self) -> Ints:
        """(nodes, resources): the requests of the pods that are not finished.

        Computed when a strategy first needs it, and then kept up to date.
        """
        if self._used is None:
            counted = self.counted
            amounts = self.columns.requests[self.spec[counted]][:, : len(self.columns.resources)]
            self._used = np.zeros_like(self.allocatable)
            np.add.at(self._used, self.row[counted], amounts)
        return self._used

    @property
    def counted(self) -> Bools:
        """Pods that use resources of a known node."""
        found: Bools = self.alive & (self.row >= 0) & (self.flags & Flag.FINISHED == 0)
        return found

    # Pods

    def has(self, flag: Flag) -> Bools:
        found: Bools = self.flags & flag != 0
        return found

    def matches(self, selector: Selector) -> Bools:
        """The pods whose labels match."""
        found = Lookup(self.columns.labels, lambda labels: selector.matches(dict(labels)))
        return np.asarray(found(self.labels), np.bool_)

    def in_namespaces(self, names: Iterable[str]) -> Bools:
        wanted = [self.columns.namespaces.intern(name) for name in names]
        return np.isin(self.namespace, wanted)

    def without_owners(self, kinds: Iterable[str]) -> Bools:
        """The pods that have no owner of these kinds."""
        excluded = frozenset(kinds)
        return self.by_owners(lambda owners: all(one.kind not in excluded for one in owners))

    def by_state(self, test: Callable[[States], bool]) -> Bools:
        """The pods for whose `States` the test holds."""
        return np.asarray(Lookup(self.columns.states, test)(self.states), np.bool_)

    def by_owners(self, test: Callable[[tuple[OwnerReference, ...]], bool]) -> Bools:
        """The pods for whose owner references the test holds."""
        return np.asarray(Lookup(self.columns.owners, test)(self.owners), np.bool_)

    def by_spec(self, test: Callable[[Pod], bool]) -> Bools:
        """The pods for which the test holds. It is called once for all pods with the same containers, node
        selector, affinity, tolerations and spread constraints, and may read nothing else."""
        return np.array([test(pod) for pod in self.columns.spec_pods], np.bool_)[self.spec]

    def by_spec_and_row(self, rows_of: Callable[[int, Pod], Bools | None]) -> Bools:
        """The pods on rows that a function of their spec selects; None selects no row."""
        selected = np.zeros(len(self.pods), np.bool_)
        slots = np.flatnonzero(self.row >= 0)
        if not len(slots):
            return selected
        slots = slots[np.argsort(self.spec[slots], kind="stable")]
        starts = np.flatnonzero(np.diff(self.spec[slots], prepend=-1))
        for start, group in zip(starts.tolist(), np.split(slots, starts[1:]), strict=True):
            spec = int(self.spec[slots[start]])
            rows = rows_of(spec, self.columns.spec_pods[spec])
            if rows is not None:
                selected[group] = rows[self.row[group]]
        return selected

    def requests_of(self, slot: int) -> Ints:
        found: Ints = self.columns.requests[self.spec[slot]][: len(self.columns.resources)]
        return found

    # Changes

    def remove(self, slot: int) -> None:
        """The pod is gone."""
        if not self.alive[slot]:
            return
        row = int(self.row[slot])
        if self._used is not None and row >= 0 and not self.flags[slot] & Flag.FINISHED:
            self._used[row] -= self.requests_of(slot)
        self.alive[slot] = False
        self.changed_rows.append(row)

    def move(self, slot: int, row: int) -> None:
        """The pod's replacement is on another node."""
        was = int(self.row[slot])
        if self._used is not None:
            self._used[was] -= self.requests_of(slot)
            self._used[row] += self.requests_of(slot)
        self.row[slot] = row
        self.changed_rows += [was, row]

    def mark_terminating(self, slot: int) -> None:
        self.flags[slot] |= Flag.TERMINATING


def is_ready(node: Node) -> bool:
    """Whether no condition says that it is not ready. Cordoned and tainted nodes are ready, too."""
    for one in node.status.conditions:  # noqa: SIM110 - a generator takes three times as long
        if one.type == "Ready" and one.status != "True":
            return False
    return True
