"""Simulated kubelets: nodes become Ready and pods Running, but no container is started.

    await kubelets.run(api)                       # until cancelled
    for node in kubelets.make_nodes(12): api.create(NODES, node)
    kubelets.down(api, "n03"); kubelets.up(api, "n03")

They work on the embedded server's store in this process. `pods.py` simulates pods, `nodes.py` nodes and their
failures. They run in the loop of `controllers/`, with one heap of due times for everything: what does not
change costs nothing.
"""

from __future__ import annotations

from bayplan.embedded.controllers import running
from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.kubelets.nodes import DOWN, NodeKubelets, down, is_down, make_nodes, up
from bayplan.embedded.kubelets.pods import (
    DEFAULT_JOB_RUN_SECONDS,
    DEFAULT_STOP_SECONDS,
    EXIT_CODE,
    RUN_SECONDS,
    STOP_SECONDS,
    PodKubelets,
)
from bayplan.embedded.server.objects import ObjectAPI

__all__ = [
    "DEFAULT_JOB_RUN_SECONDS",
    "DEFAULT_STOP_SECONDS",
    "DOWN",
    "EXIT_CODE",
    "RUN_SECONDS",
    "STOP_SECONDS",
    "down",
    "is_down",
    "make_nodes",
    "run",
    "up",
]


async def run(
    api: ObjectAPI,
    *,
    stop_seconds: float = DEFAULT_STOP_SECONDS,
    job_run_seconds: float = DEFAULT_JOB_RUN_SECONDS,
) -> None:
    """Simulates the kubelets of all nodes in the store, until cancelled.

    Containers stop `stop_seconds` after SIGTERM, and those of Jobs end after `job_run_seconds`, unless their
    pod has its own setting.
    """
    cluster = Cluster(api)
    await running.run(cluster, [NodeKubelets(cluster), PodKubelets(cluster, stop_seconds, job_run_seconds)])
