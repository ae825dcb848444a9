"""Names of the scheduling framework that the configuration file uses: extension points and tie-break rules.

One enum for the points of the whole program, because there are three notations: documents and error texts use
`PreFilter`, a configuration file `preFilter`, and upstream's build errors `PreFilterPlugin`. `BUILD_ORDER` is
the order in which a profile's points are checked; it decides which of two errors is reported. The protocols
in `plugin_api.py` describe what each point may do. NumPy is not imported here, because the configuration is
read without it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

PLUGIN_ENTRY_POINTS: Final = "bayplan.plugins"
"""The entry-point group of packages with plugins."""


class Point(StrEnum):
    """An extension point, in the order in which they are called."""

    PRE_ENQUEUE = "PreEnqueue"
    QUEUE_SORT = "QueueSort"
    PRE_FILTER = "PreFilter"
    FILTER = "Filter"
    POST_FILTER = "PostFilter"
    PRE_SCORE = "PreScore"
    SCORE = "Score"
    RESERVE = "Reserve"
    PERMIT = "Permit"
    PRE_BIND = "PreBind"
    BIND = "Bind"
    POST_BIND = "PostBind"
    PLACEMENT_GENERATE = "PlacementGenerate"
    PLACEMENT_SCORE = "PlacementScore"
    POD_GROUP_POST_FILTER = "PodGroupPostFilter"

    @property
    def config_key(self) -> str:
        """The key of this point under a profile's `plugins`: `preFilter`."""
        return self.value[0].lower() + self.value[1:]

    @property
    def type_word(self) -> str:
        """The term of build errors for a plugin of this point: `PreFilterPlugin`."""
        return f"{self.value}Plugin"


BUILD_ORDER = (
    Point.PRE_FILTER,
    Point.FILTER,
    Point.POST_FILTER,
    Point.RESERVE,
    Point.PRE_SCORE,
    Point.SCORE,
    Point.PRE_BIND,
    Point.BIND,
    Point.POST_BIND,
    Point.PERMIT,
    Point.PRE_ENQUEUE,
    Point.QUEUE_SORT,
    Point.PLACEMENT_GENERATE,
    Point.PLACEMENT_SCORE,
    Point.POD_GROUP_POST_FILTER,
)
"""The order in which the plugin lists of a profile are built, and so the order of their errors."""


class TieBreak(StrEnum):
    """A rule for nodes with equal total scores. The values are those of the configuration file."""

    KUBE_SCHEDULER = "KubeScheduler"
    """The node that kube-scheduler's heap returns: neither the first nor a random one."""
    FIRST_NODE = "FirstNode"
    """The first in the node list."""
