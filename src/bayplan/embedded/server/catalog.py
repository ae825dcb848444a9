"""The resources that the embedded server serves now: built-in ones of a release, and custom resources.

Routing, discovery, OpenAPI, tables and the store read it. Requests for other kinds are answered with 404, for
verbs that a resource does not have with 405.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from bayplan.api.kinds import KINDS
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.embedded.server.kinds import BUILT_IN, GATED, LATER, STATUS, Resource
from bayplan.errors import BayplanError

_ANY_FIELDS: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def served_kinds(release: Release) -> tuple[Resource, ...]:
    """The built-in resources of a release, and what else the scheduler's table of kinds has.

    CustomResourceDefinitions define custom ones; feature gates add theirs.
    """
    later = (resource for resource in LATER if resource.kind in release.new_kinds)
    gated = (resource for resource in GATED if resource.gate in release.gates)
    built_in = (*BUILT_IN, *later, *gated)
    served = {(resource.group, resource.plural) for resource in (*BUILT_IN, *LATER)}
    added = (
        Resource(kind.plural, kind.name, kind.group, kind.version, kind.namespaced, schema=_ANY_FIELDS)
        for kind in KINDS
        if not kind.custom and not kind.gate and (kind.group, kind.plural) not in served
    )
    return tuple(_as_of(release, resource) for resource in (*built_in, *added))


def _as_of(release: Release, resource: Resource) -> Resource:
    """A resource as a release serves it."""
    rules, kind = release.server, resource.kind
    return replace(
        resource,
        release=release.version,
        subresources=(*resource.subresources, *((STATUS,) if kind in rules.statuses else ())),
        selectable=(*resource.selectable, *rules.selectable.get(kind, ())),
        counts_generations=resource.counts_generations or kind in rules.generations,
        defaults=rules.defaults.get(kind, {}),
        stored_as=None if resource.stored_as is None else _as_of(release, resource.stored_as),
    )


class UnknownKindError(BayplanError):
    """Code in this process requested a kind that is not served."""


class Catalog:
    """The resources that are served now: the built-in ones, and those of CustomResourceDefinitions."""

    def __init__(
        self, resources: Iterable[Resource] | None = None, release: Release = DEFAULT_RELEASE
    ) -> None:
        self.release = release
        """The release of Kubernetes whose API this is."""
        self.revision = 0
        """Counts the changes, for values that depend on it."""
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        for resource in served_kinds(release) if resources is None else resources:
            self.add(resource)
        self._built_in = frozenset(
            (resource.group, name) for resource in self for name in (resource.plural, resource.kind)
        )

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_path.values()))

    def add(self, resource: Resource) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self.revision += 1

    def remove(self, resource: Resource) -> None:
        self._by_path.pop((resource.group, resource.version, resource.plural), None)
        self.revision += 1

    def is_built_in(self, group: str, plural: str, kind: str) -> bool:
        """Whether a definition with these names would conflict with a built-in kind, in any version."""
        return (group, plural) in self._built_in or (group, kind) in self._built_in

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource:
        """The resource of a kind, as a manifest or an ownerReference names it.

        Raises:
            UnknownKindError: it is not served.
        """
        group, _, version = api_version.rpartition("/")
        for resource in self._by_path.values():
            if (resource.group, resource.version, resource.kind) == (group, version, kind):
                return resource
        raise UnknownKindError(f"no kind {kind} is served in {api_version or 'an empty apiVersion'}")
