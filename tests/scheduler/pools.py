"""Pools of nodes, pods and other objects that generated cluster lives are made of.

They are made once, from a seed, so that drawing from them is cheap; the simplest items come first in every
pool, so that a failing sequence shrinks to them. Everything is small deliberately: few names, few labels and
tight nodes make pods meet.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bayplan.api.meta import LabelSelector, Object
from bayplan.api.node import Node
from bayplan.api.pod import (
    Affinity,
    ContainerPort,
    GCEPersistentDiskVolumeSource,
    Pod,
    PodAffinityTerm,
    TopologySpreadConstraint,
    Volume,
)
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
    make_selector,
    make_service,
    make_spread,
    make_storage_class,
    make_toleration,
    make_volume_attachment,
)

GPU: Final = "example.com/gpu"
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
KEYS: Final = (ZONE, HOST, "rack")
NODES: Final = ("n0", "n1", "n2", "n3", "n4", "n5")
NAMESPACES: Final = ("default", "other")
APPS: Final = ("web", "db", "job")


@dataclass(frozen=True)
class Shape:
    """A pod without a name."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    def pod(self, name: str, **more: Any) -> Pod:
        return make_pod(name, **{**self.fields, **more})

    def __repr__(self) -> str:
        return f"Shape({dict(self.fields)})"


def _selector(rng: random.Random) -> LabelSelector | Mapping[str, str] | None:
    return rng.choice(
        (
            {"app": rng.choice(APPS)},
            {"app": rng.choice(APPS)},
            make_selector({}, make_expression("app", "In", *rng.sample(APPS, 2))),
            make_selector({}, make_expression("app", "NotIn", rng.choice(APPS))),
            make_selector({}, make_expression("tier", "Exists")),
            make_selector({"app": rng.choice(APPS)}, make_expression("tier", "DoesNotExist")),
            make_selector(),
            None,
        )
    )


def _term(rng: random.Random) -> PodAffinityTerm:
    namespaces: Sequence[str] = ()
    namespace_selector = None
    chance = rng.random()
    if chance < 0.15:
        namespaces = rng.sample(NAMESPACES, rng.choice((1, 2)))
    elif chance < 0.3:
        namespace_selector = rng.choice(
            (
                make_selector(),
                make_selector({"team": "a"}),
                make_selector({}, make_expression("team", "Exists")),
            )
        )
    return make_pod_term(
        rng.choice(KEYS), _selector(rng), namespaces=namespaces, namespace_selector=namespace_selector
    )


def pod_affinity(rng: random.Random) -> Affinity:
    kind = rng.choice(("required", "anti", "preferred", "all"))
    return make_pod_affinity(
        required=[_term(rng) for _ in range(rng.choice((1, 1, 2)))] if kind in ("required", "all") else (),
        anti_required=[_term(rng)] if kind in ("anti", "all") else (),
        preferred=[(rng.choice((1, 7, 100)), _term(rng))] if kind in ("preferred", "all") else (),
        anti_preferred=[(rng.choice((1, 50)), _term(rng))] if kind in ("preferred", "all") else (),
    )


def _node_affinity(rng: random.Random) -> Affinity:
    required = rng.choice(
        (
            (),
            (make_node_term(make_expression("disk", "In", "ssd")),),
            (make_node_term(make_expression(ZONE, "NotIn", "z0")),),
            (
                make_node_term(make_expression("cores", "Gt", "2")),
                make_node_term(make_expression("disk", "Exists")),
            ),
            (make_node_term(fields=[make_expression("metadata.name", "In", rng.choice(NODES))]),),
            (make_node_term(make_expression("cores", "Gt", "no number")),),
        )
    )
    preferred = [(rng.choice((1, 30)), make_node_term(make_expression("disk", "In", "ssd")))]
    return make_node_affinity(*required, preferred=preferred if rng.random() < 0.5 or not required else ())


def spread(rng: random.Random, *, hard: bool) -> TopologySpreadConstraint:
    return make_spread(
        rng.choice(KEYS),
        _selector(rng),
        max_skew=rng.choice((1, 1, 2, 3)),
        hard=hard,
        min_domains=rng.choice((None, None, 2, 4)) if hard else None,
        node_affinity_policy=rng.choice((None, "Ignore", "Honor")),
        node_taints_policy=rng.choice((None, None, "Ignore", "Honor")),
        match_label_keys=rng.choice(((), (), ("tier",))),
    )


def _tolerations(rng: random.Random) -> list[Any]:
    return rng.choice(
        (
            [make_toleration("dedicated", "db", "NoSchedule")],
            [make_toleration("dedicated")],
            [make_toleration("slow", effect="PreferNoSchedule")],
            [make_toleration()],
        )
    )


def _merged(one: Affinity, other: Affinity) -> Affinity:
    return Affinity(
        node_affinity=one.node_affinity,
        pod_affinity=other.pod_affinity,
        pod_anti_affinity=other.pod_anti_affinity,
    )


def random_shape(rng: random.Random) -> Shape:
    """A pod that requests some of everything."""
    fields: dict[str, Any] = {"cpu": rng.choice((None, "250m", "500m", "1", "2"))}
    fields["memory"] = rng.choice((None, None, "1Gi", "3Gi"))
    if rng.random() < 0.15:
        fields["requests"] = {GPU: rng.choice((1, 2))}
    if rng.random() < 0.8:
        fields["labels"] = {"app": rng.choice(APPS)}
        if rng.random() < 0.3:
            fields["labels"]["tier"] = rng.choice(("front", "back"))
    if rng.random() < 0.25:
        fields["namespace"] = "other"
    fields["priority"] = rng.choice((None, 0, 10, 10, 100))
    if rng.random() < 0.05:
        fields["preemption_policy"] = "Never"
    if rng.random() < 0.25:
        fields["tolerations"] = _tolerations(rng)
    if rng.random() < 0.1:
        fields["node_selector"] = {"disk": "ssd"}
    affinity: Affinity | None = _node_affinity(rng) if rng.random() < 0.2 else None
    if rng.random() < 0.4:
        others = pod_affinity(rng)
        affinity = others if affinity is None else _merged(affinity, others)
    fields["affinity"] = affinity
    if rng.random() < 0.35:
        fields["spread"] = [spread(rng, hard=rng.random() < 0.5) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.12:
        address = rng.choice(("", "10.0.0.1"))
        fields["host_ports"] = [
            ContainerPort(host_port=rng.choice((80, 81)), protocol="TCP", host_ip=address)
        ]
    if rng.random() < 0.25:
        fields["image"] = rng.choice(("big", "small:v1"))
    if rng.random() < 0.1:
        fields["owner"] = make_owner("ReplicaSet", "rs")
    if rng.random() < 0.15:
        fields["claims"] = [rng.choice(("bound", "alone", "later", "missing"))]
    if rng.random() < 0.05:
        disk = GCEPersistentDiskVolumeSource(pd_name="disk", read_only=rng.random() < 0.5)
        fields["volumes"] = [Volume(name="disk", gce_persistent_disk=disk)]
    return Shape(fields)


def random_node(rng: random.Random, name: str) -> Node:
    labels = {HOST: name, "cores": rng.choice(("2", "4"))}
    if rng.random() < 0.85:
        labels[ZONE] = rng.choice(("z0", "z1", "z2"))
    if rng.random() < 0.6:
        labels["rack"] = rng.choice(("r0", "r1", ""))
    if rng.random() < 0.5:
        labels["disk"] = rng.choice(("ssd", "hdd"))
    if rng.random() < 0.05:
        del labels[HOST]
    taints = rng.choice(((), (), (), ("dedicated=db:NoSchedule",), ("slow=1:PreferNoSchedule",)))
    return make_node(
        name,
        cpu=rng.choice(("1", "2", "3")),
        memory=rng.choice(("4Gi", "8Gi")),
        pods=rng.choice((2, 4, 8)),
        resources={GPU: rng.choice((1, 2))} if rng.random() < 0.3 else None,
        labels=labels,
        taints=taints,
        unschedulable=rng.random() < 0.08,
        images=rng.choice(({}, {}, {"big:latest": 900 * 2**20}, {"small:v1": 90 * 2**20})),
    )


def _plain_shapes() -> tuple[Shape, ...]:
    """Pods that require one thing, or the two that are computed together."""
    web = {"app": "web"}
    near, away = make_pod_term(ZONE, web), make_pod_term(HOST, web)
    near_db = make_pod_term(ZONE, {"app": "db"})
    soft, hard = make_spread(ZONE, web, hard=False), make_spread(ZONE, web, max_skew=2)
    alone: tuple[dict[str, Any], ...] = (
        {},
        {"cpu": "500m"},
        {"cpu": "1", "priority": 100},
        {"spread": [hard]},
        {"spread": [soft]},
        {"spread": [make_spread(HOST, web), soft]},
        {"spread": [hard], "affinity": make_pod_affinity(preferred=[(5, near_db)])},
        {"affinity": make_pod_affinity(anti_required=[away])},
        {"affinity": make_pod_affinity(anti_required=[away], preferred=[(9, near)])},
        {"affinity": make_pod_affinity(required=[near])},
        {"affinity": make_pod_affinity(required=[near], anti_preferred=[(9, away)])},
        {"affinity": make_pod_affinity(preferred=[(9, near)])},
        {"host_ports": [80], "spread": [hard, soft]},
        {"image": "big", "spread": [soft]},
        {"claims": ["bound"], "spread": [soft]},
        {"labels": {"app": "db"}},
        # More than a column can hold: one forever without a node, others that fit the largest nodes.
        {"memory": "7Ei"},
        {"memory": "40Pi"},
        {"requests": {GPU: 2**55}},
    )
    return tuple(Shape({"labels": web, **fields}) for fields in alone)


def _shapes(count: int) -> tuple[Shape, ...]:
    rng = random.Random(2026)
    return PLAIN + tuple(random_shape(rng) for _ in range(count))


IMAGES: Final = {"big:latest": 2**63 - 1, "small:v1": -1}
"""Sizes of images that no node has."""


def _nodes(variants: int) -> dict[str, tuple[Node, ...]]:
    """For each name a roomy node without taints or other restrictions, and others."""
    rng = random.Random(36)
    pool: dict[str, tuple[Node, ...]] = {}
    for number, name in enumerate(NODES):
        labels = {HOST: name, ZONE: f"z{number % 3}", "rack": f"r{number % 2}"}
        roomy = make_node(name, cpu="8", pods=20, labels=labels)
        huge = make_node(
            name, cpu="1e30", memory="8Ei", pods="8E", resources={GPU: 2**60}, labels=labels, images=IMAGES
        )
        pool[name] = (roomy, huge, *(random_node(rng, name) for _ in range(variants)))
    return pool


def _storage() -> tuple[Object, ...]:
    """Claims of all kinds, what they are bound to, and what changes that."""
    bound, later = make_pvc("bound", volume="pv-bound"), make_pvc("later", storage_class="slow")
    return (
        bound,
        make_pvc("bound", storage_class="slow"),
        make_pvc("alone", volume="pv-alone", access_modes=("ReadWriteOncePod",)),
        later,
        make_pv("pv-bound", claim=bound, on_nodes_with={ZONE: ["z0", "z1"]}, driver="csi.example.com"),
        make_pv("pv-bound", claim=bound, labels={ZONE: "z2"}, driver="csi.example.com"),
        make_pv("pv-alone", driver="csi.example.com"),
        make_pv("pv-later", storage_class="slow", on_nodes_with={"disk": ["ssd"]}),
        make_storage_class("slow", provisioner="kubernetes.io/no-provisioner"),
        make_storage_class("slow", allowed=[{ZONE: ["z1"]}]),
        make_csi_node("n0", {"csi.example.com": 1}),
        make_csi_node("n1", {"csi.example.com": 0}),
        make_volume_attachment("a", driver="csi.example.com", node="n0", volume="pv-bound"),
    )


PLAIN: Final = _plain_shapes()
SHAPES: Final = _shapes(184)
RANKED: Final = tuple(
    Shape({**shape.fields, "cpu": "1", "priority": priority}) for shape in PLAIN for priority in (10, 0, 100)
)
"""Plain pods of three priorities, large enough to compete for room."""
BYSTANDERS: Final = tuple(
    Shape({"labels": {"app": "batch"}, "cpu": cpu, "priority": priority})
    for cpu in ("500m", "1", "2")
    for priority in (0, 5)
)
"""Pods that no term selects, and that have to make room for others."""
PARTICULAR: Final = tuple(
    Shape({**shape.fields, "cpu": cpu, "priority": 10})
    for shape in PLAIN
    if shape.fields.keys() & {"spread", "affinity"}
    for cpu in ("1", "2")
)
"""Pods of higher priority, and pods with affinity or anti-affinity."""
NODE_POOL: Final = _nodes(12)
OBJECTS: Final[tuple[Object, ...]] = (
    make_service("web", {"app": "web"}),
    make_service("tiers", {"tier": "front"}),
    make_service("none"),
    make_service("web", {"app": "web"}, namespace="other"),
    make_replica_set("rs", {"app": "db"}),
    make_pdb("web", {"app": "web"}, allowed=0),
    make_pdb("web", {"app": "web"}, allowed=2),
    make_pdb("all", make_selector(), allowed=0),
    make_pdb("tiers", make_selector({}, make_expression("tier", "Exists")), allowed=1),
    make_namespace("default", labels={"team": "a"}),
    make_namespace("default"),
    make_namespace("other", labels={"team": "b"}),
    make_namespace("other", labels={"team": "a"}),
    *_storage(),
)
