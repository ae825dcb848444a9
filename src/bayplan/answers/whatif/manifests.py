"""Reads what a user would apply, and rejects what an API server would reject.

Kinds that bayplan does not know may create pods (Argo Rollouts, JobSets, …), and CronJobs create them at
times that are not known here: both are left out, and named (`LeftOut`). So are autoscalers, webhooks and
admission policies. `applying.py` applies the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.answers.sources.files import STDIN
from bayplan.answers.sources.groups import COMPOSITE
from bayplan.api.decode import expand_lists
from bayplan.api.documents import Document, parse_documents, read_documents, read_stream
from bayplan.api.kinds import KINDS
from bayplan.api.meta import DEFAULT_NAMESPACE, Content
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.controllers.volcano.spec import JOB
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.catalog import Catalog, UnknownKindError
from bayplan.embedded.server.defaults import apply_defaults
from bayplan.embedded.server.kinds import ADMISSION_GROUP, Resource
from bayplan.embedded.server.preparation import prepare_new
from bayplan.embedded.server.schema.types import TypeMismatchError, clean, type_of
from bayplan.embedded.server.validation import new_problems
from bayplan.errors import DecodeError, InputError

WORKLOADS: Final = (
    "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job",
)  # fmt: skip
"""Kinds whose controllers create pods."""

QUEUE: Final = "Queue"
"""Of Volcano: a queue alone changes which pods are scheduled."""
_ANY_FIELDS: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_NO_POD: Final = "there is no pod and no workload in it, nor a Queue of Volcano"
_NO_KIND: Final = "it has no apiVersion or no kind"
_NOT_A_MAPPING: Final = "expected a mapping"
_CRON_JOB: Final = "when its Jobs run is not known here"
AUTOSCALER: Final = (
    "it sets the replicas of {kind} {name}, {least} to {most}, by metrics that are not known here"
)
_ADMISSION: Final = "it may change or reject pods, and is not evaluated"
_WORKLOAD: Final = "what creates its PodGroups is not known here: add the PodGroups themselves"
_TREES: Final = "composite groups are evaluated only if the cluster has one already"
_UNKNOWN: Final = "this kind is not known, and its controller may create pods"
_HANDLED: Final = '{kind} in version "{version}" cannot be handled as a {kind}: {why}'


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object to apply, complete and valid."""

    resource: Resource
    content: Content
    """With the defaults of an API server."""
    given: Content
    """Without them: what the manifest states."""
    source: str = ""
    line: int | None = None

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def is_volcano_job(self) -> bool:
        return self.resource.group == JOB[2]

    @property
    def name(self) -> str:
        name: str = self.content["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.content["metadata"].get("namespace", "")
        return namespace

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An object of a manifest that was not judged."""

    kind: str
    key: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.why}"

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "object": self.key, "reason": self.why}


@dataclass(frozen=True, slots=True)
class Manifests:
    """The content of a file."""

    source: str
    objects: tuple[Manifest, ...]
    left_out: tuple[LeftOut, ...] = ()


def read_manifests(file: str, release: Release = DEFAULT_RELEASE) -> Manifests:
    """The objects of a file.

    Raises:
        InputError: the file is missing or malformed, an API server would reject an object, or there is
            neither a pod nor a workload in it, nor a Queue of Volcano.
    """
    found = checked(_standard_input() if file == STDIN else read_documents(Path(file)), file, release)
    has_effect = any(one.kind in ("Pod", QUEUE, *WORKLOADS) for one in found.objects)
    if not has_effect and not found.left_out:
        raise InputError(_NO_POD, source=file)
    return found


def manifests_of(*contents: Content, release: Release = DEFAULT_RELEASE) -> Manifests:
    """The same for objects as JSON or YAML decodes them."""
    return checked((Document(content, "", None) for content in contents), "", release)


def checked(documents: Iterator[Document], source: str, release: Release) -> Manifests:
    catalog = Catalog(release=release)
    for kind in KINDS:
        if kind.custom:
            names = (kind.plural, kind.name, kind.group, kind.version, kind.namespaced)
            catalog.add(Resource(*names, schema=_ANY_FIELDS))
    catalog.add(Resource(*JOB, schema=_ANY_FIELDS))
    objects: list[Manifest] = []
    left_out: list[LeftOut] = []
    for document in documents:
        for raw in expand_lists(document.content, document.source, document.line):
            try:
                made = _checked(raw, document, catalog)
            except InputError as error:
                raise error.at(source=document.source, line=document.line) from error.__cause__
            if isinstance(made, LeftOut):
                left_out.append(made)
            else:
                objects.append(made)
    return Manifests(source, tuple(objects), tuple(left_out))


def _standard_input() -> Iterator[Document]:
    data = read_stream(sys.stdin.buffer, STDIN)
    return parse_documents(data, STDIN, is_json=data.lstrip().startswith(b"{"))


def _checked(raw: Mapping[str, Any], document: Document, catalog: Catalog) -> Manifest | LeftOut:
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or not version or not kind:
        raise DecodeError(_NO_KIND)
    meta = raw.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise DecodeError(_NOT_A_MAPPING, object_key=kind, field="metadata")
    try:
        resource = catalog.of_kind(version, kind)
    except UnknownKindError:
        return _left_out(f"{kind} ({version})", meta, _TREES if kind == COMPOSITE else _UNKNOWN)
    given = _strict(dict(raw), resource, document)
    own = given.setdefault("metadata", {})
    if resource.namespaced:
        own["namespace"] = own.get("namespace") or DEFAULT_NAMESPACE
    if not own.get("name") and own.get("generateName"):
        own["name"] = own["generateName"].removesuffix("-")
    content: Content = clean(given, type_of(resource))[0]
    apply_defaults(resource, content)
    problems = new_problems(resource, _prepared(resource, content))
    if problems:
        raise InputError(str(statuses.invalid(resource, own.get("name", ""), problems)))
    if (why := _not_judged(resource, content, catalog.release)) is not None:
        return _left_out(kind, own, why)
    return Manifest(resource, content, given, document.source, document.line)


def _not_judged(resource: Resource, content: Content, release: Release) -> str | None:
    """Why a valid object is left out, although it has to do with pods."""
    if resource.kind == "CronJob":
        return _CRON_JOB
    if resource.kind == "HorizontalPodAutoscaler":
        spec = content.get("spec") or {}
        target = spec.get("scaleTargetRef") or {}
        return AUTOSCALER.format(
            kind=target.get("kind", ""),
            name=target.get("name", ""),
            least=spec.get("minReplicas", 1),
            most=spec.get("maxReplicas", 1),
        )
    if resource.group == ADMISSION_GROUP:
        return _ADMISSION
    if resource.kind == "Workload":
        return _WORKLOAD
    if resource == kinds.POD_GROUPS and COMPOSITE not in release.gates:
        return _TREES if (content.get("spec") or {}).get("parentCompositePodGroupName") else None
    return None


def _left_out(kind: str, meta: Mapping[str, Any], why: str) -> LeftOut:
    namespace, name = meta.get("namespace"), meta.get("name") or meta.get("generateName") or ""
    return LeftOut(kind, f"{namespace}/{name}" if namespace else str(name), why)


def _strict(raw: Content, resource: Resource, document: Document) -> Content:
    """The object with the fields of its type. Unknown ones are rejected, as kubectl asks for."""
    try:
        cleaned, unknown = clean(raw, type_of(resource), lenient=resource.schema is not None)
    except TypeMismatchError as error:
        text = _HANDLED.format(kind=resource.kind, version=resource.version, why=error)
        raise InputError(text, line=_line(document, raw, error.path)) from None
    if unknown:
        fields = ", ".join(f'unknown field "{path}"' for path in unknown)
        why = f"strict decoding error: {fields}"
        text = _HANDLED.format(kind=resource.kind, version=resource.version, why=why)
        raise InputError(text, line=_line(document, raw, unknown[0]))
    found: Content = cleaned
    return found


def _line(document: Document, raw: Content, path: str) -> int | None:
    """The line of a field; for an item of a List, the first line of the document."""
    return document.line_of(path) if document.content == raw and path else document.line


def _prepared(resource: Resource, content: Content) -> Content:
    """The object as it is validated: a Job has its selector, and the pods of a StatefulSet the volumes of its
    claims, which containers mount."""
    if resource == kinds.JOBS:
        copy: Content = msgspec.json.decode(msgspec.json.encode(content))
        copy["metadata"].setdefault("uid", "")
        prepare_new(resource, copy)
        return copy
    claims = (content.get("spec") or {}).get("volumeClaimTemplates")
    if resource != kinds.STATEFUL_SETS or not claims:
        return content
    spec = content["spec"]
    pod = spec["template"]["spec"]
    known = {volume.get("name") for volume in pod.get("volumes") or ()}
    names = [claim.get("metadata", {}).get("name") for claim in claims]
    more = [{"name": name, "emptyDir": {}} for name in names if name not in known]
    template = {**spec["template"], "spec": {**pod, "volumes": [*(pod.get("volumes") or ()), *more]}}
    return {**content, "spec": {**spec, "template": template}}
