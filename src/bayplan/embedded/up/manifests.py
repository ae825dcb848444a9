"""Puts objects from files into a cluster: manifests as `kubectl apply` would, and snapshots as they are.

The objects of a snapshot are not created again: uids, times and nodes stay, and nothing is validated or
admitted a second time. A snapshot contains only what scheduling reads, so `restore` adds what the controllers
of the embedded cluster need:

- `replicas` of ReplicaSets and similar is the number of their pods; their template is the spec of one of
  them.
- A PodDisruptionBudget requires as many pods as leave it the disruptions that it allowed.
- References to owners that are not in the snapshot (Deployments, Jobs) are removed: otherwise their objects
  would be collected as garbage.
- Pods with a node start again there; their containers run after a moment.
- Namespaces, uids and generations that a snapshot of manifests does not have are created.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.answers.sources.files import read_cluster
from bayplan.answers.sources.snapshot import is_snapshot_file
from bayplan.api.documents import Document, parse_documents, read_documents, read_stream
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content, Object
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.api.selectors import compile_selector
from bayplan.api.workloads import (
    DaemonSet,
    Deployment,
    Job,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from bayplan.embedded.server.catalog import UnknownKindError
from bayplan.embedded.server.kinds import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.schema.types import TypeMismatchError, clean, type_of
from bayplan.embedded.server.statuses import AbsentError
from bayplan.errors import APIError, DecodeError

STDIN: Final = "-"
_STDIN_NAME: Final = "standard input"

_NO_OBJECT: Final = "this is no API object: it has no {field}"


def read_manifests(files: Iterable[str]) -> list[list[Document]]:
    """The objects of each file or directory, with the items of Lists.

    Raises:
        DecodeError: something is not an object, with file and line.
    """
    return [list(_objects(file)) for file in files]


def read_manifests_or_snapshots(files: Iterable[str]) -> list[list[Document] | Snapshot]:
    """The same, but files that are snapshots as `Snapshot`.

    Raises:
        InputError: something is not an object, with file and line.
    """
    return [_snapshot(file) or list(_objects(file)) for file in files]


def _snapshot(file: str) -> Snapshot | None:
    if file == STDIN or not Path(file).is_file() or not is_snapshot_file(Path(file)):
        return None
    loaded = read_cluster([file])
    return Snapshot(loaded.objects, loaded.release)


def _objects(file: str) -> Iterator[Document]:
    if file == STDIN:
        documents = parse_documents(read_stream(sys.stdin.buffer, _STDIN_NAME), _STDIN_NAME)
    else:
        documents = read_documents(Path(file))
    for document in documents:
        yield from _flattened(document)


def _flattened(document: Document) -> Iterator[Document]:
    content = document.content
    if not isinstance(content, dict):
        raise DecodeError(_NO_OBJECT.format(field="fields"), source=document.source, line=document.line)
    for field in ("apiVersion", "kind"):
        if not isinstance(content.get(field), str):
            raise DecodeError(_NO_OBJECT.format(field=field), source=document.source, line=document.line)
    if content["kind"] == "List" and content["apiVersion"] == "v1":
        for item in content.get("items") or ():
            yield from _flattened(Document(item, document.source, document.line))
    else:
        yield document


def is_definition(document: Document) -> bool:
    """Whether it is a CustomResourceDefinition."""
    return bool(document.content["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind)


def is_node(document: Document) -> bool:
    return bool(document.content["kind"] == NODES.kind and document.content["apiVersion"] == "v1")


def apply(api: ObjectAPI, documents: Iterable[Document]) -> int:
    """Creates or updates the objects. Returns their number.

    Raises:
        DecodeError: the API rejects one, with file and line.
    """
    count = 0
    for document in documents:
        try:
            _apply(api, document)
        except UnknownKindError as error:
            raise DecodeError(str(error), source=document.source, line=document.line) from None
        except APIError as error:
            raise DecodeError(str(error), source=document.source, line=_line(document, error)) from None
        count += 1
    return count


def _apply(api: ObjectAPI, document: Document) -> None:
    resource = api.catalog.of_kind(document.content["apiVersion"], document.content["kind"])
    content = _checked(resource, document)
    meta = content.get("metadata") or {}
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    if resource.namespaced:
        namespace = namespace or "default"
    try:
        if not name:
            raise AbsentError("it has no name yet")
        api.patch(resource, name, namespace, content)
    except AbsentError:
        api.create(resource, content, namespace)


def _checked(resource: Resource, document: Document) -> dict[str, Any]:
    """The object, after the server's checks of a request body: unknown fields and types.

    `kubectl apply` requests strict validation of unknown fields, so this does, too.
    """
    try:
        cleaned, unknown = clean(document.content, type_of(resource), lenient=resource.schema is not None)
    except TypeMismatchError as error:
        line = document.line_of(error.path)
        raise DecodeError(str(error), source=document.source, line=line) from None
    if unknown:
        line = document.line_of(unknown[0])
        raise DecodeError(f'unknown field "{unknown[0]}"', source=document.source, line=line)
    content: dict[str, Any] = cleaned
    return content


def _line(document: Document, error: APIError) -> int | None:
    """The line of the first field in an error of the API."""
    details = getattr(error, "details", None) or {}
    for cause in details.get("causes") or ():
        if cause.get("field"):
            return document.line_of(str(cause["field"]))
    return document.line


_SETS: Final = (ReplicaSet, ReplicationController, StatefulSet)


class Snapshot:
    """The objects of a snapshot file, and the release of the cluster that they are from."""

    def __init__(self, objects: Sequence[Object], release: Release = DEFAULT_RELEASE) -> None:
        self.objects = objects
        self.release = release


def restore(api: ObjectAPI, snapshot: Snapshot) -> int:
    """Stores the objects, nodes first and pods last; returns their number. Existing objects stay."""
    count = 0
    # A snapshot has only parts of their templates, and pods from these would replace the pods that are there.
    objects = [item for item in snapshot.objects if not isinstance(item, Deployment | DaemonSet | Job)]
    for item, content in _contents(objects):
        try:
            resource = api.catalog.of_kind(content["apiVersion"], content["kind"])
        except UnknownKindError:
            continue  # a kind whose CustomResourceDefinition is not there
        if resource.namespaced and api.store.find(NAMESPACES, item.namespace) is None:
            api.create(NAMESPACES, {"metadata": {"name": item.namespace}})
        count += api.restore(resource, content, item.namespace)
    return count


def _contents(objects: Sequence[Object]) -> Iterable[tuple[Object, Content]]:
    uids = {item.uid for item in objects}
    owned = _owned_pods(objects)
    pods = [item for item in objects if isinstance(item, Pod)]
    for item in sorted(objects, key=_restored_at):
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


def _restored_at(item: Object) -> int:
    """Namespaces come first, because others create them, and pods last."""
    return 2 if isinstance(item, Pod) else int(not isinstance(item, Namespace))


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
    """Sets minAvailable so that the budget allows as many evictions as its status says."""
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
