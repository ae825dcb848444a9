"""A controller: maps changes to keys, and reconciles keys.

`reconcile` is a plain function of the store: it reads the actual state, compares it with the desired state,
and writes the difference. It does not wait, and may be called at any time and any number of times. It returns
when to reconcile again even if nothing changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.recorder import Recorder
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI

KeyMapper = Callable[[ObjectChange], Iterable[str]]
"""Maps a change to the keys that have to be reconciled."""


class Controller(ABC):
    """One of the loops that reconcile the cluster with its objects."""

    name: ClassVar[str]
    """The component in events and logs."""
    batch_seconds: ClassVar[float] = 0.0
    """Seconds to wait for more changes before a reconcile, for controllers whose reconciles are slow."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api: ObjectAPI = cluster.api
        self.events = Recorder(cluster.api, self.name)

    @abstractmethod
    def watches(self) -> dict[Resource, KeyMapper]:
        """The resources it watches, and the keys of their changes."""

    def watches_all(self) -> KeyMapper | None:
        """For the few that watch every resource, custom ones included."""
        return None

    @abstractmethod
    def reconcile(self, key: str) -> float | None:
        """Reconciles one key. Returns the seconds until the next time, None: at the next change.

        An error means that it failed; it is retried after a while.
        """


def own_key(change: ObjectChange) -> Iterable[str]:
    """A change of an object concerns that object."""
    return (change.key,)


def earliest(*delays: float | None) -> float | None:
    """The shortest of several delays; None if there is none."""
    return min((delay for delay in delays if delay is not None), default=None)
