"""Objects by kind, the selectors of owners, and the undo log: reverting gives the same cluster, in order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bayplan.api.meta import LabelSelector, Object
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.workloads import (
    EqualitySelectorSpec,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    StatefulSetSpec,
)
from bayplan.clock import Changes
from bayplan.plugin import Cluster, PodQuery, PodSelector, compile_selector
from bayplan.plugin.objects import owner_selector
from bayplan.state.objects import Objects, UndoLog
from bayplan.testing.builders import (
    make_expression,
    make_namespace,
    make_node,
    make_owner,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_replica_set,
    make_selector,
    make_service,
)


def test_by_kind_name_and_namespace() -> None:
    objects = Objects()
    here, there = make_service("web", {"a": "b"}), make_service("web", namespace="other")
    for item in (here, there, make_namespace("web")):
        objects.put(item)
    services = objects.of(Service)
    assert services.get("web", "default") is here
    assert services.get("web", "other") is there
    assert services.get("web", "nowhere") is None
    assert objects.of(Namespace).get("web") is not None
    assert list(services) == [here, there]
    assert len(services) == 2


def test_an_updated_object_replaces_the_old_one() -> None:
    objects = Objects()
    first, second = make_service("a"), make_service("b")
    changed = make_service("a", {"x": "y"})
    for item in (first, second, changed):
        objects.put(item)
    assert list(objects.of(Service)) == [changed, second]


def test_every_change_is_recorded_in_the_topic_of_its_kind() -> None:
    changes = Changes()
    objects = Objects(changes)
    first, second = make_service("a"), make_service("a", {"x": "y"})
    objects.put(first)
    objects.put(second)
    objects.remove(second)
    assert changes.kind(Service).since(0) == [(None, first), (first, second), (second, None)]
    assert changes.kind(Namespace).since(0) == []
    assert changes.objects.changed_at > changes.kind(Service).changed_at


def test_removing_what_is_not_there_is_no_change() -> None:
    changes = Changes()
    objects = Objects(changes)
    objects.put(make_service("a"))
    before = changes.clock.now
    objects.remove(make_service("b"))
    assert changes.clock.now == before
    objects.remove(make_service("a"))
    assert changes.clock.now > before
    assert len(objects.of(Service)) == 0


def test_reading_an_unknown_kind_changes_nothing() -> None:
    changes = Changes()
    assert (len(Objects(changes).of(Service)), changes.clock.now) == (0, 0)


ZONE = "topology.kubernetes.io/zone"
ON_WEB = PodQuery((PodSelector(None, compile_selector(make_selector({"app": "web"}))),))


def state_of(cluster: Cluster) -> dict[str, Any]:
    """Everything that decisions can depend on, by name: rows and slots may differ."""
    nodes = cluster.nodes
    names = {row: nodes.name[row] for row in nodes.row_of.values()}
    return {
        "order": [names[int(row)] for row in cluster.order],
        "nodes": {names[row]: nodes.node[row] for row in sorted(names)},
        "pods": {name: list(cluster.pods_on(row)) for row, name in names.items()},
        "positions": {
            name: [cluster.pods.position.cell[slot] for slot in cluster.row_pods[row]]
            for row, name in names.items()
        },
        "nominated": {
            names[row]: [cluster.pods.pod[slot] for slot in slots] for row, slots in cluster.nominated.items()
        },
        "requested": {
            (name, resource): nodes.resource(resource).requested.cell[row]
            for row, name in names.items()
            for resource in nodes.resource_names()
        },
        "allocatable": {name: nodes.resource("cpu").allocatable.cell[row] for row, name in names.items()},
        "count": {name: nodes.pod_count.cell[row] for row, name in names.items()},
        "web": {name: cluster.count(ON_WEB).column.cell[row] for row, name in names.items()},
        "ports": {names[row]: set(ports) for row, ports in cluster.ports.on_row.items()},
        "port rows": {
            port: {names[row]: uses for row, uses in rows.items()}
            for port, rows in cluster.ports.rows.items()
            if rows
        },
        "claims": dict(cluster.claim_uses),
        "namespaces": [item.name for item in cluster.objects.of(type(make_namespace("x")))],
    }


def random_pod(rng: random.Random, number: int) -> Pod:
    app = rng.choice(("web", "db"))
    ports = [80] if rng.random() < 0.3 else []
    affinity = (
        make_pod_affinity(anti_required=[make_pod_term(ZONE, {"app": app})]) if rng.random() < 0.3 else None
    )
    return make_pod(
        f"p{number}",
        cpu=f"{rng.randrange(1, 9)}00m",
        labels={"app": app},
        host_ports=ports,
        affinity=affinity,
    )


class Actor:
    """Changes a cluster in random ways."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.made = 0

    def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        nodes = [name for name, row in cluster.nodes.row_of.items() if cluster.nodes.node[row] is not None]
        pods = [pod for row in cluster.nodes.row_of.values() for pod in cluster.pods_on(row)]
        nominated = [
            pod
            for slots in cluster.nominated.values()
            for s in slots
            if (pod := cluster.pods.pod[s]) is not None
        ]
        self.made += 1
        roll = rng.randrange(11)
        if roll <= 2:
            name = rng.choice(nodes) if nodes and rng.random() < 0.9 else f"unknown{rng.randrange(3)}"
            cluster.add_pod(random_pod(rng, self.made), name)
        elif roll <= 4 and pods:
            cluster.remove_pod(rng.choice(pods).uid)
        elif roll == 5 and pods:
            old = rng.choice(pods)
            labels = old.labels if rng.random() < 0.5 else {"app": rng.choice(("web", "db"))}
            cluster.update_pod(make_pod(old.name, cpu="100m", labels=labels))
        elif roll == 6:
            cluster.set_node(make_node(f"n{rng.randrange(12)}", labels={ZONE: rng.choice("abc")}))
        elif roll == 7 and nodes:
            cluster.remove_node(rng.choice(nodes))
        elif roll == 8 and nodes:
            cluster.nominate(random_pod(rng, self.made), rng.choice(nodes))
        elif roll == 9 and nominated:
            cluster.remove_nomination(rng.choice(nominated).uid)
        elif roll == 10:
            space = make_namespace(f"ns{rng.randrange(6)}", labels={"of": str(self.made)})
            (cluster.objects.put if rng.random() < 0.6 else cluster.objects.remove)(space)


@pytest.mark.parametrize("seed", range(40))
def test_reverting_restores_everything_that_decisions_depend_on(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster()
    actor = Actor(cluster, rng)
    for number in range(8):
        cluster.set_node(make_node(f"n{number}", labels={ZONE: "abc"[number % 3]}))
    for _ in range(60):
        actor.step()
    before = state_of(cluster)
    cluster.undo.mark()
    for _ in range(rng.randrange(30)):
        actor.step()
        if rng.random() < 0.3:
            _ = cluster.order
    middle = state_of(cluster)
    cluster.undo.mark()
    for _ in range(rng.randrange(30)):
        actor.step()
    cluster.undo.revert()
    assert state_of(cluster) == middle
    cluster.undo.revert()
    assert state_of(cluster) == before
    assert not len(cluster.undo)


def test_changes_are_recorded_only_after_a_mark_and_kept_on_request() -> None:
    cluster = Cluster()
    cluster.set_node(make_node("a"))
    assert not len(cluster.undo)
    cluster.undo.mark()
    cluster.undo.mark()
    cluster.set_node(make_node("b"))
    cluster.undo.keep()
    assert len(cluster.undo), "the outer mark can still revert it"
    cluster.undo.revert()
    assert list(cluster.nodes.row_of) == ["a"]
    cluster.undo.mark()
    cluster.set_node(make_node("c"))
    cluster.undo.keep()
    assert not len(cluster.undo)
    assert "c" in cluster.nodes.row_of


def test_a_step_that_fails_leaves_the_log_usable() -> None:
    undo = UndoLog()
    done: list[str] = []
    undo.mark()
    undo.record(lambda: done.append("first"))
    undo.mark()

    def fail() -> None:
        raise ValueError("no")

    undo.record(fail)
    with pytest.raises(ValueError, match="no"):
        undo.revert()
    assert undo.active
    undo.revert()
    assert done == ["first"]


WEB, TIER = {"app": "web"}, {"tier": "front"}
BAD = make_selector({}, make_expression("app", "In"))


def controller(selector: dict[str, str] | None) -> ReplicationController:
    return ReplicationController(
        metadata=make_service("c").metadata, spec=EqualitySelectorSpec(selector=selector)
    )


def stateful_set(selector: LabelSelector) -> StatefulSet:
    return StatefulSet(metadata=make_service("c").metadata, spec=StatefulSetSpec(selector=selector))


@pytest.mark.parametrize(
    ("objects", "owner", "expected"),
    [
        pytest.param([], None, "None", id="none"),
        pytest.param([make_service("s", WEB)], None, "app=web", id="a service"),
        pytest.param(
            [make_service("s", WEB), make_service("t", TIER)], None, "app=web,tier=front", id="two services"
        ),
        pytest.param([make_service("s", {"app": "db"})], None, "None", id="one that selects others"),
        pytest.param([make_service("s", WEB, namespace="other")], None, "None", id="one elsewhere"),
        pytest.param([make_service("s")], None, "None", id="one without a selector"),
        pytest.param([make_service("s", {})], None, "None", id="one that selects all"),
        pytest.param(
            [make_replica_set("c", TIER)], ("apps/v1", "ReplicaSet"), "tier=front", id="a ReplicaSet"
        ),
        pytest.param(
            [make_replica_set("c", TIER), make_service("s", WEB)],
            ("apps/v1", "ReplicaSet"),
            "app=web,tier=front",
            id="and a service",
        ),
        pytest.param(
            [stateful_set(make_selector(TIER))], ("apps/v1", "StatefulSet"), "tier=front", id="a StatefulSet"
        ),
        pytest.param(
            [controller(TIER)], ("v1", "ReplicationController"), "tier=front", id="a ReplicationController"
        ),
        pytest.param(
            [controller(None)],
            ("v1", "ReplicationController"),
            "None",
            id="one without a selector, too",
        ),
        pytest.param([], ("apps/v1", "ReplicaSet"), "None", id="a deleted owner"),
        pytest.param(
            [make_replica_set("c", TIER)],
            ("extensions/v1", "ReplicaSet"),
            "None",
            id="an owner of another group",
        ),
        pytest.param(
            [make_replica_set("c", TIER)], ("batch/v1", "Job"), "None", id="an owner of another kind"
        ),
        pytest.param(
            [make_replica_set("c", BAD)],
            ("apps/v1", "ReplicaSet"),
            "None",
            id="an owner with a malformed selector",
        ),
    ],
)
def test_owner_selector(objects: list[Object], owner: tuple[str, str] | None, expected: str) -> None:
    cluster = Cluster()
    for item in objects:
        cluster.objects.put(item)
    reference = None if owner is None else make_owner(owner[1], "c", api_version=owner[0])
    pod = make_pod(labels={**WEB, **TIER}, owner=reference)
    assert str(owner_selector(pod, cluster.objects)) == expected


def test_a_controller_that_does_not_match_its_pod_counts_all_the_same() -> None:
    """Unlike that of a service, it is not used."""
    cluster = Cluster()
    cluster.objects.put(make_replica_set("c", {"app": "db"}))
    pod = make_pod(labels=WEB, owner=make_owner("ReplicaSet", "c"))
    assert str(owner_selector(pod, cluster.objects)) == "app=db"
    assert isinstance(next(iter(cluster.objects.of(ReplicaSet))), ReplicaSet)
