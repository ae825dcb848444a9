"""The objects of a live cluster that scheduling reads: one list of each kind, and nothing is written.

A kind that may not be listed is left out with a warning, except nodes and pods, without which there is
nothing to say. `deploy/` has a role with all permissions that this needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api.elastic_quota import ElasticQuota
from bayplan.api.kinds import KINDS, Kind, Watch
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.node_resource_topology import NodeResourceTopology
from bayplan.api.pod import Pod
from bayplan.api.pod_group import PodGroup
from bayplan.api.reading import Unreadable, with_readable_quantities
from bayplan.api.releases import Release
from bayplan.api.resource_claims import ResourceClaimTemplate
from bayplan.api.stand_in import stand_in
from bayplan.api.workloads import PriorityClass
from bayplan.client.access import Access
from bayplan.client.api_errors import NotServedError
from bayplan.client.listing import list_pages
from bayplan.client.rate_limit import make_bucket
from bayplan.client.requests import Connections, Requests
from bayplan.client.server_version import read_version
from bayplan.errors import ForbiddenError

QPS, BURST = 50.0, 100
COMPONENT: Final = "sources"

_MORE: Final = (PriorityClass, ResourceClaimTemplate, PodGroup, ElasticQuota, NodeResourceTopology)
"""Kinds that no scheduler watches by itself: they belong to pods that are added to the cluster."""
_NEEDED: Final = (Node, Pod)

_FORBIDDEN: Final = "{plural} cannot be listed ({error}): evaluated as if there were none"
_OTHER_VERSION: Final = "the API server has version {server}: evaluated as Kubernetes {release}"
_UNREADABLE: Final = "{field} cannot be read ({problem}): {effect}"


def read_kinds(plugin_kinds: Sequence[type[Object]] = ()) -> tuple[Kind, ...]:
    """The kinds that are listed, pods last: what they refer to was listed before."""
    records: list[type[Object]] = [*_MORE, *plugin_kinds]
    kinds = dict.fromkeys((*KINDS.watched(), *(KINDS.of(record) for record in records)))
    return tuple(sorted(kinds, key=lambda kind: kind.record is Pod))


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything that was listed."""

    objects: tuple[Object, ...]
    listed: frozenset[str]
    """Kinds that are complete."""
    server_version: str
    release: Release
    """The release nearest to the server's version."""
    warnings: tuple[Warning, ...]


def list_cluster(access: Access, plugin_kinds: Sequence[type[Object]] = ()) -> Listing:
    """Lists the cluster.

    Raises:
        APIError: it cannot be reached, or nodes or pods cannot be listed.
    """
    return asyncio.run(list_cluster_async(access, plugin_kinds))


async def list_cluster_async(access: Access, plugin_kinds: Sequence[type[Object]] = ()) -> Listing:
    """The same, for callers that have an event loop."""
    connections = Connections(access)
    try:
        requests = Requests(connections, make_bucket(QPS, BURST), component=COMPONENT)
        version = await read_version(requests)
        objects: list[Object] = []
        listed: set[str] = set()
        release, is_same = version.nearest_release()
        warnings: list[Warning] = []
        if not is_same:
            text = _OTHER_VERSION.format(server=version.git_version, release=release)
            warnings.append(Warning(text, reason=Reason.OTHER_VERSION, object=version.git_version))
        for kind in read_kinds(plugin_kinds):
            try:
                found = (await list_pages(requests, kind.record)).items
            except NotServedError:
                if kind.watch is Watch.REQUIRED:
                    raise
                found = ()
            except ForbiddenError as error:
                if kind.record in _NEEDED:
                    raise
                text = _FORBIDDEN.format(plural=kind.plural, error=error)
                warnings.append(Warning(text, reason=Reason.MISSING_KIND, object=kind.plural))
                continue
            listed.add(kind.name)
            for item, warning in map(_readable, found):
                if item is not None:
                    objects.append(item)
                warnings.extend(warning)
        return Listing(tuple(objects), frozenset(listed), version.git_version, release, tuple(warnings))
    finally:
        await connections.close()


def _readable(item: Object) -> tuple[Object | None, tuple[Warning, ...]]:
    """The object, or what a scheduler uses in its place (`api/stand_in.py`)."""
    read = with_readable_quantities(item)
    if not isinstance(read, Unreadable):
        return read, ()
    used = stand_in(read)
    return used, tuple(_unreadable(read, is_used=used is not None))


def _unreadable(item: Unreadable, *, is_used: bool) -> Iterator[Warning]:
    key = f"{item.kind} {item.key}"
    effect = "the scheduler uses a substitute" if is_used else "the object is treated as absent"
    text = _UNREADABLE.format(field=f"{key}: {item.fields[0]}", problem=item.problem, effect=effect)
    yield Warning(text, reason=Reason.UNREADABLE_OBJECT, object=key)
