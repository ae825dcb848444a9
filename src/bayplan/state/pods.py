"""Pods as columns, and what scheduling reads of them.

Pods of a Deployment differ in name and uid and in nothing that scheduling reads. `pod_signature` encodes what
it does read; pods with equal signatures share one `PodInfo`, and the framework caches its results by the same
signature (`runtime/signature_results.py`). A plugin that declares its `Dependencies` reads only some fields:
they are its fragment of the signature (`PodSigner`), and pods with equal fragments share its results
(`runtime/plugin_results.py`).

`PodTable` has one slot for each pod that is on a node or nominated to one. What preemption and other
hypotheses need of many pods at once is in columns; everything else is read from the pod itself. A nominated
pod has a slot too (`assigned` is False), so that a hypothesis is always "these slots removed, those added".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from bayplan.api.meta import Condition
from bayplan.api.pod import HostPort, Pod, PodStatus, Volume, host_ports, pod_images
from bayplan.api.quantity import LARGE_REQUEST, MAX_NANOS, saturated_nanos
from bayplan.api.requests import RESIZE_PENDING, RequestAccounting
from bayplan.state.columns import Column, IdColumn, Table
from bayplan.state.terms import LabelSet, LabelSets, TermSet, TermSets, carried_terms

if TYPE_CHECKING:
    from bayplan.state.disks import Disk
    from bayplan.state.volumes import PodVolumes

MAX_SIGNATURES: Final = 50_000
"""The maximum number of PodInfos; above it the older half is dropped."""

_encoder: Final = msgspec.msgpack.Encoder()
_deterministic: Final = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(slots=True)
class PodInfo:
    """What is known of all pods with the same signature."""

    key: bytes
    requests: dict[str, int]
    counted: tuple[tuple[Column, Column, int], ...]
    """The same amounts, each with the columns in which nodes and pods have it."""
    nonzero_cpu_milli: int
    nonzero_memory_bytes: int
    host_ports: tuple[HostPort, ...]
    label_set: LabelSet
    terms: TermSet
    is_large: bool
    """Whether its requests are so large that sums may saturate."""
    claims: tuple[str, ...]
    """`namespace/name` of each persistentVolumeClaim volume."""
    disks: Sequence[Disk] | None = None
    """The disks it mounts; None until first used (`disks.py`)."""
    limited_volumes: PodVolumes | None = None
    """Its volumes whose number is limited on a node; None until first used (`volumes.py`)."""


def _names_itself(pod: Pod) -> bool:
    """Whether something that scheduling reads depends on the pod's own name.

    The claims of a pod do, too, if they were created from templates. But DynamicResources compares what is in
    them, so that pods with equal claims are identical.
    """
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)


def relevant_volumes(pod: Pod) -> tuple[Volume, ...]:
    """Volumes that scheduling reads. Others (config maps, tokens with random names, local ones) do not."""
    return tuple(
        volume
        for volume in pod.spec.volumes
        if volume != Volume(name=volume.name, host_path=volume.host_path, empty_dir=volume.empty_dir)
    )


def pod_signature(pod: Pod) -> bytes:
    """Equal for pods that scheduling cannot distinguish, whatever their node."""
    spec = pod.spec
    if spec.node_name or spec.volumes or spec.scheduling_group is not None:
        # The members of all groups are placed by the same rules.
        volumes = relevant_volumes(pod)
        spec = msgspec.structs.replace(spec, node_name="", volumes=volumes, scheduling_group=None)
    meta, status = pod.metadata, pod.status
    parts: list[Any] = [meta.namespace, meta.labels, spec]
    if meta.owner_references:
        controller = meta.controller()
        if controller is not None:
            parts.append((controller.api_version, controller.kind, controller.name))
    if (
        status.container_statuses
        or status.init_container_statuses
        or status.resources is not None
        or _pending_resize(status) is not None
    ):
        resize = [condition for condition in status.conditions if condition.type == RESIZE_PENDING]
        parts.append(
            (
                [(c.name, c.resources, c.allocated_resources) for c in status.container_statuses],
                [(c.name, c.resources, c.allocated_resources) for c in status.init_container_statuses],
                status.resources,
                status.allocated_resources,
                [(condition.status, condition.reason) for condition in resize],
            )
        )
    if spec.volumes and _names_itself(pod):
        parts.append((meta.name, meta.uid))
    return encoded(_encoder, parts)


def _pending_resize(status: PodStatus) -> Condition | None:
    for condition in status.conditions:
        if condition.type == RESIZE_PENDING:
            return condition
    return None


def encoded(encoder: msgspec.msgpack.Encoder, parts: object) -> bytes:
    """A key for these values. A quantity may be a number of 2^64 or more, which msgpack does not have."""
    try:
        return encoder.encode(parts)
    except OverflowError:
        return repr(parts).encode()


def same_signature(old: Pod, new: Pod) -> bool:
    """A quick check whether two versions of a pod are equal in everything that `pod_signature` reads.

    False only means that the signatures have to be compared.
    """
    was_meta, meta, was_status, status = old.metadata, new.metadata, old.status, new.status
    return (
        was_meta.labels == meta.labels
        and was_meta.owner_references == meta.owner_references
        and not (status.container_statuses or was_status.container_statuses)
        and not (status.init_container_statuses or was_status.init_container_statuses)
        and status.resources is was_status.resources is None
        and _pending_resize(status) is _pending_resize(was_status) is None
        and msgspec.structs.replace(old.spec, node_name=new.spec.node_name) == new.spec
    )


# Fragments of signatures


def _resources(pod: Pod) -> Any:
    spec, status = pod.spec, pod.status
    return (
        [(c.name, c.resources) for c in spec.containers],
        [(c.name, c.resources, c.restart_policy) for c in spec.init_containers],
        spec.overhead,
        spec.resources,
        [(c.name, c.resources, c.allocated_resources) for c in status.container_statuses],
        [(c.name, c.resources, c.allocated_resources) for c in status.init_container_statuses],
        status.resources,
        status.allocated_resources,
        [(c.type, c.status, c.reason) for c in status.conditions if c.type == "PodResizePending"],
    )


def _claims(pod: Pod) -> Any:
    if not pod.spec.resource_claims:
        return None
    return pod.spec.resource_claims, pod.status.resource_claim_statuses, pod.name, pod.uid


def _volumes(pod: Pod) -> Any:
    volumes = relevant_volumes(pod)
    if not volumes:
        return None
    itself = (pod.name, pod.uid) if any(volume.ephemeral is not None for volume in volumes) else None
    return pod.namespace, volumes, itself


POD_FIELDS: Final[dict[str, Callable[[Pod], Any]]] = {
    "namespace": lambda pod: pod.namespace,
    "labels": lambda pod: pod.labels,
    "annotations": lambda pod: pod.annotations,
    "name": lambda pod: (pod.namespace, pod.name, pod.uid),
    "priority": lambda pod: pod.priority,
    "node_name": lambda pod: pod.spec.node_name,
    "node_selector": lambda pod: pod.spec.node_selector,
    "node_affinity": lambda pod: pod.spec.affinity and pod.spec.affinity.node_affinity,
    "tolerations": lambda pod: pod.spec.tolerations,
    "resources": _resources,
    "ports": lambda pod: [
        (c.ports, c.restart_policy) for c in (*pod.spec.init_containers, *pod.spec.containers) if c.ports
    ],
    "images": lambda pod: (pod_images(pod), len(pod.spec.containers) + len(pod.spec.init_containers)),
    "volumes": _volumes,
    "resource_claims": _claims,
    "host": lambda pod: (pod.spec.host_network, pod.spec.host_users),
    "restart_rules": lambda pod: [
        c.restart_policy_rules
        for c in (*pod.spec.init_containers, *pod.spec.containers)
        if c.restart_policy_rules
    ],
    "owner": lambda pod: pod.metadata.controller(),
}
"""The fields that a plugin can declare, and how their values are read from the pod."""

NOT_IN_TEMPLATE: Final = frozenset({"annotations", "name", "node_name", "resource_claims"})
"""Fields by which pods of one template (`pod_signature`) can differ."""


class PodSigner:
    """Computes one plugin's fragments of signatures."""

    __slots__ = ("_fields", "_functions", "per_pod")

    def __init__(self, fields: Iterable[str], functions: Sequence[Callable[[Pod], Any]] = ()) -> None:
        names = sorted(set(fields))
        unknown = [name for name in names if name not in POD_FIELDS]
        if unknown:
            raise ValueError(f"unknown pod fields {unknown}; known are {sorted(POD_FIELDS)}")
        self._fields = [POD_FIELDS[name] for name in names]
        self._functions = tuple(functions)
        self.per_pod = bool(functions) or bool(NOT_IN_TEMPLATE.intersection(names) - {"node_name"})
        """Whether pods of one template may have different signatures."""

    def __call__(self, pod: Pod) -> bytes:
        values = [field(pod) for field in self._fields]
        if not self._functions:
            return encoded(_deterministic, values)
        own = [function(pod) for function in self._functions]
        try:
            return encoded(_deterministic, (values, own))
        except TypeError:
            raise TypeError(self._wrong_value(own)) from None

    def _wrong_value(self, values: Sequence[object]) -> str:
        """The message for a value that cannot be encoded."""
        for function, value in zip(self._functions, values, strict=True):
            try:
                _deterministic.encode(value)
            except OverflowError:
                continue
            except TypeError:
                name = getattr(function, "__name__", repr(function))
                return (
                    f"the function {name} in depends_on returned {type(value).__name__}, which cannot be "
                    "compared; return numbers, strings, tuples, dataclasses or msgspec structs"
                )
        return "a function in depends_on returned a value that cannot be compared"


class PodInfos:
    """The PodInfo of every signature in use."""

    def __init__(
        self,
        label_sets: LabelSets,
        term_sets: TermSets,
        columns: Callable[[str], tuple[Column, Column]],
        accounting: RequestAccounting,
    ) -> None:
        self._accounting = accounting
        self._label_sets = label_sets
        self._term_sets = term_sets
        self._columns = columns
        self._infos: dict[bytes, PodInfo] = {}

    def of(self, pod: Pod) -> PodInfo:
        key = pod_signature(pod)
        found = self._infos.get(key)
        if found is None:
            if len(self._infos) >= MAX_SIGNATURES:
                for old in list(self._infos)[: MAX_SIGNATURES // 2]:
                    del self._infos[old]
            found = self._infos[key] = self._make(key, pod)
        return found

    def _make(self, key: bytes, pod: Pod) -> PodInfo:
        cpu_milli, memory_bytes = self._accounting.nonzero_requests(pod)
        requests = self._accounting.assigned_requests(pod)
        return PodInfo(
            key=key,
            requests=requests,
            counted=tuple((*self._columns(resource), amount) for resource, amount in requests.items()),
            nonzero_cpu_milli=cpu_milli,
            nonzero_memory_bytes=memory_bytes,
            is_large=max(cpu_milli, memory_bytes, *requests.values()) >= LARGE_REQUEST,
            host_ports=host_ports(pod),
            label_set=self._label_sets.intern(pod.namespace, pod.labels),
            terms=self._term_sets.intern(carried_terms(pod)),
            claims=tuple(
                f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
                for volume in pod.spec.volumes
                if volume.persistent_volume_claim is not None
            ),
        )


NOT_STARTED: Final = MAX_NANOS + 1
"""Start time of a pod without one: it counts as started later than any other."""


def start_nanos(pod: Pod) -> int:
    """When the pod started, in nanoseconds since the epoch."""
    started = pod.status.start_time
    return NOT_STARTED if started is None else saturated_nanos(started)


class PodTable(Table):
    """Columns over slots.

    | column | unit | meaning |
    |---|---|---|
    | assigned | bool | on its row |
    | nominated | bool | nominated to its row, not assigned yet |
    | row | node row | where it is, or would be |
    | position | index | its place in the row's list of pods |
    | priority | | spec.priority |
    | start | ns | when it started |
    | label_set | id | its labels and namespace |
    | terms | id | which (anti-)affinity terms it carries |
    | terminating | bool | being deleted |
    | requests(r) | as the resource | its request of a resource |
    """

    def __init__(self) -> None:
        super().__init__()
        self.assigned = self.column(np.bool_, False)
        self.nominated = self.column(np.bool_, False)
        self.row = self.column(np.intp, 0)
        self.position = self.column(np.int64, 0)
        self.priority = self.column(np.int64, 0)
        self.start = self.column(np.int64, NOT_STARTED)
        self.label_set = self.column(np.intp, 0)
        self.terms = self.column(np.intp, 0)
        self.terminating = self.column(np.bool_, False)
        self.pod: list[Pod | None] = []
        self.info: list[PodInfo | None] = []
        self.large: set[int] = set()
        """Slots of pods with a large request: sums that include them may not fit into a column."""
        self._requests: dict[str, Column] = {}
        for resource in ("cpu", "memory", "ephemeral-storage"):
            self.requests(resource)

    def requests(self, resource: str) -> Column:
        column = self._requests.get(resource)
        if column is None:
            column = self._requests[resource] = self.column(np.int64, 0)
        return column

    def add(self, pod: Pod, info: PodInfo, row: int, assigned: bool, position: int) -> int:
        slot = self.take_row()
        if slot == len(self.pod):
            self.pod.append(pod)
            self.info.append(info)
        else:
            self.pod[slot] = pod
            self.info[slot] = info
        (self.assigned if assigned else self.nominated).cell[slot] = True
        self.row.cell[slot] = row
        self.position.cell[slot] = position
        self.label_set.cell[slot] = info.label_set.id
        self.terms.cell[slot] = info.terms.id
        # A free slot has the values of most new pods.
        if pod.spec.priority:
            self.priority.cell[slot] = pod.spec.priority
        if pod.status.start_time is not None:
            self.start.cell[slot] = start_nanos(pod)
        if pod.metadata.deletion_timestamp is not None:
            self.terminating.cell[slot] = True
        for _, requests, amount in info.counted:
            requests.cell[slot] = amount
        if info.is_large:
            self.large.add(slot)
        return slot

    def add_all(
        self, pods: Sequence[Pod], infos: Sequence[PodInfo], rows: IdColumn, positions: Sequence[int]
    ) -> range:
        """The same for many assigned pods, with every column written once."""
        slots = self.take_rows(len(pods))
        self.pod += pods
        self.info += infos
        here = slice(slots.start, slots.stop)
        self.assigned.array[here] = True
        self.row.array[here] = rows
        self.position.array[here] = positions
        self.label_set.array[here] = [info.label_set.id for info in infos]
        self.terms.array[here] = [info.terms.id for info in infos]
        self.priority.array[here] = [pod.spec.priority or 0 for pod in pods]
        self.start.array[here] = [start_nanos(pod) for pod in pods]
        self.terminating.array[here] = [pod.is_terminating for pod in pods]
        for slot, info in zip(slots, infos, strict=True):
            for _, requests, amount in info.counted:
                requests.cell[slot] = amount
            if info.is_large:
                self.large.add(slot)
        return slots

    def info_of(self, slot: int) -> PodInfo:
        """The PodInfo of a slot in use."""
        info = self.info[slot]
        assert info is not None
        return info

    def remove(self, slot: int) -> None:
        self.pod[slot] = None
        self.info[slot] = None
        self.large.discard(slot)
        self.free_row(slot)
