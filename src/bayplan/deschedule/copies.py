"""A what-if copy of a live cluster, and the informers that keep it up to date.

`plan`, `apply` and `run` work on a copy. It is not rebuilt each time: the objects of the informers are
compared with those of the copy, by identity, and only the differences are applied. So reading the cluster
before each step of a plan needs no request, and takes time only for what changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

from bayplan.answers.whatif import Cluster
from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.kinds import KINDS, Watch
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.informer import Informer
from bayplan.config import KubeSchedulerConfiguration
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.tasks import cancel_all, first_to_end

_Key = tuple[type[Object], str, str]


class Informers(Protocol):
    """The informers of a scheduler in this process, or `Watching`."""

    @property
    def informers(self) -> Sequence[Informer[Any]]: ...


@dataclass(slots=True)
class ClusterCopy:
    """A copy that is brought up to date on request. Used by one thread at a time."""

    config: KubeSchedulerConfiguration
    plugins: Sequence[type[Plugin]] = ()
    _cluster: Cluster | None = None
    _known: dict[_Key, Object] = field(default_factory=dict)

    def update(self, objects: Iterable[Object]) -> Cluster:
        """The copy, with all of these objects and no others."""
        found: dict[_Key, Object] = {(type(one), one.namespace, one.name): one for one in objects}
        known, self._known = self._known, found
        if self._cluster is None:
            self._cluster = Cluster.from_objects(found.values(), config=self.config, plugins=self.plugins)
            return self._cluster
        changed = [(known.get(key), one) for key, one in found.items() if known.get(key) is not one]
        # Nodes come before the pods on them, and go after them.
        for old, new in sorted(changed, key=lambda pair: _rank(pair[1])):
            if old is not None and old.uid != new.uid:
                self._cluster.sync(old, None)
                old = None
            self._cluster.sync(old, new)
        for gone in sorted((known[key] for key in known.keys() - found.keys()), key=_rank, reverse=True):
            self._cluster.sync(gone, None)
        return self._cluster


def _rank(item: Object) -> int:
    return 0 if isinstance(item, Node) else 2 if isinstance(item, Pod) else 1


class _NoHandler:
    """Ignores events: only the informer's own objects are used."""

    def added(self, item: Object) -> None: ...
    def updated(self, old: Object, new: Object) -> None: ...
    def deleted(self, item: Object) -> None: ...


class Watching:
    """Informers of a process that has no scheduler.

    Args:
        kinds: of the objects to watch; the caller omits those that it may not list.
    """

    def __init__(self, api: ClusterAPI, kinds: Iterable[type[Object]]) -> None:
        self.informers: list[Informer[Any]] = [
            Informer(api, kind, _NoHandler(), optional=KINDS.of(kind).watch is not Watch.REQUIRED)
            for kind in kinds
        ]

    async def run(self) -> None:
        """Watches until it is cancelled."""
        tasks = [asyncio.ensure_future(one.run()) for one in self.informers]
        try:
            await first_to_end(tasks)
        finally:
            await cancel_all(tasks)

    async def synced(self) -> None:
        for one in self.informers:
            await one.synced.wait()


def objects_of(source: Informers) -> list[Object]:
    """All objects that the informers hold."""
    return list(chain.from_iterable(informer.all() for informer in source.informers))


def pods_of(source: Informers, namespace: str) -> list[Pod]:
    """The pods of a namespace."""
    (pods,) = (informer.all() for informer in source.informers if informer.kind is Pod)
    return [pod for pod in pods if pod.namespace == namespace]
