"""Generated cluster lives: events that are drawn from pools of nodes, pods and other objects (`pools.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from msgspec import structs

from bayplan.api.meta import Object
from bayplan.api.node import ContainerImage, Namespace, Node
from bayplan.api.workloads import PodDisruptionBudget, Service
from bayplan.plugin import CycleState, Dependencies, IntColumn, NodeColumns, Plugin, Pod, normalize_default
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.testing.builders import make_taint

from .pools import BYSTANDERS, NODE_POOL, NODES, OBJECTS, PARTICULAR, PLAIN, RANKED, SHAPES, ZONE, Shape


@dataclass(frozen=True)
class Schedule:
    """A pod is tried. If it fits it runs there; if it preempts, with `carry` that is carried out."""

    shape: Shape
    carry: bool
    nominated_node: str = ""
    node_name: str = ""


@dataclass(frozen=True)
class SetNode:
    node: Node

    def __repr__(self) -> str:
        node = self.node
        return (
            f"SetNode({node.name!r}, {node.labels}, {node.status.allocatable}, taints={node.spec.taints}, "
            f"unschedulable={node.spec.unschedulable}, images={node.status.images})"
        )


@dataclass(frozen=True)
class ChangeNode:
    """One thing about a node changes and nothing else does."""

    name: str
    what: str
    value: Any

    def apply(self, node: Node) -> Node:
        if self.what in ("cpu", "pods"):
            room = {**node.status.allocatable, self.what: self.value}
            return structs.replace(node, status=structs.replace(node.status, allocatable=room))
        if self.what in ("taints", "unschedulable"):
            return structs.replace(node, spec=structs.replace(node.spec, **{self.what: self.value}))
        if self.what == "images":
            return structs.replace(node, status=structs.replace(node.status, images=self.value))
        labels = {key: value for key, value in node.labels.items() if key != self.what}
        if self.value is not None:
            labels[self.what] = self.value
        return structs.replace(node, metadata=structs.replace(node.metadata, labels=labels))


CHANGES: Final[tuple[tuple[str, Any], ...]] = (
    (ZONE, "z0"),
    (ZONE, "z1"),
    (ZONE, "z9"),
    (ZONE, None),
    ("rack", "r0"),
    ("rack", "r1"),
    ("rack", None),
    ("disk", "ssd"),
    ("disk", None),
    ("unschedulable", True),
    ("unschedulable", False),
    ("taints", ()),
    ("taints", (make_taint("dedicated=db:NoSchedule"),)),
    ("taints", (make_taint("slow=1:PreferNoSchedule"),)),
    ("cpu", "1"),
    ("cpu", "8"),
    ("pods", 1),
    ("pods", 20),
    ("images", ()),
    ("images", (ContainerImage(names=("big:latest",), size_bytes=500 * 2**20),)),
)


@dataclass(frozen=True)
class RemoveNode:
    name: str


@dataclass(frozen=True)
class DeletePod:
    """One of the running pods is deleted."""

    which: int


@dataclass(frozen=True)
class UpdatePod:
    """One of the pods that run changes, in a way that matters (it is being deleted) or not."""

    which: int
    terminate: bool


@dataclass(frozen=True)
class AppearPod:
    """A pod that another scheduler bound, perhaps to an unknown node."""

    shape: Shape
    node: str


@dataclass(frozen=True)
class Withdraw:
    """One of the pods that wait for their victims is no longer nominated."""

    which: int


@dataclass(frozen=True)
class Put:
    item: Object


@dataclass(frozen=True)
class Drop:
    item: Object


@dataclass(frozen=True)
class Trim:
    """The logs drop old entries."""


Event = (
    Schedule
    | SetNode
    | ChangeNode
    | RemoveNode
    | DeletePod
    | UpdatePod
    | AppearPod
    | Withdraw
    | Put
    | Drop
    | Trim
)

T = TypeVar("T")


class CountsPods(Plugin):
    """Prefers nodes by their number of pods and that of Services.

    Its scores depend on usage and are normalized: a pod changes the scores of other nodes than its own, too.
    """

    depends_on = Dependencies.of("labels", usage=True, kinds=(Service,))
    elementwise = True

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        return (nodes.pod_count + len(nodes.cluster.objects.of(Service))) % 4

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores)


class PrefersManyCores(Plugin):
    """Its scores depend on the Node objects alone, and are normalized over those nodes that are feasible."""

    depends_on = Dependencies.of()

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return nodes.label("cores").map(int, absent=1)

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores)


def _any(pool: Sequence[T]) -> st.SearchStrategy[T]:
    """One of many things, drawn by number: Hypothesis would print a pool of them at length."""
    return st.integers(0, len(pool) - 1).map(lambda index: pool[index])


@dataclass(frozen=True)
class Flavor:
    """What a cluster's life is mostly about: which pods and nodes there are, and what happens how often."""

    shapes: Sequence[Shape]
    nodes: tuple[int, ...]
    """Variants of nodes to begin with; 0 is the roomy one."""
    shares: Mapping[str, int]
    fewest: int = 2
    """Nodes to begin with."""
    changes: Sequence[tuple[str, Any]] = CHANGES
    objects: Sequence[Object] = OBJECTS
    plugins: Sequence[type[Plugin]] = BUILTIN_PLUGINS


FLAVORS: Final[Mapping[str, Flavor]] = {
    "relabelled": Flavor(
        PLAIN[3:],
        (0,),
        {"schedule": 60, "change": 25, "delete": 15},
        fewest=5,
        changes=[change for change in CHANGES if change[0] in (ZONE, "rack")],
    ),
    "crowded": Flavor(
        RANKED,
        (1, 2, 3),
        {"schedule": 55, "change": 10, "delete": 10, "update": 10, "withdraw": 5, "put": 7, "drop": 3},
        changes=[change for change in CHANGES if change[0] in ("cpu", "pods", "taints", "unschedulable")],
        objects=[item for item in OBJECTS if isinstance(item, PodDisruptionBudget)],
    ),
    "fought over": Flavor(
        RANKED,
        (1, 2, 3),
        {"schedule": 50, "delete": 8, "appear": 30, "put": 10, "drop": 2},
        objects=[item for item in OBJECTS if isinstance(item, PodDisruptionBudget)],
    ),
    "made room for": Flavor(
        (*BYSTANDERS * 3, *PARTICULAR),
        (1, 2, 3, 5),
        {"schedule": 50, "appear": 30, "delete": 5, "change": 5, "withdraw": 5, "put": 4, "drop": 1},
        fewest=3,
        changes=[change for change in CHANGES if change[0] in ("cpu", "pods", ZONE, "unschedulable")],
        objects=[item for item in OBJECTS if isinstance(item, PodDisruptionBudget)],
    ),
    "looked up": Flavor(
        (*PLAIN, *(shape for shape in SHAPES if shape.fields.keys() & {"claims", "owner", "volumes"})),
        (0, 1),
        {"schedule": 50, "put": 30, "drop": 10, "delete": 10},
    ),
    "supposed": Flavor(
        (*PLAIN, *SHAPES),
        (0, 1),
        {"schedule": 60, "change": 10, "set": 3, "delete": 5, "put": 3, "drop": 1, "appear": 18},
        objects=[item for item in OBJECTS if isinstance(item, (Namespace, Service))],
    ),
    "counted": Flavor(
        PLAIN,
        (0, 2, 3),
        {"schedule": 55, "delete": 10, "appear": 10, "change": 10, "put": 5, "drop": 2, "trim": 8},
        fewest=3,
        changes=[change for change in CHANGES if change[0] in ("cpu", "pods")],
        objects=[item for item in OBJECTS if isinstance(item, Service)],
        plugins=(*BUILTIN_PLUGINS, CountsPods),
    ),
    "filled": Flavor(
        PLAIN[:3],
        (2, 3, 4, 5),
        {"schedule": 65, "appear": 12, "delete": 8, "change": 8, "trim": 7},
        fewest=5,
        changes=[change for change in CHANGES if change[0] in ("cpu", "pods")],
        plugins=(*BUILTIN_PLUGINS, PrefersManyCores),
    ),
    "everything": Flavor(
        (*PLAIN, *SHAPES),
        (0, 1, 2),
        {
            "schedule": 42,
            "odd": 6,
            "change": 16,
            "set": 4,
            "remove": 4,
            "delete": 8,
            "update": 4,
            "appear": 4,
            "withdraw": 2,
            "put": 6,
            "drop": 3,
            "trim": 1,
        },
    ),
}


def _kinds(flavor: Flavor, shapes: Sequence[Shape]) -> dict[str, st.SearchStrategy[Event]]:
    """What can happen to a cluster with pods of these shapes."""
    nominated, named = st.sampled_from(("", *NODES)), st.sampled_from(("", "", *NODES))
    which, name = st.integers(0, 30), st.sampled_from(NODES)
    any_node = _any([node for pool in NODE_POOL.values() for node in pool])
    without_ports = [shape for shape in shapes if "host_ports" not in shape.fields] or [Shape()]
    return {
        "schedule": st.builds(Schedule, _any(shapes), st.booleans()),
        "odd": st.builds(Schedule, _any(shapes), st.booleans(), nominated, named),
        "change": st.builds(lambda name, change: ChangeNode(name, *change), name, _any(flavor.changes)),
        "set": st.builds(SetNode, any_node),
        "remove": st.builds(RemoveNode, name),
        "delete": st.builds(DeletePod, which),
        "update": st.builds(UpdatePod, which, st.booleans()),
        "appear": st.builds(AppearPod, _any(without_ports), st.sampled_from((*NODES, "unseen"))),
        "withdraw": st.builds(Withdraw, which),
        "put": st.builds(Put, _any(flavor.objects)),
        "drop": st.builds(Drop, _any(flavor.objects)),
        "trim": st.just(Trim()),
    }


def events(flavor: Flavor, shapes: Sequence[Shape]) -> st.SearchStrategy[Event]:
    kinds = _kinds(flavor, shapes)
    by_share = [kinds[kind] for kind, share in flavor.shares.items() for _ in range(share)]
    # `one_of` would take equal alternatives for one.
    return st.integers(0, len(by_share) - 1).flatmap(lambda number: by_share[number])


@st.composite
def lives(draw: st.DrawFn, flavor: Flavor, most: int = 60) -> list[Event]:
    """A few nodes, and then a sequence of events around pods of a few shapes."""
    first = draw(st.lists(st.integers(0, len(NODES) - 1), min_size=flavor.fewest, max_size=6, unique=True))
    variant = draw(st.sampled_from(flavor.nodes))
    shapes = draw(st.lists(_any(flavor.shapes), min_size=1, max_size=4))
    count = draw(st.integers(1, most))
    following = draw(st.lists(events(flavor, shapes), min_size=count, max_size=count))
    return [*(SetNode(NODE_POOL[NODES[index]][variant]) for index in first), *following]
