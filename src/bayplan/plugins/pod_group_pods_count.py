"""PodGroupPodsCount: of several domains, a group prefers the one where most of its members fit."""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.plugin import MAX_SCORE, Plugin, Pod
from bayplan.plugin.groups import Group, NodePlacement, PlacementScorePlugin


class PodGroupPodsCount(Plugin, PlacementScorePlugin):
    """Scores by the number of members that would run."""

    def score_placements(
        self,
        group: Group,
        scheduled: Sequence[Pod],
        placements: Sequence[NodePlacement],
        placed: Sequence[Sequence[Pod]],
    ) -> Sequence[int]:
        counts = [len(scheduled) + len(pods) for pods in placed]
        highest = max(counts, default=0)
        return [count * MAX_SCORE // highest if highest else 0 for count in counts]
