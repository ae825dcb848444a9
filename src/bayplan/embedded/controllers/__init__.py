"""The controllers of the embedded control plane: they reconcile the cluster with its objects.

    await controllers.run_all(api)      # until cancelled

Small and real: they write what Kubernetes' own controllers write, so that `kubectl get`, `describe`,
`rollout` and `wait` show the usual output. `controller.py` says what a controller is: `watches` maps changes
to keys, and `reconcile` processes one key. `running.py` is the loop, `cluster.py` their view of the store.
docs/embedded.md lists what is not implemented.

They work on the store in this process, through `server/objects.py`, and do not depend on the scheduler.
"""

from __future__ import annotations

from bayplan.embedded.controllers import running
from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.controllers.controller import Controller
from bayplan.embedded.controllers.cron_job import CronJobs
from bayplan.embedded.controllers.daemon_set import DaemonSets
from bayplan.embedded.controllers.deployment import Deployments
from bayplan.embedded.controllers.device_taint_eviction import DeviceTaintEviction
from bayplan.embedded.controllers.disruption_budget import DisruptionBudgets
from bayplan.embedded.controllers.garbage_collector import EventExpiry, GarbageCollector
from bayplan.embedded.controllers.job import Jobs
from bayplan.embedded.controllers.namespaces import NamespaceDefaults, Namespaces, ResourceQuotas
from bayplan.embedded.controllers.node_lifecycle import NodeLifecycle, OrphanedPods, TaintEviction
from bayplan.embedded.controllers.pod_groups import PodGroupProtection
from bayplan.embedded.controllers.replica_set import ReplicaSets, ReplicationControllers
from bayplan.embedded.controllers.resource_claims import (
    GroupResourceClaims,
    PodResourceClaims,
    ResourceClaims,
)
from bayplan.embedded.controllers.services import EndpointSlices
from bayplan.embedded.controllers.stateful_set import StatefulSets
from bayplan.embedded.controllers.volcano import VolcanoJobs, VolcanoQueues
from bayplan.embedded.controllers.volumes import (
    ClaimProtection,
    EphemeralClaims,
    VolumeBinder,
    VolumeReclaimer,
)
from bayplan.embedded.server.objects import ObjectAPI

__all__ = ["ALL", "run_all"]

ALL: tuple[type[Controller], ...] = (
    Deployments,
    ReplicaSets,
    ReplicationControllers,
    StatefulSets,
    DaemonSets,
    Jobs,
    CronJobs,
    VolcanoJobs,
    VolcanoQueues,
    EndpointSlices,
    VolumeBinder,
    VolumeReclaimer,
    EphemeralClaims,
    ClaimProtection,
    PodGroupProtection,
    GroupResourceClaims,
    PodResourceClaims,
    ResourceClaims,
    DisruptionBudgets,
    NodeLifecycle,
    TaintEviction,
    DeviceTaintEviction,
    OrphanedPods,
    GarbageCollector,
    Namespaces,
    NamespaceDefaults,
    ResourceQuotas,
    EventExpiry,
)


async def run_all(api: ObjectAPI) -> None:
    """Runs all controllers on a store, until cancelled."""
    cluster = Cluster(api)
    await running.run(cluster, [controller(cluster) for controller in ALL])
