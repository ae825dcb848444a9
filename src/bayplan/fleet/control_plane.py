"""What a Karmada control plane has: Clusters, policies and bindings, read once. Nothing is written to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bayplan.answers.sources.loading import SourceOptions, default_kubeconfig
from bayplan.api.meta import Object
from bayplan.api.reading import Unreadable
from bayplan.client.api_errors import NotServedError
from bayplan.client.kubeconfig import load_access
from bayplan.client.list_watch import list_pages
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.errors import APIError, ServerError
from bayplan.fleet.karmada.kinds import (
    Cluster,
    ClusterPropagationPolicy,
    PropagationPolicy,
    ResourceBinding,
)

COMPONENT: Final = "fleet"
QPS, BURST = 50.0, 100
_NOT_KARMADA: Final = "{server} is not a Karmada control plane: it serves no {plural}"
_TOO_SLOW: Final = "the control plane was not read within {seconds:g} s"

ObjectT = TypeVar("ObjectT", bound=Object)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Its objects."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    policies: Sequence[PropagationPolicy] = ()
    bindings: Mapping[tuple[str, str], ResourceBinding] = field(default_factory=dict)
    """By kind and key of the object that they are for."""
    unreadable: Sequence[str] = ()
    """Objects that are left out, because they cannot be decoded."""

    def binding_of(self, kind: str, key: str) -> ResourceBinding | None:
        return self.bindings.get((kind, key))


def read_control_plane(options: SourceOptions) -> ControlPlane:
    """Reads the control plane of a context.

    Raises:
        ConfigError: the kubeconfig is invalid.
        APIError: it cannot be read, or is not one of Karmada.
    """
    access = load_access(
        options.kubeconfig or default_kubeconfig(context=options.context), context=options.context
    )

    async def read() -> ControlPlane:
        connections = Connections(access)
        unreadable: list[str] = []

        async def listed(kind: type[ObjectT]) -> list[ObjectT]:
            try:
                found = (await list_pages(requests, kind)).items
            except NotServedError as error:
                text = _NOT_KARMADA.format(server=access.server, plural=kind.__name__)
                raise APIError(text) from error
            unreadable.extend(f"{one.kind} {one.key}" for one in found if isinstance(one, Unreadable))
            return [one for one in found if not isinstance(one, Unreadable)]

        try:
            requests = Requests(connections, make_bucket(QPS, BURST), component=COMPONENT)
            clusters = await listed(Cluster)
            policies = [*await listed(PropagationPolicy), *await listed(ClusterPropagationPolicy)]
            bindings = await listed(ResourceBinding)
        finally:
            await connections.close()
        return ControlPlane(
            {one.name: one for one in clusters},
            policies,
            {
                (one.spec.resource.kind, f"{one.spec.resource.namespace}/{one.spec.resource.name}"): one
                for one in bindings
            },
            unreadable,
        )

    async def limited() -> ControlPlane:
        async with asyncio.timeout(options.time_limit):
            return await read()

    try:
        return asyncio.run(limited())
    except TimeoutError as error:
        raise ServerError(_TOO_SLOW.format(seconds=options.time_limit or 0)) from error
