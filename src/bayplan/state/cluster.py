"""The cluster as the scheduler sees it: nodes and pods in columns, changed one event at a time.

Events change it between two scheduling cycles, never during one; plugins read it through `NodeColumns`.
Everything derived (counts of matching pods, carried terms, ports, claims in use) is updated by the four verbs
below, each of which costs what it changes.

    set_node / remove_node     a Node object was added, changed or deleted
    add_pod  / remove_pod      a pod was assigned to a node, or removed from it
    nominate / remove_nomination   a pod is expected on a node, once its victims are gone
    objects.put / .remove      any other object that plugins read

`changes` records what changed and when; values derived from the cluster are brought up to date by it. `undo`
records how to revert changes, for what-if questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.clock import Changes
from bayplan.state.columns import Column, IdColumn
from bayplan.state.counts import PodCount, PodCounts
from bayplan.state.groups import GroupStates
from bayplan.state.nodes import CPU, MEMORY, NodeChange, NodeTable, NodeTree, zone_of
from bayplan.state.objects import Objects, UndoLog
from bayplan.state.pods import PodInfo, PodInfos, PodTable, same_signature, start_nanos
from bayplan.state.ports import UsedPorts
from bayplan.state.terms import CarriedTerms, LabelSets, PodQuery, TermSets

_NO_LABELS: dict[str, str] = {}
_LABELS_OR_TAINTS: Final = NodeChange.LABELS | NodeChange.TAINTS


class Cluster:
    """The state of the cluster, in columns and indexes."""

    def __init__(self, release: Release = DEFAULT_RELEASE) -> None:
        self.release = release
        """The release whose rules apply, for instance to the requests of pods that are being resized."""
        self.changes = Changes()
        self.undo = UndoLog()
        self.nodes = NodeTable(self.changes)
        self.pods = PodTable()
        self.label_sets = LabelSets()
        self.term_sets = TermSets()
        self.pod_infos = PodInfos(self.label_sets, self.term_sets, self._request_columns, release.accounting)
        self.counts = PodCounts(self.nodes, self.pods, self.label_sets, self.changes)
        self.terms = CarriedTerms(self.nodes, self.changes)
        self.objects = Objects(self.changes, self.undo)
        self.groups: GroupStates | None = None
        """The groups of pods; None without the feature gate GenericWorkload."""
        if "GenericWorkload" in release.gates:
            self.groups = GroupStates(self.objects, has_trees="CompositePodGroup" in release.gates)
        self.recounted_rows: set[int] = set()
        """Rows with a pod that `is_large`, or with saturated sums: summed again when their pods change."""
        self.row_pods: list[list[int]] = []
        """For each row the slots of its pods, in the order in which upstream would list them."""
        self.ports = UsedPorts()
        self.claim_uses: dict[str, int] = {}
        self.nominated: dict[int, list[int]] = {}
        """For each row the slots of the pods nominated to it, oldest nomination first."""
        self._slot_of: dict[str, int] = {}
        self._nominated_slot: dict[str, int] = {}
        self._tree = NodeTree()
        self.node_count = 0
        self._listed: list[str] = []
        self._order: IdColumn = np.zeros(0, dtype=np.intp)
        self._order_freshness = self.changes.freshness((self.changes.order,))

    # Nodes

    def set_node(self, node: Node) -> NodeChange:
        """A node was added, or its object changed."""
        nodes, changes = self.nodes, self.changes
        is_new = node.name not in nodes.row_of or nodes.node[nodes.row_of[node.name]] is None
        row = nodes.row_for(node.name)
        if row == len(self.row_pods):
            self.row_pods.append([])
        if self.undo.active:
            self._record_node_change(node, nodes.node[row])
        change = nodes.set_node(row, node)
        if is_new:
            self._tree.add(node.name, node.labels)
            self.node_count += 1
            changes.order.change()
        elif change & NodeChange.LABELS:
            self._tree.update(node.name, node.labels)
        if is_new or change & NodeChange.IMAGES:
            changes.images.change()
        if is_new or change & _LABELS_OR_TAINTS:
            changes.topology.change()
        if change:
            changes.nodes.record(row)
        return change

    def remove_node(self, name: str) -> None:
        """The Node object was deleted. Its pods keep the row until they are gone, too."""
        row = self.nodes.row_of[name]
        if self.undo.active:
            self._record_node_change(None, self.nodes.node[row])
        self.nodes.clear_node(row)
        self._tree.remove(name)
        self.node_count -= 1
        changes = self.changes
        for topic in (changes.order, changes.images, changes.topology):
            topic.change()
        changes.nodes.record(row)
        self._release_if_unused(row)

    def _record_node_change(self, new: Node | None, old: Node | None) -> None:
        """Records how to revert the change of a Node object. Called before the change."""
        listed = self._listed
        in_place = old is not None and new is not None and zone_of(old.labels) == zone_of(new.labels)
        # A new node is the last of its zone, and removing it leaves the others in order.
        restore_order = None if old is None or in_place else self._tree.restorer()

        def revert() -> None:
            if old is not None:
                self.set_node(old)
            else:
                assert new is not None
                self.remove_node(new.name)
            if restore_order is not None:
                restore_order()
            self._listed = listed
            if not in_place:
                self.changes.order.change()

        self.undo.record(revert)

    def _release_if_unused(self, row: int) -> None:
        if self.nodes.node[row] is None and not self.row_pods[row] and row not in self.nominated:
            self.nodes.release(row)

    @property
    def order(self) -> IdColumn:
        """The rows of all nodes in the order in which they are evaluated."""
        self.list_nodes()
        return self._order

    def list_nodes(self) -> None:
        """Lists the nodes, as every attempt does at its beginning: the order depends on when they are listed,
        because the same nodes keep the order of their last list."""
        if self._order_freshness.is_current:
            return
        with self._order_freshness:
            if len(self._listed) != len(self._tree) or set(self._listed) != set(self._tree.names()):
                self._listed = list(self._tree.names())
            row_of = self.nodes.row_of
            self._order = np.array([row_of[name] for name in self._listed], dtype=np.intp)

    # Pods

    def add_pod(self, pod: Pod, node_name: str, info: PodInfo | None = None) -> int:
        """A pod is assigned to a node, known or not. Returns its slot."""
        if info is None:
            info = self.pod_infos.of(pod)
        row = self.nodes.row_of.get(node_name)
        if row is None:
            row = self._row_for_pod(node_name)
        here = self.row_pods[row]
        slot = self.pods.add(pod, info, row, True, len(here))
        here.append(slot)
        uid = pod.metadata.uid
        self._slot_of[uid] = slot
        if self.groups is not None and pod.spec.scheduling_group is not None:
            self.groups.pod_placed(pod)
        if self.undo.active:
            if info.host_ports:
                self.undo.record(self.ports.restorer(row))
            self.undo.record(lambda: self.remove_pod(uid))
        self._count(info, self.pods.terminating.cell[slot], row, 1)
        if info.host_ports:
            self.ports.use(info.host_ports, row)
        for claim in info.claims:
            self._use_claim(claim, 1)
        self.changes.usage.record(row)
        return slot

    def add_pods(self, pods: Sequence[Pod]) -> None:
        """Adds assigned pods to their nodes, as `add_pod` does one by one, in half of the time."""
        if self.undo.active or len(self.counts):
            for pod in pods:
                self.add_pod(pod, pod.spec.node_name)
            return
        infos = list(map(self.pod_infos.of, pods))
        row_of, row_pods, first = self.nodes.row_of, self.row_pods, self.pods.high
        rows: list[int] = []
        positions: list[int] = []
        for slot, pod in enumerate(pods, first):
            row = row_of.get(pod.spec.node_name)
            if row is None:
                row = self._row_for_pod(pod.spec.node_name)
            here = row_pods[row]
            rows.append(row)
            positions.append(len(here))
            here.append(slot)
        at = np.array(rows, dtype=np.intp)
        slots = self.pods.add_all(pods, infos, at, positions)
        assert slots.start == first
        self._count_many(slots, infos, at, 1)

    def remove_pods(self, slots: Sequence[int]) -> None:
        """Removes pods as `remove_pod` does one by one, in a fraction of the time, until that is reverted.

        Only while the undo log records. The pods keep their slots, and the order of those that stay on a
        node may be another one.
        """
        assert self.undo.active, "nothing would restore the pods"
        infos, at, gone = list(map(self.pods.info_of, slots)), self.pods.row.array.take(slots), set(slots)
        before = [(row, self.row_pods[row], self.ports.restorer(row)) for row in dict.fromkeys(at.tolist())]
        for row, here, _ in before:
            self._list_pods(row, [slot for slot in here if slot not in gone])
        self._count_many(slots, infos, at, -1)
        self.undo.record(lambda: self._restore_many(slots, infos, at, before))

    def _restore_many(
        self,
        slots: Sequence[int],
        infos: Sequence[PodInfo],
        at: IdColumn,
        before: Sequence[tuple[int, list[int], Callable[[], None]]],
    ) -> None:
        for row, here, _ in before:
            self._list_pods(row, here)
        self._count_many(slots, infos, at, 1)
        for _, _, restore_ports in before:
            restore_ports()

    def _list_pods(self, row: int, slots: list[int]) -> None:
        """These are the pods of a row, in this order."""
        self.row_pods[row] = slots
        positions = self.pods.position.cell
        for position, slot in enumerate(slots):
            positions[slot] = position

    def _count_many(self, slots: Sequence[int], infos: Sequence[PodInfo], at: IdColumn, change: int) -> None:
        """Counts pods on their rows (change 1) or no longer (-1). `row_pods` is up to date."""
        groups, counts, slot_of = self.groups, self.counts if len(self.counts) else None, self._slot_of
        self.pods.assigned.array[np.array(slots, dtype=np.intp)] = change > 0
        recounted: set[int] = set(self.recounted_rows)
        rows = at.tolist()
        for slot, info, row in zip(slots, infos, rows, strict=True):
            pod = self.pods.pod[slot]
            assert pod is not None
            if change > 0:
                slot_of[pod.metadata.uid] = slot
            else:
                del slot_of[pod.metadata.uid]
            if groups is not None and pod.spec.scheduling_group is not None:
                (groups.pod_placed if change > 0 else groups.pod_removed)(pod)
            if counts is not None and (counts.fresh or counts.of_set[info.label_set.id]):
                counts.add(info.label_set, self.pods.terminating.cell[slot], row, change)
            if info.is_large:
                recounted.add(row)
            if info.terms.carried:
                self.terms.add(info.terms, row, change)
            if info.host_ports:
                (self.ports.use if change > 0 else self.ports.free)(info.host_ports, row)
            for claim in info.claims:
                self._use_claim(claim, change)
        recounted.update(self.nodes.add_requests(infos, at, change))
        for row in dict.fromkeys(rows):
            if row in recounted:
                self._recount(row)
            self.changes.usage.record(row)

    def _use_claim(self, claim: str, change: int) -> None:
        left = self.claim_uses[claim] = self.claim_uses.get(claim, 0) + change
        if not left:
            del self.claim_uses[claim]

    def remove_pod(self, uid: str) -> None:
        """The pod is removed from its node."""
        slot = self._slot_of.pop(uid)
        pods = self.pods
        pod, info, row = pods.pod[slot], pods.info[slot], pods.row.cell[slot]
        assert pod is not None
        assert info is not None
        if self.groups is not None and pod.spec.scheduling_group is not None:
            self.groups.pod_removed(pod)
        here = self.row_pods[row]
        position, last = pods.position.cell[slot], here.pop()
        if self.undo.active:
            node_name, removed, known = self.nodes.name[row], pod, info
            if info.host_ports:
                self.undo.record(self.ports.restorer(row))
            self.undo.record(lambda: self._restore(removed, node_name, known, position))
        if last != slot:
            # The last pod takes the position of the removed one, as upstream.
            here[position] = last
            pods.position.cell[last] = position
        self._count(info, pods.terminating.cell[slot], row, -1)
        if info.host_ports:
            self.ports.free(info.host_ports, row)
        for claim in info.claims:
            self._use_claim(claim, -1)
        pods.remove(slot)
        self.changes.usage.record(row)
        self._release_if_unused(row)

    def _restore(self, pod: Pod, node_name: str, info: PodInfo, position: int) -> None:
        """Reverts the removal of a pod, at its old position in the list of the node's pods."""
        slot = self.add_pod(pod, node_name, info)
        there = self.row_pods[self.pods.row.cell[slot]][position]
        if there != slot:
            self._swap(slot, there)

    def update_pod(self, pod: Pod) -> None:
        """An assigned pod changed. If nothing changed that plugins read, only the object is replaced."""
        slot = self._slot_of[pod.metadata.uid]
        pods = self.pods
        old, known, row = pods.pod[slot], pods.info[slot], pods.row.cell[slot]
        assert old is not None
        # Most updates change the status, or confirm what was assumed.
        info = known if same_signature(old, pod) else self.pod_infos.of(pod)
        same = (
            info is known
            and pods.terminating.cell[slot] == (pod.metadata.deletion_timestamp is not None)
            and pods.start.cell[slot] == start_nanos(pod)
        )
        if not same:
            node_name = self.nodes.name[row]
            self.remove_pod(pod.uid)
            self.add_pod(pod, node_name, info)
            return
        pods.pod[slot] = pod
        if self.groups is not None and pod.spec.scheduling_group is not None:
            self.groups.pod_placed(pod)
        if old.metadata.annotations != pod.metadata.annotations:
            # No built-in plugin reads them, but plugins may.
            self.changes.usage.record(row)
        last = self.row_pods[row][-1]
        if self.undo.active:
            self.undo.record(lambda: self._revert_update(old, last))
        if last != slot:
            # Upstream removes the pod from the node and adds it again, which moves it to the end of its list.
            self._swap(slot, last)
            # Only preemption depends on this order: of identical victims the last one is evicted first.
            self.changes.nominations.record(row)

    def _revert_update(self, old: Pod, last: int) -> None:
        slot = self._slot_of[old.metadata.uid]
        row, new = self.pods.row.cell[slot], self.pods.pod[slot]
        self.pods.pod[slot] = old
        if new is not None and new.metadata.annotations != old.metadata.annotations:
            self.changes.usage.record(row)
        if last != slot:
            self._swap(slot, last)
            self.changes.nominations.record(row)

    def _swap(self, one: int, other: int) -> None:
        """Swaps two pods in the list of their row."""
        positions = self.pods.position.cell
        here = self.row_pods[self.pods.row.cell[one]]
        positions[one], positions[other] = positions[other], positions[one]
        here[positions[one]], here[positions[other]] = one, other

    def _request_columns(self, resource: str) -> tuple[Column, Column]:
        return self.nodes.resource(resource).requested, self.pods.requests(resource)

    def node_of(self, uid: str) -> str:
        """The name of the node of a pod; empty if it has none."""
        slot = self._slot_of.get(uid)
        return "" if slot is None else self.nodes.name[self.pods.row.cell[slot]]

    @property
    def pod_count(self) -> int:
        """The number of assigned pods."""
        return len(self._slot_of)

    def slot_of(self, uid: str) -> int:
        """The slot of an assigned pod."""
        return self._slot_of[uid]

    def info_of(self, uid: str) -> PodInfo:
        """What scheduling reads of an assigned pod."""
        return self.pods.info_of(self._slot_of[uid])

    def node_row(self, uid: str) -> int:
        """The row of an assigned pod."""
        return int(self.pods.row.cell[self._slot_of[uid]])

    def has_pod(self, uid: str) -> bool:
        """Whether a pod is assigned to a node."""
        return uid in self._slot_of

    def assigned_pods(self) -> Iterator[tuple[Pod, str]]:
        """All assigned pods, each with its node's name."""
        for uid in self._slot_of:
            found = self.assigned_pod(uid)
            assert found is not None
            yield found

    def assigned_pod(self, uid: str) -> tuple[Pod, str] | None:
        """An assigned pod, and its node's name."""
        slot = self._slot_of.get(uid)
        if slot is None:
            return None
        pod = self.pods.pod[slot]
        assert pod is not None
        return pod, self.nodes.name[self.pods.row.cell[slot]]

    def pods_on(self, row: int) -> Iterator[Pod]:
        for slot in self.row_pods[row]:
            pod = self.pods.pod[slot]
            assert pod is not None
            yield pod

    def _row_for_pod(self, node_name: str) -> int:
        row = self.nodes.row_for(node_name)
        if row == len(self.row_pods):
            self.row_pods.append([])
            self.changes.topology.change()
        return row

    def _count(self, info: PodInfo, terminating: bool, row: int, change: int) -> None:
        """Adds a pod to the sums of its row (change 1) or subtracts it (-1). `row_pods` is up to date."""
        if info.is_large or row in self.recounted_rows:
            self._recount(row)
        else:
            nodes = self.nodes
            try:
                nodes.pod_count.cell[row] += change
                nodes.nonzero_cpu_milli.cell[row] += change * info.nonzero_cpu_milli
                nodes.nonzero_memory_bytes.cell[row] += change * info.nonzero_memory_bytes
                for requested, _, amount in info.counted:
                    requested.cell[row] += change * amount
            except ValueError:  # a sum over tens of thousands of pods does not fit into its column
                self._recount(row)
        counts = self.counts
        if counts.fresh or counts.of_set[info.label_set.id]:
            counts.add(info.label_set, terminating, row, change)
        if info.terms.carried:
            self.terms.add(info.terms, row, change)

    def _recount(self, row: int) -> None:
        """Sums the pods of a row: subtracting a pod from a saturated sum would be wrong."""
        pods = [self.pods.info_of(slot) for slot in self.row_pods[row]]
        fits = self.nodes.recount(row, pods)
        if fits and not any(info.is_large for info in pods):
            self.recounted_rows.discard(row)
        else:
            self.recounted_rows.add(row)

    # Nominations

    def nominate(self, pod: Pod, node_name: str) -> None:
        """The pod is nominated to a node. An earlier nomination is removed."""
        if self._replace_nominated(pod, node_name):
            return
        self.remove_nomination(pod.uid)
        row = self._row_for_pod(node_name)
        info = self.pod_infos.of(pod)
        slot = self.pods.add(pod, info, row, False, 0)
        self.nominated.setdefault(row, []).append(slot)
        self._nominated_slot[pod.uid] = slot
        if self.undo.active:
            self.undo.record(lambda: self.remove_nomination(pod.uid))
        self.changes.nominations.record(row)

    def _replace_nominated(self, pod: Pod, node_name: str) -> bool:
        """Replaces only the object, if it is the last pod nominated to this node and nothing that plugins
        read has changed. False: nothing was done."""
        slot = self._nominated_slot.get(pod.uid)
        if slot is None or self.undo.active:
            return False
        row, old = self.pods.row.cell[slot], self.pods.pod[slot]
        assert old is not None
        same = (
            self.nodes.name[row] == node_name
            and self.nominated[row][-1] == slot
            and old.is_terminating == pod.is_terminating
            and old.status.start_time == pod.status.start_time
            and old.metadata.annotations == pod.metadata.annotations
            and same_signature(old, pod)
        )
        if same:
            self.pods.pod[slot] = pod
        return same

    def remove_nomination(self, uid: str) -> None:
        slot = self._nominated_slot.pop(uid, None)
        if slot is None:
            return
        row = self.pods.row.cell[slot]
        here = self.nominated[row]
        if self.undo.active:
            pod, node_name, index = self.pods.pod[slot], self.nodes.name[row], here.index(slot)
            assert pod is not None
            self.undo.record(lambda: self._nominate_again(pod, node_name, index))
        here.remove(slot)
        if not here:
            del self.nominated[row]
        self.pods.remove(slot)
        self.changes.nominations.record(row)
        self._release_if_unused(row)

    def _nominate_again(self, pod: Pod, node_name: str, index: int) -> None:
        """Reverts the removal of a nomination, at its old position in the list of the node."""
        self.nominate(pod, node_name)
        here = self.nominated[self.nodes.row_of[node_name]]
        here.insert(index, here.pop())

    def nominated_slot(self, uid: str) -> int:
        """The slot of a nominated pod, -1 if it is not nominated."""
        return self._nominated_slot.get(uid, -1)

    def nominated_row(self, uid: str) -> int:
        """The row that a pod is nominated to, -1 if it is not nominated."""
        slot = self._nominated_slot.get(uid)
        return -1 if slot is None else int(self.pods.row.cell[slot])

    def nominated_node(self, uid: str) -> str | None:
        row = self.nominated_row(uid)
        return None if row < 0 else self.nodes.name[row]

    # What plugins read

    def count(self, query: PodQuery) -> PodCount:
        return self.counts.count(query)

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        found = self.objects.of(Namespace).get(namespace)
        return _NO_LABELS if found is None else found.labels

    def free(self, row: int) -> tuple[int, int]:
        """cpu (milli) and memory (bytes) that are free on a row."""
        cpu, memory = self.nodes.resource(CPU), self.nodes.resource(MEMORY)
        return (
            cpu.allocatable.cell[row] - cpu.requested.cell[row],
            memory.allocatable.cell[row] - memory.requested.cell[row],
        )
