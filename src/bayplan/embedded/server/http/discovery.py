"""Discovery and OpenAPI v3: the groups and resources that are served, and their fields.

Discovery has lists, and the aggregated form that kubectl prefers. kubectl reads OpenAPI before `apply` and
`create` (does the server know fieldValidation?), for strategic merge patches, and for `explain`. Descriptions
are our own, and there are few: `schema/descriptions.txt`.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from bayplan.api.releases import Release
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.kinds import Resource, Subresource
from bayplan.embedded.server.schema.types import Field, Type, all_types, description, type_name

EMBEDDED_SUFFIX: Final = "+bayplan"
"""Suffix of the version, by which clients recognize this server."""


def version(release: Release) -> dict[str, str]:
    """/version: the release of Kubernetes whose API is served."""
    return {
        "major": "1",
        "minor": str(release.minor),
        "gitVersion": f"v{release.patch_version}{EMBEDDED_SUFFIX}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "python",
        "platform": "linux/amd64",
    }


_REVIEWS: Final = {
    "authentication.k8s.io": (("selfsubjectreviews", "SelfSubjectReview"), ("tokenreviews", "TokenReview")),
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
}
REVIEWS: Final = {
    (group, plural): Resource(plural, kind, group=group, namespaced=False, verbs=("create",))
    for group, reviews in _REVIEWS.items()
    for plural, kind in reviews
}
"""Reviews: their creation returns a result, and stores nothing."""


METRICS_GROUP: Final = "metrics.k8s.io"
NO_METRICS: Final = (
    "bayplan's containers are simulated: they take no CPU and no memory that could be measured"
)
_EMPTY_VERSIONS: Final = {METRICS_GROUP: ("v1beta1",)}
"""Groups that are listed without resources: `kubectl top` requests metrics only if their group is listed."""


def served(catalog: Catalog) -> list[Resource]:
    return [*catalog, *REVIEWS.values()]


def group_names(catalog: Catalog) -> list[str]:
    found = [resource.group for resource in served(catalog) if resource.group]
    return list(dict.fromkeys((*found, *_EMPTY_VERSIONS)))


def api_versions() -> dict[str, Any]:
    """/api"""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(catalog: Catalog) -> dict[str, Any]:
    """/apis"""
    groups = [group(catalog, name, bare=True) for name in group_names(catalog)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(catalog: Catalog, name: str, *, bare: bool = False) -> dict[str, Any]:
    """/apis/GROUP"""
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in _versions(catalog, name)
    ]
    body = {"name": name, "versions": versions, "preferredVersion": versions[0]}
    return body if bare else {"kind": "APIGroup", "apiVersion": "v1", **body}


def _versions(catalog: Catalog, group_name: str) -> list[str]:
    found = [each.version for each in served(catalog) if each.group == group_name]
    return list(dict.fromkeys((*found, *_EMPTY_VERSIONS.get(group_name, ()))))


def resource_list(catalog: Catalog, group_name: str, version: str) -> dict[str, Any] | None:
    """/api/v1 and /apis/GROUP/VERSION; None if nothing is served there."""
    found = [r for r in served(catalog) if (r.group, r.version) == (group_name, version)]
    if version not in _versions(catalog, group_name):
        return None
    entries = []
    for resource in found:
        entries.append(_entry(resource))
        entries += [_sub_entry(resource, sub) for sub in resource.subresources]
    head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group_name else {})}
    return {**head, "groupVersion": f"{group_name}/{version}".lstrip("/"), "resources": entries}


def _entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _sub_entry(resource: Resource, sub: Subresource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{sub.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind or resource.kind,
        "verbs": list(sub.verbs),
    }
    if sub.group:
        entry["group"], entry["version"] = sub.group, sub.version
    return entry


def aggregated(catalog: Catalog, *, core: bool) -> dict[str, Any]:
    """/api or /apis with everything below it."""
    items = []
    for name in [""] if core else group_names(catalog):
        versions = [
            {
                "version": version,
                "resources": [
                    _aggregated_entry(resource)
                    for resource in served(catalog)
                    if (resource.group, resource.version) == (name, version)
                ],
                "freshness": "Current",
            }
            for version in _versions(catalog, name)
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group or ("" if sub.kind else resource.group),
                    "version": sub.version or resource.version,
                    "kind": sub.kind or resource.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]
    return entry


V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
EMPTY_V2_PROTOBUF: Final = b"\x0a\x032.0"
"""The first field, which is the version, and nothing else."""

_ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCALARS: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("any", "schema", "schema-or-array", "schema-or-bool", "schema-or-strings"), _ANY),
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "int-or-string": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "microtime": {"type": "string", "format": "date-time"},
    "number": {"type": "number", "format": "double"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "string": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
}
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation", "pretty")
_VERBS: Final = (("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete"))
_REF: Final = "#/components/schemas/"
_REF_V2: Final = "#/definitions/"
_V2: Final = "v2"
_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
_NOT_IN_V2: Final = ("allOf", "anyOf", "default", "not", "nullable", "oneOf")
"""What OpenAPI v2 does not have, or what upstream does not publish in it."""


def _info(release: Release) -> dict[str, str]:
    return {"title": "Kubernetes", "version": f"v{release.patch_version}"}


class OpenAPIDocuments:
    """The documents of a catalog, created on request and cached until the catalog changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._revision = -1
        self._kept: dict[str, bytes] = {}

    def find(self, root: str) -> bytes | None:
        """The document of a group and version, `api/v1`; None if nothing is served there."""
        self._check_revision()
        made = self._kept.get(root)
        if made is None:
            content = document(self._catalog, root)
            if content is None:
                return None
            made = self._kept[root] = msgspec.json.encode(content)
        return made

    def find_v2(self) -> bytes:
        """The definitions of everything in OpenAPI v2, without paths."""
        self._check_revision()
        made = self._kept.get(_V2)
        if made is None:
            made = self._kept[_V2] = msgspec.json.encode(document_v2(self._catalog))
        return made

    def _check_revision(self) -> None:
        if self._revision != self._catalog.revision:
            self._revision = self._catalog.revision
            self._kept = {}

    def index(self) -> dict[str, Any]:
        """The path of the document of each group and version."""
        paths = {}
        for root in _roots(self._catalog):
            digest = hashlib.sha256(self.find(root) or b"").hexdigest().upper()
            paths[root] = {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest[:32]}"}
        return {"paths": paths}


def _roots(catalog: Catalog) -> list[str]:
    return list(dict.fromkeys(resource.root.removeprefix("/") for resource in served(catalog)))


def document(catalog: Catalog, root: str) -> dict[str, Any] | None:
    """The document of a group and version, `api/v1`; None if nothing is served there."""
    resources = [resource for resource in served(catalog) if resource.root == f"/{root}"]
    if not resources:
        return None
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    structs = {each.name: each for each in all_types(catalog.release.version)}
    for resource in resources:
        paths.update(_paths(resource))
        name = _schema_name(resource)
        if resource.schema is not None:
            schemas[name] = _custom_schema(resource, structs, schemas)
        elif (found := structs.get(type_name(resource))) is not None:
            _add(schemas, found, structs, name)
        if name in schemas:
            gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
            schemas[name]["x-kubernetes-group-version-kind"] = [gvk]
    return {
        "openapi": "3.0.0",
        "info": _info(catalog.release),
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(resource: Resource) -> str:
    reverse = ".".join(reversed(resource.group.split("."))) if resource.schema is not None else ""
    prefix = reverse or f"io.k8s.api.{(resource.group.partition('.')[0] or 'core')}"
    return f"{prefix}.{resource.version}.{resource.kind}"


def _paths(resource: Resource) -> dict[str, Any]:
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    where = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{resource.root}{where}/{resource.plural}"
    write = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in _WRITE_PARAMETERS
    ]

    def operation(action: str) -> dict[str, Any]:
        made: dict[str, Any] = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
            "responses": {"200": {"description": "OK"}},
        }
        if action not in ("get", "list"):
            made["parameters"] = write
        return made

    paths = {collection: {"get": operation("list"), "post": operation("post")}}
    if "get" in resource.verbs:
        paths[f"{collection}/{{name}}"] = {method: operation(action) for method, action in _VERBS}
    return paths


def _add(schemas: dict[str, Any], of: Type, structs: dict[str, Type], name: str) -> None:
    """Adds the schema of a struct, and of all that it refers to."""
    if name in schemas:
        return
    schema: dict[str, Any] = {"type": "object"}
    schemas[name] = schema
    if text := description(of.name):
        schema["description"] = text
    fields = of.fields or {}
    if required := [key for key, field in fields.items() if field.required]:
        schema["required"] = required
    schema["properties"] = {
        key: _property(field, schemas, structs, description(of.name, key)) for key, field in fields.items()
    }
    if of.atomic:
        schema["x-kubernetes-map-type"] = "atomic"


def _property(field: Field, schemas: dict[str, Any], structs: dict[str, Type], text: str) -> dict[str, Any]:
    schema = _schema(field.type, schemas, structs)
    if text:
        schema["description"] = text
    if field.type.name == "list":
        kind = "map" if field.keys else "set" if field.is_set else "atomic"
        schema["x-kubernetes-list-type"] = kind
        if field.keys:
            schema["x-kubernetes-list-map-keys"] = list(field.keys)
        if field.merge_key:
            schema["x-kubernetes-patch-merge-key"] = field.merge_key
    strategies = [name for name, has in (("merge", field.merges), ("retainKeys", field.retains_keys)) if has]
    if strategies:
        schema["x-kubernetes-patch-strategy"] = ",".join(strategies)
    return schema


def _schema(of: Type, schemas: dict[str, Any], structs: dict[str, Type]) -> dict[str, Any]:
    if of.name == "list":
        assert of.items is not None
        return {"type": "array", "items": _schema(of.items, schemas, structs)}
    if of.name == "map":
        assert of.items is not None
        return {"type": "object", "additionalProperties": _schema(of.items, schemas, structs)}
    if of.fields is not None:
        name = f"io.k8s.api.{of.name}"
        _add(schemas, of, structs, name)
        return {"allOf": [{"$ref": f"{_REF}{name}"}], "default": {}}
    schema = dict(_SCALARS[of.name])
    if of.choices:
        schema["enum"] = list(of.choices)
    return schema


def _custom_schema(resource: Resource, structs: dict[str, Type], schemas: dict[str, Any]) -> dict[str, Any]:
    assert resource.schema is not None
    properties = dict(resource.schema.get("properties") or {})
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": description("", name)}
    meta = _schema(structs["ObjectMeta"], schemas, structs)
    properties["metadata"] = {**meta, "description": description("", "metadata")}
    return {**resource.schema, "type": "object", "properties": properties}


# OpenAPI v2


def document_v2(catalog: Catalog) -> dict[str, Any]:
    """All schemas in OpenAPI v2, which has less than v3."""
    definitions: dict[str, Any] = {}
    for root in _roots(catalog):
        found = document(catalog, root)
        assert found is not None, "something is served there"
        for name, schema in found["components"]["schemas"].items():
            definitions[name] = _open(schema) if schema.get(_UNKNOWN) else _as_v2(schema)
    return {"swagger": "2.0", "info": _info(catalog.release), "paths": {}, "definitions": definitions}


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """An object that may have any fields. With some of them kubectl would report all others."""
    # apiextensions, controller/openapi/builder: buildKubeNative
    return {key: schema[key] for key in ("type", "x-kubernetes-group-version-kind")}


def _as_v2(schema: dict[str, Any]) -> dict[str, Any]:
    # apiextensions, controller/openapi/v2/conversion.go: ToStructuralOpenAPIV2
    if schema.get("allOf") and "$ref" in schema["allOf"][0]:
        reference = schema["allOf"][0]["$ref"].replace(_REF, _REF_V2)
        return {"$ref": reference, **{key: schema[key] for key in ("description",) if key in schema}}
    made = {key: value for key, value in schema.items() if key not in _NOT_IN_V2}
    if schema.get("nullable"):
        made.pop("type", None)
    if schema.get("oneOf") and "type" not in made:
        made["type"] = "string"  # quantities and ports: any of two types
    if made.get(_UNKNOWN):
        made.pop("items", None)
        made.pop("properties", None)
    if "properties" in made:
        made["properties"] = {key: _as_v2(value) for key, value in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _as_v2(made[key])
    return made
