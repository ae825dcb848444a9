"""Nodes and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayplan.api.meta import Quantity, ResourceList
from bayplan.api.node import ContainerImage, Namespace, Node, NodeSpec, NodeStatus, Taint
from bayplan.testing.builders.metadata import object_meta


def make_node(
    name: str,
    *,
    cpu: Quantity = "4",
    memory: Quantity = "32Gi",
    pods: Quantity = 110,
    resources: Mapping[str, Quantity] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Taint | str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | Iterable[ContainerImage] = (),
    declared_features: Iterable[str] = (),
    uid: str | None = None,
    **allocatable: Quantity,
) -> Node:
    """A node with room for pods, by default 4 cpus and 32 GiB.

    Further resources are given by name, `resources={"example.com/gpu": 2}`, or as further keywords with `_`
    for `-`, `ephemeral_storage="10Gi"`. Taints may be given as `key=value:Effect`, images as {name: bytes}.
    """
    room: ResourceList = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    room.update((resource.replace("_", "-"), amount) for resource, amount in allocatable.items())
    if isinstance(images, Mapping):
        images = [ContainerImage(names=(image,), size_bytes=size) for image, size in images.items()]
    return Node(
        metadata=object_meta("Node", name, labels=labels, annotations=annotations, uid=uid),
        spec=NodeSpec(
            unschedulable=unschedulable,
            taints=tuple(make_taint(taint) if isinstance(taint, str) else taint for taint in taints),
        ),
        status=NodeStatus(
            allocatable=room,
            capacity=dict(room),
            images=tuple(images),
            declared_features=tuple(declared_features),
        ),
    )


def make_namespace(name: str, *, labels: Mapping[str, str] | None = None) -> Namespace:
    return Namespace(metadata=object_meta("Namespace", name, labels=labels))


def make_taint(text: str) -> Taint:
    """A taint from kubectl's notation: `key=value:Effect` or `key:Effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)
