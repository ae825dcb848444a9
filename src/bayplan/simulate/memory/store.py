"""API objects in memory, with everything that a scheduler needs of an API server.

`MemoryStore` keeps the objects and their history. It is plain synchronous code without a loop: replays,
benchmarks and tests call it directly. `MemoryCluster` is the same store as `ClusterAPI`, for the scheduler.

Objects are stored unchanged: the caller applies defaults and admission (`bayplan.api`), and an update
replaces the status too, except that of ResourceClaims. The rest is as in an API server: one counter for all
resourceVersions, conflicts, uids, finalizers, graceful deletion, the rules of binding, the order of events.

See also `history.py` for watches, and `writes.py` for the effects of writes and for the errors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic

from msgspec.structs import replace

from bayplan.api.cluster_api import Change, ClusterAPI, Event, EventSink, ObjectT, PodStatusPatch, WatchEvent
from bayplan.api.devices import ResourceClaim
from bayplan.api.go_values import GoValueError, parse_uint
from bayplan.api.meta import Condition, Object, ObjectMeta
from bayplan.api.pod import Pod, PodStatus
from bayplan.api.workloads import PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from bayplan.errors import ConflictError
from bayplan.simulate.memory.history import History, Watch
from bayplan.simulate.memory.writes import (
    PENDING,
    POD_SCHEDULED,
    RUNNING,
    Kubelet,
    already_exists,
    another_uid,
    changed_since,
    checked_status,
    grace_period,
    merge_condition,
    moved,
    nameless,
    not_a_version,
    not_found,
    patched_status,
    patched_uid,
    released_status,
    too_new,
)

DEFAULT_HISTORY: Final = 50_000
"""The minimum number of events kept for each kind: more than any caller writes before watchers run."""

_COUNTS_GENERATIONS: Final = frozenset(
    (Pod, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet)
)
"""The kinds with a generation: the API server counts the changes of their spec."""

_NAME_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names: no vowels, and no similar-looking ones."""

_GATED: Final = "SchedulingGated"
_GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"

_ADDED: Final = Change.ADDED
_MODIFIED: Final = Change.MODIFIED
_DELETED: Final = Change.DELETED


class _Table(Generic[ObjectT]):
    """The objects of one kind by (namespace, name), and their history."""

    __slots__ = ("history", "kind", "objects")

    def __init__(self, kind: type[ObjectT], history: History[WatchEvent[ObjectT]]) -> None:
        self.kind = kind
        self.objects: dict[tuple[str, str], ObjectT] = {}
        self.history = history

    def find(self, name: str, namespace: str) -> ObjectT:
        try:
            return self.objects[namespace, name]
        except KeyError:
            raise not_found(self.kind, name) from None


class MemoryStore:
    """All objects of a cluster.

    Time is wall time in seconds since the epoch, from `clock`; stored times have whole seconds, as on the
    wire. Uids are generated from a counter and the seed: the same writes give the same objects. With a
    `kubelet`, running pods are deleted gracefully; without, at once.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        seed: int = 0,
        history: int = DEFAULT_HISTORY,
        kubelet: Kubelet | None = None,
    ) -> None:
        self.kubelet = kubelet
        self._clock = clock
        self._second = -1
        self._moment = datetime.fromtimestamp(0, UTC)
        self._rng = random.Random(seed)
        self._uid_prefix = f"{self._rng.getrandbits(32):08x}-0000-4000-8000-"
        self._uids = 0
        self._version = 0
        self._compacted = 0
        self._history = history
        self._tables: dict[type[Object], _Table[Any]] = {}
        self._pods: _Table[Pod] = self._table(Pod)

    @property
    def resource_version(self) -> str:
        """The version of the last write."""
        return str(self._version)

    def last_version(self, kind: type[Object]) -> str:
        """The version of the last change of a kind; empty if there was none."""
        last = self._table(kind).history.last
        return "" if last is None else last.resource_version

    def now(self) -> datetime:
        """The time that is written into objects."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._moment = datetime.fromtimestamp(second, UTC)
        return self._moment

    # Reading

    def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return self._table(kind).find(name, namespace)

    def list(self, kind: type[ObjectT]) -> Sequence[ObjectT]:
        """All objects of a kind in the order of their keys, finished pods included."""
        table = self._table(kind)
        return [table.objects[key] for key in sorted(table.objects, key="/".join)]

    def watch(self, kind: type[ObjectT], resource_version: str) -> Watch[ObjectT]:
        """Changes after a resourceVersion, in batches. A pod that finishes is seen as deleted."""
        history = self._table(kind).history

        def position(text: str) -> int:
            try:
                version = parse_uint(text)
            except GoValueError as error:
                raise not_a_version(text) from error
            if version > self._version:
                raise too_new(version, self._version)
            return history.position_after(version)

        return Watch(history, resource_version, position)

    def send_bookmarks(self) -> None:
        """Sends a bookmark to all watchers, of kinds without changes too."""
        version = self.resource_version
        for table in self._tables.values():
            last = table.history.last
            if last is None or last.resource_version != version:
                table.history.append(WatchEvent(Change.BOOKMARK, None, version))

    def compact(self) -> None:
        """Drops all history: watchers that are up to date continue, everyone else must list."""
        self._compacted = self._version
        for table in self._tables.values():
            table.history.compact(self._version)

    # Writing

    def create(self, item: ObjectT) -> ObjectT:
        """Adds an object, and returns it with its uid, resourceVersion, generation and time of creation."""
        kind = type(item)
        table = self._table(kind)
        meta = item.metadata
        name = meta.name or self._generate_name(table, meta)
        key = (meta.namespace, name)
        if key in table.objects:
            raise already_exists(kind, name)
        now = self.now()
        self._uids += 1
        meta = replace(
            meta,
            name=name,
            uid=f"{self._uid_prefix}{self._uids:012x}",
            resource_version=self._next_version(),
            generation=1 if kind in _COUNTS_GENERATIONS else 0,
            creation_timestamp=now,
            deletion_timestamp=None,
        )
        if isinstance(item, Pod):
            item = replace(item, metadata=meta, status=initial_status(item, now))
        else:
            item = replace(item, metadata=meta)
        return self._save(table, None, item)

    def update(self, item: ObjectT) -> ObjectT:
        """Replaces an object, status included, and returns it as stored. Without a change nothing is written.

        An item without a resourceVersion replaces any version.
        """
        kind = type(item)
        table = self._table(kind)
        meta = item.metadata
        old = table.find(meta.name, meta.namespace)
        known = old.metadata
        if meta.uid and meta.uid != known.uid:
            raise another_uid(kind, old, meta.uid)
        if meta.resource_version and meta.resource_version != known.resource_version:
            raise changed_since(kind, meta.name)
        if isinstance(item, Pod) and isinstance(old, Pod) and item.spec.node_name != old.spec.node_name:
            raise moved(item)
        if isinstance(item, ResourceClaim) and isinstance(old, ResourceClaim):
            item = replace(item, status=old.status)
        new_spec = kind in _COUNTS_GENERATIONS and item.spec != old.spec  # type: ignore[attr-defined]  # those have one
        meta = replace(
            meta,
            uid=known.uid,
            resource_version=known.resource_version,
            generation=known.generation + new_spec,
            creation_timestamp=known.creation_timestamp,
            deletion_timestamp=known.deletion_timestamp,
        )
        item = replace(item, metadata=meta)
        if meta.deletion_timestamp is not None and known.finalizers and not meta.finalizers:
            self._remove(table, item)
            return item
        return old if item == old else self._save(table, old, replace(item, metadata=self._next(meta)))

    def update_claim_status(self, item: ResourceClaim) -> ResourceClaim:
        """Replaces a claim's status, and returns the claim as stored. Without a change nothing is written."""
        table, meta = self._table(ResourceClaim), item.metadata
        old = table.find(meta.name, meta.namespace)
        if meta.uid and meta.uid != old.uid:
            raise another_uid(ResourceClaim, old, meta.uid)
        if meta.resource_version and meta.resource_version != old.metadata.resource_version:
            raise changed_since(ResourceClaim, meta.name)
        status = checked_status(old, item.status)
        if status == old.status:
            return old
        return self._save(table, old, replace(old, metadata=self._next(old.metadata), status=status))

    def release_claim(self, name: str, namespace: str, uid: str, *, claim_uid: str = "") -> ResourceClaim:
        """Removes a consumer from a claim, and returns the claim as stored."""
        table = self._table(ResourceClaim)
        claim = table.find(name, namespace)
        status = released_status(claim, uid, claim_uid)
        if status is claim.status:
            return claim
        return self._save(table, claim, replace(claim, metadata=self._next(claim.metadata), status=status))

    def delete(
        self,
        kind: type[Object],
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
    ) -> None:
        """Deletes an object; a running pod is only marked, if there is a kubelet to finish it."""
        table = self._table(kind)
        old = table.find(name, namespace)
        if uid and uid != old.metadata.uid:
            raise another_uid(kind, old, uid)
        if isinstance(old, Pod) and self.kubelet is not None:
            period = grace_period(old, grace_period_seconds)
            if period:
                self._terminate(old, period, self.kubelet)
                return
        if old.metadata.finalizers:
            if old.metadata.deletion_timestamp is None:
                meta = replace(self._next(old.metadata), deletion_timestamp=self.now())
                self._save(table, old, replace(old, metadata=meta))
            return
        self._remove(table, old)

    def bind(
        self,
        name: str,
        namespace: str,
        node_name: str,
        *,
        uid: str = "",
        annotations: Mapping[str, str] | None = None,
        running: bool = False,
    ) -> Pod:
        """Assigns a pod to a node, which need not exist, and adds the annotations to it.

        With `running` it starts there in the same write, and is ready.
        """
        pod = self._pods.find(name, namespace)
        now = self.now()
        status = bound_status(pod, uid, now)
        if running:
            ready = Condition(type="Ready", status="True", last_transition_time=now)
            conditions = (*status.conditions, ready)
            status = replace(status, phase=RUNNING, start_time=now, conditions=conditions)
        meta = self._next(pod.metadata)
        if annotations:
            meta = replace(meta, annotations={**pod.annotations, **annotations})
        spec = replace(pod.spec, node_name=node_name)
        return self._save(self._pods, pod, replace(pod, metadata=meta, spec=spec, status=status))

    def patch_pod_status(self, name: str, namespace: str, patch: PodStatusPatch, *, uid: str = "") -> Pod:
        """Changes a pod's condition or nomination. Without a change nothing is written."""
        pod = self._pods.find(name, namespace)
        if uid and uid != pod.uid:
            raise patched_uid(pod, uid)
        return self._set_status(pod, patched_status(pod.status, patch, self.now()))

    def set_pod_running(self, name: str, namespace: str, start_time: datetime | None = None) -> Pod:
        """What a kubelet writes when it has started a pod."""
        pod = self._pods.find(name, namespace)
        start_time = start_time or self.now()
        return self._set_status(pod, replace(pod.status, phase=RUNNING, start_time=start_time))

    def set_pod_phase(self, name: str, namespace: str, phase: str) -> Pod:
        """What a kubelet writes when a pod has ended: Succeeded or Failed."""
        pod = self._pods.find(name, namespace)
        return self._set_status(pod, replace(pod.status, phase=phase))

    def _set_status(self, pod: Pod, status: PodStatus) -> Pod:
        if status is pod.status or status == pod.status:
            return pod
        return self._save(self._pods, pod, replace(pod, metadata=self._next(pod.metadata), status=status))

    def _terminate(self, pod: Pod, period: int, kubelet: Kubelet) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        meta = replace(
            self._next(pod.metadata),
            generation=pod.metadata.generation + 1,
            deletion_timestamp=self.now() + timedelta(seconds=period),
        )
        kubelet(self, self._save(self._pods, pod, replace(pod, metadata=meta)), period)

    def _save(self, table: _Table[ObjectT], old: ObjectT | None, new: ObjectT) -> ObjectT:
        """Stores a new object, or a new version of one, and returns it."""
        self._write(table, old, new, new.metadata.resource_version)
        return new

    def _remove(self, table: _Table[Any], item: Object) -> None:
        self._write(table, item, None, self._next_version())

    def _write(self, table: _Table[ObjectT], old: ObjectT | None, new: ObjectT | None, version: str) -> None:
        """The one place where the objects of a table change. Adds the event that watchers see."""
        item = old if new is None else new
        assert item is not None
        key = (item.metadata.namespace, item.metadata.name)
        if new is None:
            del table.objects[key]
        else:
            table.objects[key] = new
        hides = table.kind is Pod
        if new is not None and not (hides and is_hidden(new)):
            change = _ADDED if old is None or (hides and is_hidden(old)) else _MODIFIED
            table.history.append(WatchEvent(change, new, version))
        elif old is not None and not (hides and is_hidden(old)):
            deleted = replace(old, metadata=replace(old.metadata, resource_version=version))
            table.history.append(WatchEvent(_DELETED, deleted, version))

    def _table(self, kind: type[ObjectT]) -> _Table[ObjectT]:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = _Table(kind, History(self._history, self._compacted))
        return table

    def _next(self, meta: ObjectMeta) -> ObjectMeta:
        """The metadata of the next version of an object."""
        return replace(meta, resource_version=self._next_version())

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _generate_name(self, table: _Table[Any], meta: ObjectMeta) -> str:
        if not meta.generate_name:
            raise nameless(table.kind)
        while True:
            name = meta.generate_name + "".join(self._rng.choices(_NAME_SUFFIX, k=5))
            if (meta.namespace, name) not in table.objects:
                return name


def initial_status(pod: Pod, now: datetime) -> PodStatus:
    """The status of a new pod: as given, pending by default, and with the condition of its gates."""
    status = pod.status
    if not status.phase:
        status = replace(status, phase=PENDING)
    if pod.spec.scheduling_gates and all(known.type != POD_SCHEDULED for known in status.conditions):
        gated = Condition(
            type=POD_SCHEDULED,
            status="False",
            reason=_GATED,
            message=_GATED_MESSAGE,
            last_transition_time=now,
        )
        status = replace(status, conditions=(*status.conditions, gated))
    return status


def bound_status(pod: Pod, uid: str, now: datetime) -> PodStatus:
    """The status of a newly bound pod: scheduled, and no longer nominated.

    Raises:
        ConflictError: the pod cannot be bound.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if uid and uid != meta.uid:
        raise another_uid(Pod, pod, uid)
    reason = ""
    if meta.deletion_timestamp is not None:
        reason = f"pod {meta.name} is being deleted, cannot be assigned to a host"
    elif spec.node_name:
        reason = f'pod {meta.name} is already assigned to node "{spec.node_name}"'
    elif spec.scheduling_gates:
        reason = f"pod {meta.name} has non-empty .spec.schedulingGates"
    if reason:
        raise ConflictError(f'Operation cannot be fulfilled on pods/binding "{meta.name}": {reason}')
    condition = Condition(type=POD_SCHEDULED, status="True", last_transition_time=now)
    conditions = merge_condition(status.conditions, condition, now) if status.conditions else (condition,)
    return replace(status, conditions=conditions, nominated_node_name="")


def is_hidden(item: Object) -> bool:
    """Whether schedulers do not see the object: finished pods."""
    return isinstance(item, Pod) and item.status.phase in ("Succeeded", "Failed")


class MemoryCluster(ClusterAPI):
    """A store as `ClusterAPI`. No request waits: awaiting one never switches to another task."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        store = self.store
        return [item for item in store.list(kind) if not is_hidden(item)], store.resource_version

    def watch(self, kind: type[ObjectT], resource_version: str) -> Watch[ObjectT]:
        return self.store.watch(kind, resource_version)

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return self.store.get(kind, name, namespace)

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        meta = pod.metadata
        self.store.bind(meta.name, meta.namespace, node_name, uid=meta.uid, annotations=annotations)

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        self.store.patch_pod_status(pod.name, pod.namespace, patch, uid=pod.uid)

    async def delete_pod(self, pod: Pod) -> None:
        self.store.delete(Pod, pod.name, pod.namespace)

    async def create(self, item: Object) -> Object:
        return self.store.create(item)

    async def update(self, item: Object) -> Object:
        return self.store.update(item)

    async def update_status(self, item: Object) -> Object:
        if isinstance(item, ResourceClaim):
            return self.store.update_claim_status(item)
        return self.store.update(item)

    async def delete(self, item: Object) -> None:
        self.store.delete(type(item), item.name, item.namespace)

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        return self.store.release_claim(claim.name, claim.namespace, uid, claim_uid=claim.uid)

    def events(self) -> StoreEvents:
        return StoreEvents(self.store)


class StoreEvents(EventSink):
    """Events among the other objects of a store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def create_event(self, event: Event) -> None:
        self._store.create(event)

    async def patch_event(self, event: Event) -> None:
        known = self._store.get(Event, event.name, event.namespace)
        self._store.update(replace(known, series=event.series))
