"""The changes of the cluster during a fault run.

Everything that users, controllers, kubelets and other schedulers do, chosen at random.

`World` changes the store directly; its requests never fail. Every call of `act` does one thing, small or
large. It does not depend on the scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import LabelSelector, Object, ObjectMeta, ResourceList
from bayplan.api.node import Namespace, Node, NodeSpec, NodeStatus, Taint
from bayplan.api.pod import (
    Pod,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from bayplan.api.workloads import (
    POD_GROUP_LABEL,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodGroup,
    PodGroupSpec,
)
from bayplan.errors import APIError
from bayplan.simulate.memory.store import MemoryStore
from tests.faults.cluster import Spoiled
from tests.faults.objects import (
    OURS,
    THEIRS,
    ZONE,
    affinity,
    anti_affinity,
    half,
    make_pod,
    spread_constraint,
    summary,
)

NAMESPACE: Final = "default"

HOST: Final = "kubernetes.io/hostname"
ZONES: Final = ("a", "b", "c")
APPS: Final = ("web", "db", "batch")
DEDICATED: Final = Taint(key="dedicated", value="x", effect="NoSchedule")
TOLERATES_DEDICATED: Final = Toleration(key="dedicated", operator="Exists")
MAX_PODS: Final = 60
"""The number of pods at a time: a seed has to run in a fraction of a second."""


class World:
    """Changes a store at random; the same seed repeats exactly.

    Args:
        trace: called with a line of text for everything that was done.
    """

    def __init__(self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None]) -> None:
        self.store = store
        self._rng = rng
        self._trace = trace
        self._names = 0
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (14, self.create_pod),
            (5, self.create_several),
            (4, self.create_group),
            (2, self.add_to_group),
            (8, self.delete_pod),
            (3, self.finish_pod),
            (2, self.replace_pod),
            (4, self.ungate_pod),
            (3, self.relabel_pod),
            (2, self.add_toleration),
            (2, self.shrink_pod),
            (3, self.start_pod),
            (3, self.bind_theirs),
            (1, self.bind_ours),
            (2, self.create_bound),
            (3, self.add_node),
            (2, self.remove_node),
            (2, self.resize_node),
            (2, self.cordon_node),
            (2, self.taint_node),
            (1, self.move_node),
            (1, self.change_budget),
            (1, self.change_group),
            (1, self.compact),
            (4, self.spoil),
            (1, self.mend),
        ]
        self.spoiled = Spoiled()
        self._spoils = True

    def add_actions(self, actions: Iterable[tuple[int, Callable[[], None]]]) -> None:
        self._actions.extend(actions)

    def begin(self) -> None:
        """The initial cluster."""
        self.store.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        for _ in range(self._rng.choice((1, 3, 5, 8))):
            self.add_node()

    def act(self) -> None:
        """Does one thing."""
        weights = [weight for weight, _ in self._actions]
        ((_, action),) = self._rng.choices(self._actions, weights)
        # The chosen object may be gone, or may not allow the change: then nothing happens.
        with suppress(APIError):
            action()

    # Pods

    def create_pod(self) -> None:
        self._create(self._template()())

    def create_several(self) -> None:
        make = self._template()
        spec = make()
        for _ in range(self._rng.randint(2, 6)):
            self._create(spec)

    def create_group(self) -> None:
        """All members are identical, so that it is clear whether a group fits. They may come before the
        group."""
        rng, name = self._rng, self._new_name("g")
        size = rng.randint(1, 5)
        wanted = rng.randint(1, size) if rng.random() < 0.9 else size + 1
        seconds = rng.choice((None, 3, 10))
        group = PodGroup(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE),
            spec=PodGroupSpec(min_member=wanted, schedule_timeout_seconds=seconds),
        )
        first = rng.random() < 0.7
        if first:
            self._put(group)
        pod = self._with_label(
            make_pod(cpu=rng.choice((300, 900, 1500)), priority=rng.choice((0, 0, 5))), name
        )
        for _ in range(size):
            self._create(pod)
        if not first:
            self._put(group)

    def add_to_group(self) -> None:
        groups = self.store.list(PodGroup)
        if groups:
            name = self._rng.choice(groups).name
            identical = [pod for pod in self.store.list(Pod) if pod.labels.get(POD_GROUP_LABEL) == name]
            if identical:
                fresh = replace(identical[0].spec, node_name="", scheduling_gates=())
                self._create(Pod(metadata=ObjectMeta(labels=identical[0].labels), spec=fresh))

    def delete_pod(self) -> None:
        pod = self._any_pod()
        if pod is not None:
            self._delete(pod)

    def finish_pod(self) -> None:
        pod = self._any_pod(lambda pod: bool(pod.spec.node_name))
        if pod is not None:
            phase = self._rng.choice(("Succeeded", "Failed"))
            self._trace(f"pod {pod.name} ends: {phase}")
            self.store.set_pod_phase(pod.name, pod.namespace, phase)

    def replace_pod(self) -> None:
        """Another pod under the same name."""
        pod = self._any_pod()
        if pod is not None:
            self._trace(f"pod {pod.name} is created again")
            self.store.delete(Pod, pod.name, pod.namespace, grace_period_seconds=0)
            fresh = replace(pod.spec, node_name="")
            self.store.create(Pod(metadata=replace(pod.metadata, uid="", resource_version=""), spec=fresh))

    def ungate_pod(self) -> None:
        pod = self._any_pod(lambda pod: bool(pod.spec.scheduling_gates))
        if pod is not None:
            gates = pod.spec.scheduling_gates[1:]
            self._update(pod, "loses a gate", replace(pod.spec, scheduling_gates=gates))

    def relabel_pod(self) -> None:
        pod = self._any_pod()
        if pod is not None:
            labels = {**pod.labels, "app": self._rng.choice(APPS)}
            self._trace(f"pod {pod.name} is relabelled: {labels['app']}")
            self.store.update(replace(pod, metadata=replace(pod.metadata, labels=labels)))

    def add_toleration(self) -> None:
        pod = self._any_pod(lambda pod: not pod.spec.node_name and not pod.spec.tolerations)
        if pod is not None:
            self._update(pod, "tolerates more", replace(pod.spec, tolerations=(TOLERATES_DEDICATED,)))

    def shrink_pod(self) -> None:
        """Halves its requests."""
        pod = self._any_pod(lambda pod: bool(pod.spec.node_name))
        if pod is not None:
            container = pod.spec.containers[0]
            requests: ResourceList = {
                name: half(amount) for name, amount in container.resources.requests.items()
            }
            smaller = replace(container, resources=ResourceRequirements(requests=requests))
            self._update(pod, "shrinks", replace(pod.spec, containers=(smaller,)))

    def start_pod(self) -> None:
        pod = self._any_pod(lambda pod: bool(pod.spec.node_name) and pod.status.start_time is None)
        if pod is not None:
            self._trace(f"pod {pod.name} starts")
            year = self._rng.choice((None, None, 1, 2300, 9999))
            started = None if year is None else datetime(year, 1, 1, tzinfo=UTC)
            self.store.set_pod_running(pod.name, pod.namespace, started)

    def bind_theirs(self) -> None:
        """The other scheduler checks nothing: it may overcommit a node."""
        pod = self._any_pod(lambda pod: not pod.spec.node_name and pod.spec.scheduler_name == THEIRS)
        self._bind_by_others(pod)

    def bind_ours(self) -> None:
        """Changes a pod in a way that only users do."""
        pod = self._any_pod(lambda pod: not pod.spec.node_name and pod.spec.scheduler_name == OURS)
        self._bind_by_others(pod)

    def create_bound(self) -> None:
        node = self._any_node()
        if node is not None:
            pod = self._template()()
            self._create(replace(pod, spec=replace(pod.spec, node_name=node.name, scheduling_gates=())))

    def _bind_by_others(self, pod: Pod | None) -> None:
        node = self._any_node()
        if pod is not None and node is not None and not pod.spec.scheduling_gates:
            self._trace(f"pod {pod.name} is bound by others to {node.name}")
            self.store.bind(pod.name, pod.namespace, node.name)

    def _template(self) -> Callable[[], Pod]:
        """A kind of pod."""
        rng = self._rng
        app = rng.choice(APPS)
        cpu, priority = rng.choice((100, 500, 1000, 2500)), rng.choice((-5, 0, 0, 0, 5, 10))
        kinds: list[Callable[[], Pod]] = [
            lambda: make_pod(app, cpu, priority),
            lambda: make_pod(app, cpu, priority),
            lambda: make_pod(app, cpu, priority),
            lambda: make_pod(app, cpu, 10, preemption_policy="Never"),
            lambda: make_pod(app, cpu, priority, scheduler_name=THEIRS),
            lambda: make_pod(app, cpu, priority, tolerations=(TOLERATES_DEDICATED,)),
            lambda: make_pod(app, cpu, priority, node_selector={ZONE: "a"}),
            lambda: make_pod(app, 100, priority, ports=(8080,)),
            lambda: make_pod(app, cpu, priority, gates=("quota", "volume")),
            lambda: make_pod(app, 100, priority, affinity=anti_affinity(app, HOST)),
            lambda: make_pod(app, 100, priority, affinity=anti_affinity(app, ZONE)),
            lambda: make_pod(app, 100, priority, affinity=affinity(APPS[0], ZONE)),
            lambda: make_pod(app, 100, priority, spread=(spread_constraint(app, ZONE),)),
            lambda: make_pod(app, 100, priority, spread=(spread_constraint(app, HOST),)),
            lambda: make_pod(app, 2**62, priority),
        ]
        return rng.choice(kinds)

    def _with_label(self, pod: Pod, group: str) -> Pod:
        return replace(pod, metadata=replace(pod.metadata, labels={**pod.labels, POD_GROUP_LABEL: group}))

    def _create(self, pod: Pod) -> None:
        if len(self.store.list(Pod)) < MAX_PODS:
            meta = replace(pod.metadata, name=self._new_name("p"), namespace=NAMESPACE)
            self._put(replace(pod, metadata=meta))

    def _update(self, pod: Pod, what: str, spec: PodSpec) -> None:
        self._trace(f"pod {pod.name} {what}")
        self.store.update(replace(pod, spec=spec))

    def _delete(self, pod: Pod) -> None:
        self._trace(f"pod {pod.name} is deleted")
        self.store.delete(Pod, pod.name, pod.namespace)

    def _any_pod(self, wanted: Callable[[Pod], bool] = lambda pod: True) -> Pod | None:
        pods = [pod for pod in self.store.list(Pod) if not pod.is_finished and wanted(pod)]
        return self._rng.choice(pods) if pods else None

    # Nodes

    def add_node(self) -> None:
        rng = self._rng
        name = self._new_name("n")
        labels = {HOST: name, ZONE: rng.choice(ZONES)}
        taints = (DEDICATED,) if rng.random() < 0.2 else ()
        room: ResourceList = {
            "cpu": f"{rng.choice((1000, 2000, 4000, 8000))}m",
            "memory": "8Gi",
            "pods": rng.choice((3, 20, 20)),
        }
        self._put(
            Node(
                metadata=ObjectMeta(name=name, labels=labels),
                spec=NodeSpec(taints=taints),
                status=NodeStatus(allocatable=room, capacity=room),
            )
        )

    def remove_node(self) -> None:
        """Its pods are deleted, by a controller that may be late."""
        node = self._any_node()
        if node is not None and len(self.store.list(Node)) > 1:
            self._trace(f"node {node.name} goes")
            self.store.delete(Node, node.name)
            if self._rng.random() < 0.8:
                self.clear_orphans()

    def clear_orphans(self) -> None:
        """Deletes the pods of nodes that are gone."""
        nodes = {node.name for node in self.store.list(Node)}
        for pod in self.store.list(Pod):
            if pod.spec.node_name and pod.spec.node_name not in nodes:
                self._trace(f"pod {pod.name} goes with its node")
                self.store.delete(Pod, pod.name, pod.namespace, grace_period_seconds=0)

    def resize_node(self) -> None:
        node = self._any_node()
        if node is not None:
            room = {**node.status.allocatable, "cpu": f"{self._rng.choice((1000, 2000, 4000, 6000))}m"}
            self._change(
                node, f"has {room['cpu']}", replace(node, status=replace(node.status, allocatable=room))
            )

    def cordon_node(self) -> None:
        node = self._any_node()
        if node is not None:
            closed = not node.spec.unschedulable
            spec = replace(node.spec, unschedulable=closed)
            self._change(node, "is cordoned" if closed else "is open", replace(node, spec=spec))

    def taint_node(self) -> None:
        node = self._any_node()
        if node is not None:
            taints = () if node.spec.taints else (DEDICATED,)
            self._change(
                node, f"has taints {len(taints)}", replace(node, spec=replace(node.spec, taints=taints))
            )

    def move_node(self) -> None:
        node = self._any_node()
        if node is not None:
            labels = {**node.labels, ZONE: self._rng.choice(ZONES)}
            moved = replace(node, metadata=replace(node.metadata, labels=labels))
            self._change(node, f"is in zone {labels[ZONE]}", moved)

    def _change(self, node: Node, what: str, changed: Node) -> None:
        self._trace(f"node {node.name} {what}")
        self.store.update(changed)

    def _any_node(self) -> Node | None:
        nodes = self.store.list(Node)
        return self._rng.choice(nodes) if nodes else None

    # The rest

    def change_budget(self) -> None:
        app, allowed = self._rng.choice(APPS), self._rng.randint(0, 2)
        budgets = {budget.name: budget for budget in self.store.list(PodDisruptionBudget)}
        status = PodDisruptionBudgetStatus(disruptions_allowed=allowed)
        if app in budgets:
            self.store.update(replace(budgets[app], status=status))
            return
        selector = LabelSelector(match_labels={"app": app})
        meta = ObjectMeta(name=app, namespace=NAMESPACE)
        self._put(
            PodDisruptionBudget(metadata=meta, spec=PodDisruptionBudgetSpec(selector=selector), status=status)
        )

    def change_group(self) -> None:
        groups = self.store.list(PodGroup)
        if groups:
            group = self._rng.choice(groups)
            wanted = max(1, group.spec.min_member + self._rng.choice((-1, 1)))
            self._trace(f"group {group.name} wants {wanted}")
            self.store.update(replace(group, spec=replace(group.spec, min_member=wanted)))

    def spoil(self) -> None:
        """Writes something into an object that the scheduler cannot read."""
        item: Pod | Node | None = self._any_node()
        if self._rng.random() < 0.9:
            item = self._any_pod(lambda pod: bool(pod.spec.node_name)) or self._any_pod(lambda pod: True)
        if item is not None and self._spoils:
            self._trace(f"{type(item).__name__} {item.name} is spoiled")
            self.spoiled.uids.add(item.uid)
            self._touch(item)

    def mend(self) -> None:
        """Makes all unreadable objects readable again."""
        uids = set(self.spoiled.uids)
        self.spoiled.uids.clear()
        items: list[Pod | Node] = [*self.store.list(Pod), *self.store.list(Node)]
        for item in items:
            if item.uid in uids:
                self._trace(f"{type(item).__name__} {item.name} is mended")
                self._touch(item)

    def mend_for_good(self) -> None:
        self.mend()
        self._spoils = False

    def _touch(self, item: Pod | Node) -> None:
        """A new version of the object."""
        times = int(item.annotations.get("touched", "0")) + 1
        annotations = {**item.annotations, "touched": str(times)}
        self.store.update(replace(item, metadata=replace(item.metadata, annotations=annotations)))

    def compact(self) -> None:
        """The API server compacts its history: watchers of older versions have to list."""
        self._trace("history is compacted")
        self.store.compact()

    def _put(self, item: Object) -> None:
        self._trace(f"{type(item).__name__} {item.name} comes: {summary(item)}")
        self.store.create(item)

    def _new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"
