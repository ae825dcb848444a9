"""Pods and nodes as extenders see them, and how often that is made."""

from __future__ import annotations

import json

import msgspec
import pytest

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.extender import wire
from bayplan.extender.wire import ClusterView, NodeJSON, encoded_object
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node, make_pod

from .webhook import make_cluster


@pytest.fixture(name="encoded")
def _encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that are encoded."""
    names: list[str] = []

    def encode(item: Node) -> msgspec.Raw:
        names.append(item.name)
        return encoded_object(item)

    monkeypatch.setattr(wire, "encoded_object", encode)
    return names


def with_version(node: Node, version: str) -> Node:
    metadata = msgspec.structs.replace(node.metadata, resource_version=version)
    return msgspec.structs.replace(node, metadata=metadata)


def test_a_pod_is_written_with_spec_and_status_even_if_empty() -> None:
    pod = Pod(metadata=make_pod("p", uid="u").metadata)
    seen = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}, "status": {}}
    assert json.loads(bytes(encoded_object(pod))) == seen


def test_a_node_has_what_scheduling_reads() -> None:
    (text,) = NodeJSON(ClusterView(make_cluster([make_node("n", cpu="8", labels={"zone": "a"})]))).nodes(
        ["n"]
    )
    node = json.loads(bytes(text))
    assert (node["metadata"]["labels"], node["status"]["allocatable"]["cpu"]) == ({"zone": "a"}, "8")


def test_the_json_of_a_node_is_made_once_for_each_version(encoded: list[str]) -> None:
    """Not again for the same object or one of the same version, but again for one that changed."""
    cluster = Cluster()
    objects = NodeJSON(ClusterView(cluster))
    counts = []
    for version, cpu in (("1", "4"), ("1", "4"), ("2", "8")):
        cluster.set_node(with_version(make_node("n", cpu=cpu), version))
        objects.nodes(["n", "n"])
        objects.nodes(["n"])
        counts.append(len(encoded))
    assert counts == [1, 1, 2]


def test_a_changed_node_is_sent_as_it_is_now() -> None:
    cluster = Cluster()
    objects = NodeJSON(ClusterView(cluster))
    cpus = []
    for cpu in ("4", "8"):
        cluster.set_node(make_node("n", cpu=cpu))
        cpus.append(json.loads(bytes(objects.nodes(["n"])[0]))["status"]["allocatable"]["cpu"])
    assert cpus == ["4", "8"]


def test_deleted_nodes_are_dropped(encoded: list[str]) -> None:
    """Clusters that replace their nodes all day do not fill the memory."""
    cluster = Cluster()
    objects = NodeJSON(ClusterView(cluster))
    for i in range(1000):
        cluster.set_node(make_node(f"n{i}"))
        objects.nodes([f"n{i}"])
        cluster.remove_node(f"n{i}")
    encoded.clear()
    for i in range(1000):
        cluster.set_node(make_node(f"n{i}"))
    objects.nodes([f"n{i}" for i in range(1000)])
    assert len(encoded) > 900


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(KeyError, match="gone"):
        NodeJSON(ClusterView(make_cluster(["n"]))).nodes(["n", "gone"])
