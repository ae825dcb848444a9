"""Frameworks of a few plugins on a few nodes, for tests of the framework itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.api.node import Node
from bayplan.framework.points import Point
from bayplan.plugin import Cluster, Plugin, Pod, Status
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import Profile, points_of
from bayplan.runtime.search import Found, NotFound
from bayplan.testing.builders import make_node


def make_cluster(nodes: int | Iterable[Node] = 3) -> Cluster:
    """A cluster of these nodes, or of so many, named n0, n1, …"""
    cluster = Cluster()
    if isinstance(nodes, int):
        nodes = [make_node(f"n{index}") for index in range(nodes)]
    for node in nodes:
        cluster.set_node(node)
    return cluster


def make_profile(
    *plugins: Plugin, weights: Mapping[str, int] | None = None, percentage: int | None = None
) -> Profile:
    """A profile of these plugins, each at all points that it implements."""
    by_point: dict[Point, list[Plugin]] = {}
    for plugin in plugins:
        for point in points_of(type(plugin)):
            by_point.setdefault(point, []).append(plugin)
    return Profile("test", by_point, weights or {}, percentage)


def make_framework(
    *plugins: Plugin,
    nodes: int | Iterable[Node] = 3,
    cluster: Cluster | None = None,
    weights: Mapping[str, int] | None = None,
    percentage: int | None = None,
    **options: Any,
) -> Framework:
    profile = make_profile(*plugins, weights=weights, percentage=percentage)
    return Framework(profile, make_cluster(nodes) if cluster is None else cluster, **options)


def found(framework: Framework, pod: Pod) -> Found:
    result = framework.find(pod)
    assert isinstance(result, Found), result
    return result


def not_found(framework: Framework, pod: Pod) -> NotFound:
    result = framework.find(pod)
    assert isinstance(result, NotFound), result
    return result


def statuses(framework: Framework, pod: Pod) -> dict[str, Status]:
    """The reason of each node, where none fits."""
    diagnosis = not_found(framework, pod).diagnosis
    names = framework.cluster.nodes.name
    return {names[row]: diagnosis.status(int(row)) for row in framework.cluster.order}
