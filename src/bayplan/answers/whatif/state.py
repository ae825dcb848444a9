"""The state of a what-if cluster: API objects, and the columns that scheduling reads.

    store ── every write ──► changes ──► columns (directly, or through the handlers of a scheduler that runs)
                                  └───► controllers (`controllers.py`)

Every write records how to revert it, in the undo log of the columns. So a branch costs what was changed in
it, and reverting it restores store and columns together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, cast

from msgspec.structs import replace

from bayplan.api.cluster_api import ObjectT
from bayplan.api.meta import Object, version_number
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.client.informer import Handler
from bayplan.simulate.memory.store import MemoryStore, is_hidden
from bayplan.simulate.memory.writes import Kubelet
from bayplan.state.cluster import Cluster as Columns
from bayplan.state.objects import UndoLog

Change = tuple[Object | None, Object | None]
"""An object before and after a write."""


class Reaction(Protocol):
    """Called with every change after the columns have it."""

    def __call__(self, old: Object | None, new: Object | None) -> None: ...


class BranchStore(MemoryStore):
    """A store whose writes can be reverted, and are reported to one observer instead of watchers."""

    def __init__(self, undo: UndoLog, clock: Callable[[], float], kubelet: Kubelet | None = None) -> None:
        super().__init__(clock=clock, kubelet=kubelet)
        self._undo = undo
        self.pods = PodIndex()
        self.changes: deque[Change] = deque()
        """Writes that the columns do not have yet."""
        self.wake: Callable[[], None] = lambda: None
        """Called after every write."""

    def adopt(self, item: ObjectT) -> ObjectT:
        """Adds an object as it is, with its uid, version and times, and returns it. Sends no watch event.

        Finalizers of pods and nodes (a pod of a Job has one) are removed: no controller runs here that would
        remove them, so deleted objects would never disappear.
        """
        if item.metadata.finalizers and isinstance(item, (Pod, Node)):
            item = cast(ObjectT, replace(item, metadata=replace(item.metadata, finalizers=())))
        self._put(type(item), self.find(type(item), item.name, item.namespace), item)
        if item.metadata.uid.startswith(self._uid_prefix):
            # It was created by another store of this kind: new objects must not get the same uid.
            self._uids = max(self._uids, int(item.metadata.uid.removeprefix(self._uid_prefix), 16))
        self._version = max(self._version, version_number(item.metadata.resource_version) or 0)
        return item

    def forget(self, item: Object) -> None:
        """The reverse of `adopt`."""
        if self.find(type(item), item.name, item.namespace) is not None:
            self._put(type(item), item, None)

    def find(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT | None:
        return self._table(kind).objects.get((namespace, name))

    def find_claim(self, name: str, namespace: str) -> PersistentVolumeClaim | None:
        return self.find(PersistentVolumeClaim, name, namespace)

    def all(self, kind: type[ObjectT]) -> Collection[ObjectT]:
        """All objects of a kind, in no particular order."""
        return self._table(kind).objects.values()

    def kinds(self) -> tuple[type[Object], ...]:
        """The kinds of which there are, or were, objects."""
        return tuple(self._tables)

    def mark(self) -> None:
        """Changes from now on can be reverted; uids and generated names are then repeated."""
        self._undo.mark()
        uids, rng_state = self._uids, self._rng.getstate()

        def revert() -> None:
            self._uids = uids
            self._rng.setstate(rng_state)

        self._undo.record(revert)

    def _write(self, table: Any, old: ObjectT | None, new: ObjectT | None, version: str) -> None:
        kind: type[Object] = table.kind
        if self._undo.active:
            self._undo.record(lambda: self._put(kind, new, old))
        self._put(kind, old, new)
        self.changes.append((old, new))
        self.wake()

    def _put(self, kind: type[Object], old: Object | None, new: Object | None) -> None:
        objects: dict[tuple[str, str], Object] = self._table(kind).objects
        if new is not None:
            objects[new.namespace, new.name] = new
        elif old is not None:
            del objects[old.namespace, old.name]
        if kind is Pod:
            self.pods.changed(cast("Pod | None", old), cast("Pod | None", new))


class PodIndex:
    """All pods by key and, for label keys that were looked up, by label (`scheduler.loop.PodLister`)."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], Pod] = {}
        self._by_label: dict[str, dict[tuple[str, str], dict[str, Pod]]] = {}

    def get(self, name: str, namespace: str = "") -> Pod | None:
        return self._pods.get((namespace, name))

    def with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        index = self._by_label.get(key)
        if index is None:
            index = self._by_label[key] = {}
            for pod in self._pods.values():
                self._file(key, pod)
        return index.get((namespace, value), {}).values()

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None:
            if new is None or is_hidden(new):
                self._pods.pop((old.namespace, old.name), None)
            for key in self._by_label:
                value = old.labels.get(key)
                if value is not None:
                    self._by_label[key].get((old.namespace, value), {}).pop(old.name, None)
        if new is not None and not is_hidden(new):
            self._pods[new.namespace, new.name] = new
            for key in self._by_label:
                self._file(key, new)

    def _file(self, key: str, pod: Pod) -> None:
        value = pod.labels.get(key)
        if value is not None:
            self._by_label[key].setdefault((pod.namespace, value), {})[pod.name] = pod


class ColumnHandler:
    """Applies changes to the columns while no scheduler runs."""

    def __init__(self, columns: Columns, ours: Collection[str]) -> None:
        self._columns = columns
        self._ours = ours

    def added(self, item: Object) -> None:
        if isinstance(item, Pod):
            self._pod(None, item)
        elif isinstance(item, Node):
            self._columns.set_node(item)
        else:
            self._columns.objects.put(item)

    def updated(self, old: Object, new: Object) -> None:
        if isinstance(new, Pod):
            self._pod(cast(Pod, old), new)
        else:
            self.added(new)

    def deleted(self, item: Object) -> None:
        if isinstance(item, Pod):
            self._pod(item, None)
        elif isinstance(item, Node):
            self._columns.remove_node(item.name)
        else:
            self._columns.objects.remove(item)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        columns = self._columns
        if new is None:
            assert old is not None
            if columns.has_pod(old.uid):
                columns.remove_pod(old.uid)
            columns.remove_nomination(old.uid)
        elif new.spec.node_name:
            columns.remove_nomination(new.uid)
            if columns.has_pod(new.uid):
                columns.update_pod(new)
            else:
                columns.add_pod(new, new.spec.node_name)
        else:
            self.set_nomination(new)

    def set_nomination(self, pod: Pod) -> None:
        """A pending pod counts on the node that it is nominated to."""
        node_name = pod.status.nominated_node_name
        if node_name and self._is_nominated(pod):
            self._columns.nominate(pod, node_name)
        else:
            self._columns.remove_nomination(pod.uid)

    def _is_nominated(self, pod: Pod) -> bool:
        if pod.spec.scheduling_gates and not self._columns.release.queue.nominates_gated_pods:
            return False
        return pod.spec.scheduler_name in self._ours and not pod.is_terminating


class State:
    """Store and columns, and who reacts to changes."""

    def __init__(self, columns: Columns, store: BranchStore, ours: Collection[str]) -> None:
        self.columns = columns
        self.store = store
        self.direct = ColumnHandler(columns, ours)
        self.handlers: dict[type[Object], Handler[Any]] = {}
        """Those of the scheduler that runs; empty if none does."""
        self.reactions: list[Reaction] = []

    def load(self, objects: Iterable[Object]) -> None:
        """Adds the objects of a source: nodes first, so that pods are counted where they are."""
        pods: list[Pod] = []
        for item in objects:
            item = self.store.adopt(item)
            if type(item) is Pod:
                pods.append(item)
            else:
                self.direct.added(item)
        present = [pod for pod in pods if not is_hidden(pod)]
        self.columns.add_pods([pod for pod in present if pod.spec.node_name])
        for pod in present:
            if not pod.spec.node_name:
                self.direct.set_nomination(pod)

    def sync(self, old: Object | None, new: Object | None) -> None:
        """An object of the cluster that this is a copy of has changed. Not within a branch."""
        assert not self.columns.undo.active, "the change would be reverted"
        if new is not None:
            new = self.store.adopt(new)
        elif old is not None:
            self.store.forget(old)
        self._handle(old, new)

    def deliver(self) -> None:
        """Passes all writes on, also those that they cause."""
        changes = self.store.changes
        while changes:
            old, new = changes.popleft()
            self._handle(old, new)
            for react in self.reactions:
                react(old, new)

    def _handle(self, old: Object | None, new: Object | None) -> None:
        item = new if new is not None else old
        assert item is not None
        handler = self.handlers.get(type(item), self.direct)
        if old is not None and is_hidden(old):
            old = None
        if new is not None and is_hidden(new):
            new = None
        if old is None:
            if new is not None:
                handler.added(new)
        elif new is None:
            handler.deleted(old)
        else:
            handler.updated(old, new)
