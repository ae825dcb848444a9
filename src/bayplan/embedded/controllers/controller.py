"""A controller: it is told what changed, says what it has to look at, and looks.

`reconcile` is a plain function of the store: it reads how things are, compares with how they should be, and
writes the difference. It does not wait, and may be called at any time and any number of times. What it
returns says when to look again even if nothing happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

from bayplan.embedded.controllers.cluster import Cluster, Seen
from bayplan.embedded.controllers.recorder import Recorder
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI

Concerns = Callable[[Seen], Iterable[str]]
"""From a change to the keys that have to be looked at because of it."""


class Controller(ABC):
    """One of the loops that make the cluster what its objects say."""

    name: ClassVar[str]
    """Who events and logs say did it."""
    settles_for: ClassVar[float] = 0.0
    """Seconds to wait for more changes before a look, for those whose looks are long."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api: ObjectAPI = cluster.api
        self.events = Recorder(cluster.api, self.name)

    @abstractmethod
    def watches(self) -> dict[Resource, Concerns]:
        """Which resources it is told about, and what their changes mean for it."""

    def watches_all(self) -> Concerns | None:
        """For the few that are told about every resource there is, custom ones included."""
        return None

    @abstractmethod
    def reconcile(self, key: str) -> float | None:
        """Looks at one thing. Returns in how many seconds to look again, None for at the next change.

        An error means that it could not be done now; it is tried again after a while.
        """


def its_key(seen: Seen) -> Iterable[str]:
    """A change of an object concerns that object."""
    return (seen.key,)


def soonest(*delays: float | None) -> float | None:
    """The first of several times to look again."""
    return min((delay for delay in delays if delay is not None), default=None)
