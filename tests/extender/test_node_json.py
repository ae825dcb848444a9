"""Pods and nodes as extenders see them, and how often that is made."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.extender import ObjectJSON, SnapshotView
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node, make_pod

from .webhook import make_view


class Kept:
    """What an API server sent, for the objects that it is kept of; records each call."""

    def __init__(self, **texts: bytes) -> None:
        self.texts = texts
        self.calls: list[str] = []

    def json_of(self, item: Pod | Node) -> bytes | None:
        self.calls.append(item.name)
        return self.texts.get(item.name)


def with_version(node: Node, version: str) -> Node:
    metadata = msgspec.structs.replace(node.metadata, resource_version=version)
    return msgspec.structs.replace(node, metadata=metadata)


@pytest.mark.parametrize(
    ("kept", "seen"),
    [
        pytest.param(
            {},
            {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}, "status": {}},
            id="the record is written, with spec and status even if empty",
        ),
        pytest.param(
            {"p": b'{"metadata":{"name":"p"},"spec":{"hostname":"h"}}'},
            {"metadata": {"name": "p"}, "spec": {"hostname": "h"}},
            id="the whole object where it was kept",
        ),
        pytest.param(
            {"p": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"kind":"own"}}'},
            {"metadata": {"name": "p"}, "spec": {"kind": "own"}},
            id="without apiVersion and kind",
        ),
    ],
)
def test_a_pod(kept: dict[str, bytes], seen: dict[str, Any]) -> None:
    pod = Pod(metadata=make_pod("p", uid="u").metadata)
    assert json.loads(bytes(ObjectJSON(make_view(), Kept(**kept)).pod(pod))) == seen


def test_a_node_has_what_scheduling_reads() -> None:
    (text,) = ObjectJSON(make_view([make_node("n", cpu="8", labels={"zone": "a"})])).nodes(["n"])
    node = json.loads(bytes(text))
    assert (node["metadata"]["labels"], node["status"]["allocatable"]["cpu"]) == ({"zone": "a"}, "8")


def test_the_json_of_a_node_is_made_once_for_each_version() -> None:
    """Not again for the same object or one of the same version, but again for one that changed."""
    cluster, kept = Cluster(), Kept()
    objects = ObjectJSON(SnapshotView(cluster), kept)
    counts = []
    for version, cpu in (("1", "4"), ("1", "4"), ("2", "8")):
        cluster.set_node(with_version(make_node("n", cpu=cpu), version))
        objects.nodes(["n", "n"])
        objects.nodes(["n"])
        counts.append(len(kept.calls))
    assert counts == [1, 1, 2]


def test_a_changed_node_is_sent_as_it_is_now() -> None:
    cluster = Cluster()
    objects = ObjectJSON(SnapshotView(cluster))
    cpus = []
    for cpu in ("4", "8"):
        cluster.set_node(make_node("n", cpu=cpu))
        cpus.append(json.loads(bytes(objects.nodes(["n"])[0]))["status"]["allocatable"]["cpu"])
    assert cpus == ["4", "8"]


def test_deleted_nodes_are_dropped() -> None:
    """Clusters that replace their nodes all day do not fill the memory."""
    cluster, kept = Cluster(), Kept()
    objects = ObjectJSON(SnapshotView(cluster), kept)
    for i in range(1000):
        cluster.set_node(make_node(f"n{i}"))
        objects.nodes([f"n{i}"])
        cluster.remove_node(f"n{i}")
    kept.calls.clear()
    for i in range(1000):
        cluster.set_node(make_node(f"n{i}"))
    objects.nodes([f"n{i}" for i in range(1000)])
    assert len(kept.calls) > 900


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(KeyError, match="gone"):
        ObjectJSON(make_view(["n"])).nodes(["n", "gone"])
