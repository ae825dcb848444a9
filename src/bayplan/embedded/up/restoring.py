"""Restores the objects of a snapshot in the embedded cluster, as an API server stored them.

They are not created again: uids, times and nodes stay, and nothing is validated or admitted a second time. A
snapshot contains only what scheduling reads, so this module adds what the controllers of the embedded cluster
need:

- `replicas` of ReplicaSets and similar is the number of their pods; their template is the spec of one of
them.
- A PodDisruptionBudget requires as many pods as leave it the disruptions that it allowed.
- References to owners that are not in the snapshot (Deployments, Jobs) are removed: otherwise their objects
  would be collected as garbage.
- Pods with a node start again there; their containers run after a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.api.selectors import compile_selector
from bayplan.api.workloads import PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from bayplan.embedded.server.kinds import UnknownKindError
from bayplan.embedded.server.objects import ObjectAPI

_SETS: Final = (ReplicaSet, ReplicationController, StatefulSet)

Content = dict[str, Any]


class Snapshot:
    """The objects of a snapshot file, and the release of the cluster that they are from."""

    def __init__(self, objects: Sequence[Object], release: Release = DEFAULT_RELEASE) -> None:
        self.objects = objects
        self.release = release


def restore(api: ObjectAPI, snapshot: Snapshot) -> int:
    """Stores the objects, nodes first and pods last; returns their number. Existing objects stay."""
    count = 0
    for item, content in _contents(snapshot.objects):
        try:
            resource = api.catalog.of_kind(content["apiVersion"], content["kind"])
        except UnknownKindError:
            continue  # a kind whose CustomResourceDefinition is not there
        count += api.restore(resource, content, item.namespace)
    return count


def _contents(objects: Sequence[Object]) -> Iterable[tuple[Object, Content]]:
    uids = {item.uid for item in objects}
    owned = _owned_pods(objects)
    pods = [item for item in objects if isinstance(item, Pod)]
    for item in sorted(objects, key=lambda item: isinstance(item, Pod)):
        kind = KINDS.of(type(item))
        content: Content = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            **msgspec.json.decode(msgspec.json.encode(item)),
        }
        owners = [one for one in content["metadata"].get("ownerReferences", ()) if one["uid"] in uids]
        content["metadata"].pop("ownerReferences", None)
        if owners:
            content["metadata"]["ownerReferences"] = owners
        if isinstance(item, _SETS):
            _complete_set(content, owned.get(item.uid, ()))
        elif isinstance(item, PodDisruptionBudget):
            _complete_budget(content, item, pods)
        elif isinstance(item, Pod):
            _start_again(content)
        yield item, content


def _owned_pods(objects: Sequence[Object]) -> dict[str, list[Pod]]:
    owned: dict[str, list[Pod]] = {}
    for item in objects:
        owner = item.metadata.controller() if isinstance(item, Pod) else None
        if owner is not None and isinstance(item, Pod):
            owned.setdefault(owner.uid, []).append(item)
    return owned


def _complete_set(content: Content, pods: Sequence[Pod]) -> None:
    spec = content.setdefault("spec", {})
    spec["replicas"] = len(pods)
    template: Content = {"metadata": {}, "spec": {"containers": []}}
    if pods:
        pod = msgspec.json.decode(msgspec.json.encode(pods[0]))
        template["metadata"]["labels"] = pod["metadata"].get("labels", {})
        template["spec"] = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    spec["template"] = template
    counts = Counter(pod.status.phase for pod in pods)
    content["status"] = {"replicas": len(pods), "readyReplicas": counts["Running"]}


def _complete_budget(content: Content, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> None:
    selector = compile_selector(budget.spec.selector)
    healthy = sum(
        pod.namespace == budget.namespace and bool(pod.spec.node_name) and selector.matches(pod.labels)
        for pod in pods
    )
    content["spec"]["minAvailable"] = max(0, healthy - budget.status.disruptions_allowed)


def _start_again(content: Content) -> None:
    status = content.get("status", {})
    if content["spec"].get("nodeName"):
        kept = {key: value for key, value in status.items() if key in ("startTime", "resourceClaimStatuses")}
        content["status"] = {"phase": "Pending", **kept}
