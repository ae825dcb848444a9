"""Reads what a user would apply: pods, workloads (expanded into pods), and objects that they need.

| kind | becomes |
|---|---|
| Pod | itself, or copies with numbers; claims of its generic ephemeral volumes |
| Deployment, ReplicaSet, ReplicationController | its pods, and a ReplicaSet, which default spreading reads |
| StatefulSet | its pods, and claims from volumeClaimTemplates |
| Job | its pods that run at once: `parallelism`, at most `completions` |
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bayplan.answers.sources.files import STDIN
from bayplan.answers.whatif.controllers import UNKNOWN_UID
from bayplan.api.decode import decode_object, expand_lists
from bayplan.api.documents import Document, parse_documents, read_documents, read_stream
from bayplan.api.meta import Content, Object
from bayplan.api.pod import Pod
from bayplan.controllers.claims import ephemeral_claim
from bayplan.controllers.pods import TEMPLATE_HASH, hash_of, pod_from
from bayplan.controllers.workloads import job_pods, stateful_claims, stateful_pod
from bayplan.errors import DecodeError, InputError

APPS: Final = "apps/v1"
BATCH: Final = "batch/v1"
WORKLOADS: Final = {
    "Deployment": APPS,
    "ReplicaSet": APPS,
    "StatefulSet": APPS,
    "ReplicationController": "v1",
    "Job": BATCH,
}

MAX_PODS: Final = 200_000
"""More pods of one workload are an error: they would fill the memory before they are scheduled."""

_NOTHING: Final = "there is no pod and no workload in it"
_DAEMON_SETS: Final = "a DaemonSet has a pod on every node; add one of its pods to ask about it"
_NO_TEMPLATE: Final = "it has no pod template"
_NOT_A_MAPPING: Final = "expected a mapping"
_TOO_MANY: Final = "{count:,} pods are too many; the limit is {limit:,}"
_NOT_A_NUMBER: Final = "{field} is not a number of pods: {value!r}"


def read_manifests(file: str, replicas: int | None = None) -> list[Object]:
    """The objects of a file, with workloads expanded into pods.

    Args:
        replicas: how many pods of each pod or workload; None: one pod, and as many as workloads say.

    Raises:
        InputError: the file is missing or malformed, or has neither a pod nor a workload.
    """
    documents = _standard_input() if file == STDIN else read_documents(Path(file))
    found: list[Object] = []
    for document in documents:
        for raw in expand_lists(document.content, document.source, document.line):
            found += _objects(raw, document, replicas)
    if not any(isinstance(item, Pod) for item in found) and replicas != 0:
        raise InputError(_NOTHING, source=file)
    return found


def objects_of(raw: Mapping[str, Any], replicas: int | None = None) -> list[Object]:
    """The same for one object as JSON or YAML decodes it."""
    return list(_objects(raw, Document(raw, "", None), replicas))


def _standard_input() -> Iterator[Document]:
    data = read_stream(sys.stdin.buffer, STDIN)
    return parse_documents(data, STDIN, is_json=data.lstrip().startswith(b"{"))


def _objects(raw: Mapping[str, Any], document: Document, replicas: int | None) -> Iterator[Object]:
    kind, version = raw.get("kind"), raw.get("apiVersion")
    try:
        if isinstance(kind, str) and WORKLOADS.get(kind) == version:
            yield from _expanded(raw, kind, replicas)
            return
        if kind == "DaemonSet" and version == APPS:
            raise DecodeError(_DAEMON_SETS, object_key=_key(raw))
        item = decode_object(raw)
    except InputError as error:
        raise error.at(source=document.source, line=document.line) from error.__cause__
    if isinstance(item, Pod) and replicas is not None and replicas != 1:
        for number in range(_limited(replicas)):
            named = _named(raw, f"{item.name or item.metadata.generate_name}-{number}")
            yield from _ephemeral_claims(named)
            yield _decoded(named)
    elif item is not None:
        if isinstance(item, Pod):
            yield from _ephemeral_claims(raw)
        yield item


def _expanded(raw: Mapping[str, Any], kind: str, replicas: int | None) -> Iterator[Object]:
    meta, spec = _mapping(raw, raw, "metadata"), _mapping(raw, raw, "spec")
    name = meta.get("name") or meta.get("generateName")
    if not spec.get("template") or not name:
        raise DecodeError(_NO_TEMPLATE, object_key=_key(raw))
    namespace = meta.get("namespace") or "default"
    template = _checked_template(raw, spec, f"{name}-0", namespace)
    count = _limited(_count(raw, kind, spec) if replicas is None else replicas)
    owner_kind, owner_name, selector = kind, name, spec.get("selector")
    added: dict[str, str] = {}
    if kind == "Deployment":
        # So that matchLabelKeys and the selector of the ReplicaSet tell these pods from earlier ones.
        added = {TEMPLATE_HASH: hash_of(template)}
        owner_kind, owner_name = "ReplicaSet", f"{name}-{added[TEMPLATE_HASH]}"
        if isinstance(selector, Mapping):
            selector = {**selector, "matchLabels": {**_mapping(raw, selector, "matchLabels"), **added}}
    owner = {
        "apiVersion": WORKLOADS[owner_kind],
        "kind": owner_kind,
        "metadata": {
            "name": owner_name,
            "namespace": namespace,
            "uid": f"{owner_kind}-{namespace}-{owner_name}",
        },
        "spec": {"selector": selector} if selector else {},
    }
    if kind != "Job":
        yield _decoded(owner)
    if kind == "StatefulSet":
        owner["spec"] = {**spec, "volumeClaimTemplates": _claim_templates(raw, spec)}
        _mapping(raw, _mapping(raw, spec, "selector"), "matchLabels")
    for number in range(count):
        if kind == "StatefulSet":
            for claim in stateful_claims(owner, number):
                yield _decoded(_typed("PersistentVolumeClaim", claim, namespace))
            pod = stateful_pod(owner, template, hash_of(template), number)
        else:
            pod = pod_from(template, owner, name=f"{name}-{number}", labels=added)
        pod = _typed("Pod", pod, namespace)
        yield from _ephemeral_claims(pod)
        yield _decoded(pod)


def _checked_template(
    raw: Mapping[str, Any], spec: Mapping[str, Any], pod_name: str, namespace: str
) -> Content:
    """The pod template; its fields have the types of a pod's."""
    template = _mapping(raw, spec, "template")
    described, pod_spec = _mapping(raw, template, "metadata"), _mapping(raw, template, "spec")
    meta = {field: described.get(field) or {} for field in ("labels", "annotations")}
    pod = {"metadata": {**meta, "name": pod_name}, "spec": pod_spec}
    _decoded(_typed("Pod", pod, namespace))
    return {"metadata": meta, "spec": dict(pod_spec)}


def _claim_templates(raw: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Content]:
    templates = spec.get("volumeClaimTemplates") or []
    if not isinstance(templates, list) or not all(isinstance(one, Mapping) for one in templates):
        raise DecodeError("expected a list of claims", object_key=_key(raw), field="volumeClaimTemplates")
    found = []
    for template in templates:
        meta = _mapping(raw, template, "metadata")
        labels = _mapping(raw, meta, "labels")
        described = {**meta, "name": meta.get("name", ""), "labels": labels}
        found.append({"metadata": described, "spec": _mapping(raw, template, "spec")})
    return found


def _typed(kind: str, content: Content, namespace: str) -> Content:
    meta = {**content["metadata"], "namespace": namespace}
    return {**content, "apiVersion": "v1", "kind": kind, "metadata": meta}


def _ephemeral_claims(pod: Mapping[str, Any]) -> Iterator[Object]:
    """The claims that the controller of generic ephemeral volumes creates for a pod that can be decoded."""
    meta = _mapping(pod, pod, "metadata")
    name, namespace = meta.get("name"), meta.get("namespace") or "default"
    owner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": UNKNOWN_UID}}
    for volume in _mapping(pod, pod, "spec").get("volumes") or []:
        template = _mapping(pod, volume.get("ephemeral") or {}, "volumeClaimTemplate")
        _mapping(pod, template, "metadata")
        claim = ephemeral_claim(owner, {"name": "", **volume}) if template and name else None
        if claim is not None:
            yield _decoded(_typed("PersistentVolumeClaim", claim, namespace))


def _count(raw: Mapping[str, Any], kind: str, spec: Mapping[str, Any]) -> int:
    if kind != "Job":
        return _number(raw, spec, "replicas", 1)
    parallelism = _number(raw, spec, "parallelism", 1)
    completions = _number(raw, spec, "completions", parallelism)
    return job_pods({"parallelism": parallelism, "completions": completions})


def _number(raw: Mapping[str, Any], spec: Mapping[str, Any], field: str, default: int) -> int:
    value = spec.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        text = _NOT_A_NUMBER.format(field=field, value=value)
        raise DecodeError(text, object_key=_key(raw), field=f"spec.{field}")
    return value


def _mapping(raw: Mapping[str, Any], within: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """A field that has fields; empty if it is absent."""
    found = within.get(field)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise DecodeError(_NOT_A_MAPPING, object_key=_key(raw), field=field)
    return found


def _limited(count: int) -> int:
    if count > MAX_PODS:
        raise InputError(_TOO_MANY.format(count=count, limit=MAX_PODS))
    return count


def _named(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**raw, "metadata": {**(raw.get("metadata") or {}), "name": name, "uid": ""}}


def _decoded(raw: Mapping[str, Any]) -> Object:
    item = decode_object(raw)
    assert item is not None, f"{raw['kind']} is a kind that scheduling reads"
    return item


def _key(raw: Mapping[str, Any]) -> str:
    meta = raw.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    return f"{raw.get('kind')} {meta.get('namespace') or 'default'}/{meta.get('name', '')}"
