"""API objects that are neither pods nor nodes, by kind; and the undo log of the cluster.

Plugins look objects up by name. Every change is recorded in the topic of its kind (`Changes.kind`), so that
values that depend on a kind are brought up to date.

A what-if question changes the cluster and reverts all changes afterwards. Copying 5,000 nodes and 50,000 pods
would take a second; the cost of the undo log is proportional to the changes. While it records, every verb of
the cluster adds the step that reverts it. Steps also restore the order of nodes, of the pods on a node and of
objects, because ties and victims depend on it. They are ordinary changes on the clock, so cached results stay
correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.selectors import EVERYTHING, Requirement, Selector, compile_selector, selector_from_map
from bayplan.api.workloads import ReplicaSet, ReplicationController, Service, StatefulSet
from bayplan.clock import Changes
from bayplan.errors import SelectorError

ObjectT = TypeVar("ObjectT", bound=Object)


class Lister(Generic[ObjectT]):
    """All objects of one kind, in the order in which they were added."""

    __slots__ = ("_any", "_by_key", "_row_of", "_rows", "_undo", "changes")

    def __init__(self, kind: type[ObjectT], changes: Changes, undo: UndoLog | None = None) -> None:
        self._any = None if kind.is_per_pod else changes.objects
        self._undo = UndoLog() if undo is None else undo
        self.changes = changes.kind(kind)
        self._rows = changes.nodes
        self._row_of: Mapping[str, int] = {}
        self._by_key: dict[tuple[str, str], ObjectT] = {}

    def __iter__(self) -> Iterator[ObjectT]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, name: str, namespace: str = "") -> ObjectT | None:
        return self._by_key.get((namespace, name))

    def belongs_to_nodes(self, row_of: Mapping[str, int]) -> None:
        """Each object has the name of its node: from now on its changes are also changes of that row."""
        self._row_of = row_of

    def put(self, item: ObjectT) -> None:
        meta = item.metadata
        key = (meta.namespace, meta.name)
        before = self._by_key.get(key)
        self._by_key[key] = item
        if self._undo.active:
            self._undo.record(lambda: self.remove(item) if before is None else self.put(before))
        self._record(before, item)

    def remove(self, item: ObjectT) -> None:
        key = (item.namespace, item.name)
        before = self._by_key.get(key)
        if before is None:
            return
        if self._undo.active:
            order = list(self._by_key)
            self._undo.record(lambda: self._restore(before, order))
        del self._by_key[key]
        self._record(before, None)

    def _restore(self, item: ObjectT, order: list[tuple[str, str]]) -> None:
        """Reverts a removal, at the old position in the order."""
        self.put(item)
        self._by_key = {key: self._by_key[key] for key in order}

    def _record(self, before: ObjectT | None, after: ObjectT | None) -> None:
        self.changes.record((before, after))
        if self._row_of:
            item = after or before
            row = None if item is None else self._row_of.get(item.name)
            if row is not None:
                self._rows.record(row)
        if self._any is not None:
            self._any.change()


class Objects:
    """A lister for each kind."""

    def __init__(self, changes: Changes | None = None, undo: UndoLog | None = None) -> None:
        self._changes = Changes() if changes is None else changes
        self._undo = UndoLog() if undo is None else undo
        self._listers: dict[type[Object], Lister[Any]] = {}

    def of(self, kind: type[ObjectT]) -> Lister[ObjectT]:
        try:
            return self._listers[kind]
        except KeyError:
            made = self._listers[kind] = Lister(kind, self._changes, self._undo)
            return made

    def put(self, item: Object) -> None:
        self.of(type(item)).put(item)

    def remove(self, item: Object) -> None:
        self.of(type(item)).remove(item)


class UndoLog:
    """The steps that revert the changes since the oldest mark. Nothing is recorded without a mark."""

    __slots__ = ("_marks", "_steps", "active")

    def __init__(self) -> None:
        self.active = False
        """Whether changes are recorded: check it before you build a step."""
        self._steps: list[Callable[[], object]] = []
        self._marks: list[int] = []

    def __len__(self) -> int:
        """How many steps are recorded."""
        return len(self._steps)

    def record(self, step: Callable[[], object]) -> None:
        """Adds a step that reverts a change. It runs when all later changes are reverted."""
        self._steps.append(step)

    def mark(self) -> None:
        """Changes from now on can be reverted. Marks nest."""
        self._marks.append(len(self._steps))
        self.active = True

    def revert(self) -> None:
        """Reverts everything since the last mark, and removes that mark."""
        start = self._marks.pop()
        self.active = False
        steps = self._steps
        try:
            while len(steps) > start:
                steps.pop()()
        finally:
            self.active = bool(self._marks)

    def keep(self) -> None:
        """Removes the last mark and keeps the changes since: an outer mark can still revert them."""
        self._marks.pop()
        self.active = bool(self._marks)
        if not self._marks:
            self._steps.clear()


OWNER_KINDS: Final[tuple[type[Object], ...]] = (Service, ReplicationController, ReplicaSet, StatefulSet)
"""The kinds that `owner_selector` depends on."""


def owner_selector(pod: Pod, objects: Objects) -> Selector | None:
    """All Services that select the pod and the controller that owns it, combined.

    None if nothing selects the pod, or everything that does selects all pods.
    """
    requirements: list[Requirement] = []
    for service in objects.of(Service):
        selector = service.spec.selector
        if service.namespace == pod.namespace and selector is not None:
            compiled = selector_from_map(selector)
            if compiled.matches(pod.labels):
                requirements.extend(compiled.requirements)
    requirements.extend(_controller_requirements(pod, objects))
    return EVERYTHING.and_(*requirements) if requirements else None


def _controller_requirements(pod: Pod, objects: Objects) -> tuple[Requirement, ...]:
    owner = pod.metadata.controller()
    if owner is None:
        return ()
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        controller = objects.of(ReplicationController).get(owner.name, pod.namespace)
        if controller is None or controller.spec.selector is None:
            return ()
        return selector_from_map(controller.spec.selector).requirements
    kinds: dict[tuple[str, str], type[ReplicaSet] | type[StatefulSet]] = {
        ("apps/v1", "ReplicaSet"): ReplicaSet,
        ("apps/v1", "StatefulSet"): StatefulSet,
    }
    kind = kinds.get((owner.api_version, owner.kind))
    if kind is None:
        return ()
    found = objects.of(kind).get(owner.name, pod.namespace)
    if found is None:
        return ()
    try:
        return compile_selector(found.spec.selector).requirements
    except SelectorError:
        # Upstream, too, ignores a controller whose selector it cannot parse.
        return ()
