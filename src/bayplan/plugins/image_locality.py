"""ImageLocality: prefers nodes that already have the pod's images.

The more bytes of its images a node has, the higher its score. An image that few nodes have counts less, so
that a new image does not attract all pods to the first node that pulled it.

https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bayplan.plugin import (
    MAX_SCORE,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    Plugin,
    Pod,
    ScorePlugin,
)
from bayplan.plugin.objects import pod_images

MIB: Final = 1024 * 1024
MIN_BYTES: Final = 23 * MIB
"""Less than this gives no preference."""
MAX_BYTES: Final = 1000 * MIB
"""More than this, for each container, makes no difference."""


class ImageLocality(Plugin, ScorePlugin):
    """Prefers nodes that have the pod's images."""

    depends_on = Dependencies.of("images", images=True)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        here = np.zeros(len(nodes), dtype=np.int64)
        cluster = nodes.cluster
        images = pod_images(pod)
        counted = len(pod.spec.init_containers) + len(pod.spec.containers)
        max_bytes = MAX_BYTES * (len(images) if self.release.image_volumes_raise_limit else counted)
        for name in images:
            image = cluster.nodes.images.get(name)
            if image is not None:
                share = len(image.rows) / cluster.node_count
                here[nodes.positions_of(image.rows)] += int(min(image.size_bytes * share, max_bytes))
        scores: IntColumn = (
            MAX_SCORE * (here.clip(MIN_BYTES, max_bytes) - MIN_BYTES) // (max_bytes - MIN_BYTES)
        )
        return scores
