"""What the scheduler decides, in a line each: the pod, where it goes, and why in a few words.

The words are made from the decision alone, so that telling costs next to nothing however many pods there are.
`bayplan explain` has the whole story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bayplan.scheduler.cycle import Decision

MOST_KEPT: Final = 100
NOWHERE: Final = "–"
MOST_NAMED: Final = 3

_AVAILABLE: Final = "nodes are available: "


@dataclass(frozen=True, slots=True)
class Line:
    """One decision. `node` is empty where there is none."""

    pod: str
    node: str
    why: str

    @property
    def fits(self) -> bool:
        return bool(self.node)


class Decisions:
    """The latest decisions. `tell` is handed each of them."""

    def __init__(self, tell: Callable[[Line], None] | None = None) -> None:
        self.latest: deque[Line] = deque(maxlen=MOST_KEPT)
        self.placed = 0
        self.refused = 0
        self._tell = tell

    def decided(self, decision: Decision) -> None:
        line = in_words(decision)
        self.latest.append(line)
        if line.fits:
            self.placed += 1
        else:
            self.refused += 1
        if self._tell is not None:
            self._tell(line)


def in_words(decision: Decision) -> Line:
    pod, found = decision.pod, decision.found
    if found is not None:
        if found.evaluated == 1 and pod.status.nominated_node_name == found.node_name:
            why = "room was made for it"
        elif found.feasible == 1:
            why = "the only node that fits"
        else:
            why = f"best of {found.feasible:,} that fit"
        return Line(pod.key, found.node_name, why)
    after = decision.post_filter
    if after is not None and after.eviction is not None:
        names = [victim.key for victim in after.eviction.victims]
        more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        node = after.eviction.node_name
        return Line(pod.key, "", f"evicts {', '.join(names[:MOST_NAMED])}{more} from {node}")
    _, _, reasons = decision.message.partition(_AVAILABLE)
    return Line(pod.key, "", reasons or decision.message)
