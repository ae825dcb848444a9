"""What can be read of a what-if cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif.controllers import without_node
from bayplan.answers.whatif.outcomes import Placement
from bayplan.answers.whatif.scheduling import Scheduling
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import InputError
from bayplan.state.cluster import Cluster as Columns

if TYPE_CHECKING:
    from bayplan.answers.whatif.admission import Admission
    from bayplan.answers.whatif.manifests import LeftOut
    from bayplan.answers.whatif.rollouts import Rollout

ObjectT = TypeVar("ObjectT", bound=Object)

POD_GROUP: Final = "PodGroup"
_NAME_PARTS: Final = re.compile(r"([^0-9]*)([0-9]*)")
_NO_NODE: Final = "there is no node {name!r}"
_NO_POD: Final = "there is no pod {key}"


class ClusterView:
    """Nodes and pods of a cluster, and of a branch of one."""

    def __init__(self, scheduling: Scheduling, parent: ClusterView | None = None) -> None:
        self._scheduling = scheduling
        self._state = scheduling.state
        self._store = scheduling.state.store
        self._parent = parent
        self._child: ClusterView | None = None
        self._is_open = True
        self._lost: dict[str, str] = {}
        """The node that a pod lost, by the pod's key."""
        self._created: set[str] = set()
        """The keys of pods that new or scaled workloads have created, without those of rollouts."""
        self._dropped: dict[str, Placement] = {}
        """Pods that lost their node and are not created again, or that the API server rejects."""
        self._rollouts: tuple[Rollout, ...] = ()
        """They are played when the cluster is scheduled."""
        self.left_out: tuple[LeftOut, ...] = ()
        """Objects of applied manifests that were not judged."""
        self._drain_warnings: dict[tuple[str, str], Warning] = {}
        """By the node, and the budget or pod that the warning is about."""

    @property
    def _admission(self) -> Admission:
        return self._scheduling.admission

    @property
    def columns(self) -> Columns:
        """The columns that scheduling reads; do not change them."""
        return self._state.columns

    @property
    def objects(self) -> list[Object]:
        """All objects, kind by kind."""
        return [item for kind in self._store.kinds() for item in self._store.list(kind)]

    def objects_of(self, kind: type[ObjectT]) -> list[ObjectT]:
        """The objects of one kind."""
        return list(self._store.all(kind))

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, in the order in which they are evaluated."""
        names = self._state.columns.nodes.name
        return [names[row] for row in self._state.columns.order]

    def node(self, name: str) -> Node:
        """The Node object.

        Raises:
            InputError: there is no such node.
        """
        found = self._store.find(Node, name)
        if found is None:
            raise InputError(_NO_NODE.format(name=name))
        return found

    @property
    def pods(self) -> list[Pod]:
        """All pods that have not finished, ordered by namespace and name."""
        return [pod for pod in self._store.list(Pod) if not pod.is_finished]

    @property
    def pod_count(self) -> int:
        """The number of pods that have not finished."""
        return sum(not pod.is_finished for pod in self._store.all(Pod))

    def find_pod(self, key: str) -> Pod | None:
        """A pod by `namespace/name`, or by its name in the default namespace; None if there is none."""
        namespace, _, name = key.rpartition("/")
        return self._store.find(Pod, name, namespace or "default")

    def pod(self, key: str) -> Pod:
        """The same for a pod that exists.

        Raises:
            InputError: there is no such pod.
        """
        found = self.find_pod(key)
        if found is None:
            raise InputError(_NO_POD.format(key=key))
        return found

    def pods_of(self, node: str) -> list[Pod]:
        """The pods on a node."""
        row = self._state.columns.nodes.row_of.get(node)
        return [] if row is None else list(self._state.columns.pods_on(row))

    def as_created(self, pod: Pod) -> Pod:
        """A pod of this cluster as its controller created it: without node and status."""
        return without_node(pod, self._store)

    @property
    def pending(self) -> list[Pod]:
        """The pods without a node, in the order in which they were created; those that were created together
        by namespace and name."""
        waiting = [pod for pod in self.pods if not pod.spec.node_name]
        return sorted(waiting, key=_created)

    @property
    def groups_left_out(self) -> dict[str, str]:
        """The pod groups of applied manifests that were not judged, with the reason."""
        return {one.key: one.why for one in self.left_out if one.kind == POD_GROUP}

    @property
    def not_recreated(self) -> tuple[Placement, ...]:
        """Pods that lost their node by `drain` or `remove_node`, and have no controller; and pods of `apply`
        that the API server rejects."""
        return tuple(self._dropped.values())

    def drain_warnings(self) -> tuple[Warning, ...]:
        """Budgets that `drain` would violate: kubectl drain waits until they allow the evictions; and pods
        without a controller, which it deletes only with --force.

        Also that budgets are missing, if the cluster was loaded without them.
        """
        return tuple(self._drain_warnings.values())


def _created(pod: Pod) -> tuple[float, str, list[tuple[str, int]]]:
    """When it was created, its namespace, and its name such that web-2 comes before web-10."""
    meta = pod.metadata
    created = 0.0 if meta.creation_timestamp is None else meta.creation_timestamp.timestamp()
    parts = [(text, int(digits or 0)) for text, digits in _NAME_PARTS.findall(meta.name)]
    return created, meta.namespace, parts
