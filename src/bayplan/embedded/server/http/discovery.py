"""Discovery: lists of groups and resources, and the aggregated form that kubectl prefers."""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.releases import Release
from bayplan.embedded.server.kinds import Catalog, Resource, Subresource

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
