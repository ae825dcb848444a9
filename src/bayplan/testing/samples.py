"""Sample clusters and pods: some of everything that scheduling reads, small, and repeatable with the same
seed.

For checks of every plugin. A plugin that reads something special (an annotation, a label of its own) is
checked with samples that have it: `Samples(objects, pods)` takes any.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Affinity, Pod
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import (
    make_csi_node,
    make_expression,
    make_namespace,
    make_node,
    make_node_affinity,
    make_node_term,
    make_owner,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pv,
    make_pvc,
    make_replica_set,
    make_service,
    make_spread,
    make_storage_class,
    make_toleration,
)

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
GPU: Final = "example.com/gpu"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
MEBIBYTE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Samples:
    """The objects of a cluster (pods with a node run there), and pending pods."""

    objects: Sequence[Object]
    pods: Sequence[Pod]

    def cluster(self) -> Cluster:
        """A new cluster of these objects."""
        cluster = Cluster()
        for item in self.objects:
            if isinstance(item, Node):
                cluster.set_node(item)
            elif isinstance(item, Pod):
                cluster.add_pod(item, item.spec.node_name)
            else:
                cluster.objects.put(item)
        return cluster

    def without(self, *kinds: type[Object]) -> Samples:
        """The same without objects of these kinds."""
        return Samples([item for item in self.objects if not isinstance(item, kinds)], self.pods)


def make_samples(seed: int = 0, *, nodes: int = 7, running: int = 14, waiting: int = 25) -> Samples:
    """Nodes of all kinds, pods on them (one on a node that does not exist), and pods with all kinds of
    constraints."""
    rng = random.Random(seed)
    names = [f"node-{number}" for number in range(nodes)]
    objects: list[Object] = [_node(rng, name) for name in names]
    objects.extend(_other_objects(names))
    objects.extend(_pod(rng, f"running-{number}", node=rng.choice(names)) for number in range(running))
    objects.append(make_pod("early", node="unseen", cpu=1))
    objects.append(make_pod("owner", node=names[0], claims=["alone"]))
    pods = [make_pod("plain"), make_pod("named", node=names[0])]
    pods.extend(_pod(rng, f"waiting-{number}") for number in range(waiting - len(pods)))
    return Samples(objects, pods)


def _other_objects(names: Iterable[str]) -> list[Object]:
    bound = make_pvc("bound", volume="pv-bound")
    alone = make_pvc("alone", volume="pv-alone", access_modes=("ReadWriteOncePod",))
    return [
        make_service("web", {"app": "web"}),
        make_replica_set("rs", {"app": "db"}),
        make_pdb("web", {"app": "web"}, allowed=1),
        make_namespace("default", labels={"team": "a"}),
        make_namespace("other"),
        make_storage_class("slow", provisioner="kubernetes.io/no-provisioner"),
        make_storage_class("fast", allowed=[{ZONE: ["z0", "z1"]}]),
        bound,
        alone,
        make_pvc("later", storage_class="slow"),
        make_pvc("soon", storage_class="fast"),
        make_pv("pv-bound", claim=bound, on_nodes_with={ZONE: ["z0", "z1"]}, driver="csi.example.com"),
        make_pv("pv-alone", claim=alone, labels={ZONE: "z0"}, driver="csi.example.com"),
        make_pv("pv-later", storage_class="slow", on_nodes_with={"disk": ["ssd"]}),
        *(make_csi_node(name, {"csi.example.com": 1}) for name in names),
    ]


def _node(rng: random.Random, name: str) -> Node:
    labels = {HOST: name, "cores": rng.choice(("2", "4"))}
    if rng.random() < 0.8:
        labels[ZONE] = rng.choice(("z0", "z1", "z2"))
    if rng.random() < 0.5:
        labels["disk"] = rng.choice(("ssd", "hdd"))
    taints = rng.choice(((), (), ("dedicated=db:NoSchedule",), ("slow:PreferNoSchedule",)))
    images = rng.choice(({}, {"big:latest": 900 * MEBIBYTE}, {"small:v1": 90 * MEBIBYTE}))
    return make_node(
        name,
        cpu=rng.choice(("2", "4", "8")),
        memory=rng.choice(("4Gi", "16Gi")),
        pods=rng.choice((2, 10, 110)),
        resources=rng.choice((None, {GPU: 2})),
        labels=labels,
        annotations=rng.choice(({}, {"example.com/note": "x"})),
        taints=taints,
        unschedulable=rng.random() < 0.15,
        images=images,
        declared_features=rng.choice(((), ("RestartAllContainersOnContainerExits",))),
    )


def _pod(rng: random.Random, name: str, *, node: str = "") -> Pod:
    fields: dict[str, Any] = {
        "cpu": rng.choice((None, "100m", "1", "3")),
        "memory": rng.choice((None, "1Gi", "5Gi")),
        "priority": rng.choice((None, 0, 10, 100)),
        "namespace": rng.choice(("default", "default", "default", "other")),
        "image": rng.choice(("", "big", "small:v1")),
        "annotations": rng.choice(({}, {"example.com/note": "x"})),
        "started": START + timedelta(minutes=rng.randrange(60)),
    }
    if rng.random() < 0.8:
        fields["labels"] = {"app": rng.choice(("web", "db"))}
    for chance, more in (
        (0.2, {"requests": {GPU: 1}}),
        (0.3, {"tolerations": [make_toleration("dedicated")]}),
        (0.1, {"tolerations": [make_toleration()]}),
        (0.15, {"node_selector": {"disk": "ssd"}}),
        (0.4, {"affinity": _affinity(rng)}),
        (0.3, {"spread": [make_spread(rng.choice((ZONE, HOST)), {"app": "web"}, hard=rng.random() < 0.5)]}),
        (0.15, {"host_ports": [rng.choice((80, 81))]}),
        (0.2, {"claims": [rng.choice(("bound", "alone", "later", "soon"))]}),
        (0.15, {"owner": make_owner("ReplicaSet", "rs")}),
        (0.1, {"host_network": True, "host_users": False}),
        (0.1, {"gates": ["wait"]}),
    ):
        if rng.random() < chance:
            fields.update(more)
    return make_pod(name, node=node, **fields)


def _affinity(rng: random.Random) -> Affinity:
    web, db = make_pod_term(ZONE, {"app": "web"}), make_pod_term(HOST, {"app": "db"})
    return rng.choice(
        (
            make_node_affinity(make_node_term(make_expression("disk", "Exists"))),
            make_node_affinity(preferred=[(5, make_node_term(make_expression("cores", "Gt", "2")))]),
            make_pod_affinity(required=[web]),
            make_pod_affinity(anti_required=[db]),
            make_pod_affinity(preferred=[(7, web)], anti_preferred=[(3, db)]),
        )
    )
