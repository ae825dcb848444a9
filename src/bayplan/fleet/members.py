"""Member clusters: loaded in parallel from kubeconfig contexts and files, each a what-if cluster of its own.

A member that cannot be read is named, and the others are used. The properties of a member other than its
nodes and pods (labels, provider, taints) come from a Cluster object, if there is one; regions and zones
otherwise come from the labels of its nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from bayplan.answers.sources.loaded import Origin
from bayplan.answers.sources.loading import SourceOptions, load_cluster_async
from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif.cluster import Cluster
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.selectors import ZONE
from bayplan.errors import APIError
from bayplan.fleet.karmada.kinds import Cluster as KarmadaCluster
from bayplan.fleet.karmada.kinds import ClusterSpec, ClusterStatus, default_resource_models
from bayplan.fleet.karmada.summary import resource_summary

REGION: Final = "topology.kubernetes.io/region"

RoomT = TypeVar("RoomT")


@dataclass(frozen=True, slots=True)
class MemberSource:
    """Where a member comes from."""

    name: str
    options: SourceOptions


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A member that could not be read."""

    name: str
    error: str


@dataclass(slots=True)
class Computed:
    """What was computed for one state of a member."""

    described: KarmadaCluster | None = None
    results: dict[Hashable, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Member:
    """A member cluster that was read."""

    name: str
    cluster: Cluster
    """Its nodes and pods; a branch of it while workloads are placed."""
    origin: Origin = Origin.FILES
    time: datetime | None = None
    """When the snapshot was made."""
    warnings: tuple[Warning, ...] = ()
    declared: KarmadaCluster | None = None
    """The Cluster object of a control plane, or of a file."""
    computed: Computed = field(default_factory=Computed, repr=False)
    """For the present state. A branch that is reverted restores it with the cluster."""

    def age(self, now: datetime | None = None) -> timedelta | None:
        """The age of the state; None for a live cluster, and if it is not known."""
        if self.time is None:
            return None
        made = self.time if self.time.tzinfo is not None else self.time.replace(tzinfo=UTC)
        return (now or datetime.now(UTC)) - made

    def karmada_cluster(self) -> KarmadaCluster:
        """What Karmada knows of it: its properties, and the summary that it reported last.

        Without a control plane, the summary is the one of its nodes and pods at present.
        """
        if self.computed.described is None:
            self.computed.described = self._describe()
        return self.computed.described

    def remember(self, key: Hashable, compute: Callable[[], RoomT]) -> RoomT:
        """Caches a result until the member is changed."""
        results = self.computed.results
        if key not in results:
            results[key] = compute()
        found: RoomT = results[key]
        return found

    def changed(self) -> None:
        """The cluster was changed: cached results are discarded."""
        self.computed = Computed()

    def _describe(self) -> KarmadaCluster:
        nodes = [self.cluster.node(name) for name in self.cluster.nodes]
        known = self.declared or KarmadaCluster()
        spec, models, summary = known.spec, known.spec.resource_models, known.status.resource_summary
        if summary is None:
            models = models or default_resource_models()
            summary = resource_summary(nodes, self.cluster.objects_of(Pod), models)
        return KarmadaCluster(
            metadata=replace(known.metadata, name=self.name),
            spec=ClusterSpec(
                provider=spec.provider,
                region=spec.region or _only(nodes, REGION),
                zones=spec.zones or _values(nodes, ZONE),
                taints=spec.taints,
                resource_models=models,
            ),
            status=ClusterStatus(
                api_enablements=known.status.api_enablements,
                resource_summary=summary,
            ),
        )


def _values(nodes: Iterable[Node], label: str) -> tuple[str, ...]:
    return tuple(sorted({node.labels[label] for node in nodes if label in node.labels}))


def _only(nodes: Iterable[Node], label: str) -> str:
    """The value that all nodes share."""
    values = _values(nodes, label)
    return values[0] if len(values) == 1 else ""


def load_members(
    sources: Sequence[MemberSource], on_loaded: Callable[[str, str], None] = lambda name, text: None
) -> tuple[list[Member], list[Unreachable]]:
    """Reads all members at the same time.

    Args:
        on_loaded: called with the name of each member when it was read, and what was read or why not.

    Raises:
        BayplanError: a file or a context is missing or malformed. An API server that does not respond is not
            an error: the member is returned as unreachable.
    """
    return asyncio.run(_load_all(sources, on_loaded))


async def _load_all(
    sources: Sequence[MemberSource], on_loaded: Callable[[str, str], None]
) -> tuple[list[Member], list[Unreachable]]:
    # One thread: decoding takes most of the time, and the decoder does not allow several.
    loaded = await asyncio.gather(*(_load(one, on_loaded) for one in sources))
    members = [one for one in loaded if isinstance(one, Member)]
    return members, [one for one in loaded if isinstance(one, Unreachable)]


async def _load(source: MemberSource, on_loaded: Callable[[str, str], None]) -> Member | Unreachable:
    try:
        loaded = await load_cluster_async(source.options)
    except APIError as error:
        on_loaded(source.name, str(error))
        return Unreachable(source.name, str(error))
    cluster = Cluster.from_loaded(loaded)
    on_loaded(source.name, f"{len(cluster.nodes):,} nodes, {cluster.pod_count:,} pods")
    return Member(source.name, cluster, loaded.origin, loaded.time, loaded.warnings)
