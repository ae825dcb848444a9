"""Custom resources: a CustomResourceDefinition adds one resource per version to the catalog.

No conversion between versions is done (strategy None): all versions show the same fields. Objects are pruned,
completed and checked by their schema (`validation/custom.py`).
"""

from __future__ import annotations

from typing import Final

from bayplan.api.meta import Content
from bayplan.embedded.server import statuses
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.documents import encode
from bayplan.embedded.server.kinds import CUSTOM_RESOURCE_DEFINITIONS, SCALE, STATUS, Resource

_OPEN_SCHEMA: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class CustomResources:
    """Keeps the catalog consistent with the definitions."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def is_built_in(self, definition: Content) -> bool:
        """Whether it names a built-in kind. Such a definition is rejected; an older store may contain one."""
        spec = definition["spec"]
        return self._catalog.is_built_in(spec["group"], spec["names"]["plural"], spec["names"]["kind"])

    def check(self, definition: Content) -> None:
        """Rejects a definition that would replace a built-in kind, and delete its objects with itself."""
        if self.is_built_in(definition):
            spec = definition["spec"]
            why = f"{spec['names']['plural']}.{spec['group']} is a built-in API"
            problem = statuses.forbidden_field("spec.names", why)
            name = definition["metadata"]["name"]
            raise statuses.invalid(CUSTOM_RESOURCE_DEFINITIONS, name, [problem])

    def accept(self, definition: Content, now: str) -> None:
        """Sets NamesAccepted and Established in the status of a definition. Other conditions stay."""
        spec = definition["spec"]
        status = definition.setdefault("status", {})
        conditions = list(status.get("conditions") or ())
        known = {condition.get("type") for condition in conditions}
        status["acceptedNames"] = spec["names"]
        stored = [version["name"] for version in spec["versions"] if version.get("storage")]
        status["storedVersions"] = list(dict.fromkeys([*(status.get("storedVersions") or ()), *stored]))
        status["conditions"] = conditions + [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
            if kind not in known
        ]

    def define(self, definition: Content) -> None:
        """Serves the resources of a definition, instead of those of its earlier version."""
        self.remove(definition)
        for resource in self.resources_of(definition):
            self._catalog.add(resource)

    def remove(self, definition: Content) -> None:
        if self.is_built_in(definition):
            return
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        for resource in self._catalog:
            if (resource.group, resource.plural) == (group, plural):
                self._catalog.remove(resource)

    def resources_of(self, definition: Content) -> list[Resource]:
        """One resource for each version that is served; all are stored as the storage version."""
        if self.is_built_in(definition):
            return []
        spec = definition["spec"]
        since = int(definition["metadata"].get("resourceVersion") or 0) if "metadata" in definition else 0
        versions = [version for version in spec["versions"] if version.get("served", True)]
        stored = next((self._resource(spec, v, since) for v in spec["versions"] if v.get("storage")), None)
        resources = []
        for version in versions:
            resource = self._resource(spec, version, since)
            if stored is not None and resource != stored:
                resource = self._resource(spec, version, since, stored)
            resources.append(resource)
        return resources

    def _resource(
        self, spec: Content, version: Content, since: int, stored: Resource | None = None
    ) -> Resource:
        names = spec["names"]
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or _OPEN_SCHEMA
        subresources = version.get("subresources") or {}
        return Resource(
            names["plural"],
            names["kind"],
            group=spec["group"],
            version=version["name"],
            namespaced=spec.get("scope") != "Cluster",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=(
                *((STATUS,) if "status" in subresources else ()),
                *((SCALE,) if "scale" in subresources else ()),
            ),
            selectable=tuple(
                field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
            ),
            singular_name=names.get("singular", ""),
            list_kind_name=names.get("listKind", ""),
            schema=schema,
            defaults_since=since if b'"default":' in encode(schema) else 0,
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            stored_as=stored,
        )
