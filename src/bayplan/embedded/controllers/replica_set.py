"""ReplicaSets and ReplicationControllers: `replicas` identical pods.

If there are too many, pods are deleted in the order of Kubernetes: first those that are not assigned or not
ready, then those on nodes with other pods of the set, then the youngest.

https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from bayplan.api.meta import Content
from bayplan.controllers.pods import available_in, deletion_order, pod_from
from bayplan.embedded.controllers.cluster import Cluster, OwnedPods
from bayplan.embedded.controllers.controller import (
    counts,
    earliest,
    with_condition,
    without_condition,
    write_status,
)
from bayplan.embedded.controllers.pod_owner import PodOwner, pods_per_call
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.statuses import StatusError

_MAX_DELETED: Final = 100
"""Pods deleted per call; the rest follow in the next one, so that other tasks run."""


class ReplicaSets(PodOwner):
    """Reconciles ReplicaSets; with another resource, ReplicationControllers."""

    name: ClassVar = "replicaset-controller"

    def __init__(self, cluster: Cluster, resource: Resource = kinds.REPLICA_SETS) -> None:
        super().__init__(cluster, resource)

    def reconcile(self, key: str) -> float | None:
        content = self.cluster.find(self.resource, key)
        if content is None:
            return None
        pods = self.pods_of(content)
        again = None
        problem: StatusError | None = None
        if "deletionTimestamp" not in content["metadata"]:
            missing = content["spec"]["replicas"] - pods.active
            try:
                self._scale(content, pods, missing)
            except StatusError as error:
                problem = error
            if missing > pods_per_call(content["spec"]["template"]) or -missing > _MAX_DELETED:
                again = 0.0
            self.cluster.sync()
            pods = self.cluster.pods.owned_by(content["metadata"]["uid"])
        again = earliest(again, self._write_status(content, pods, problem))
        if problem is not None:
            raise problem
        return again

    def _scale(self, content: Content, pods: OwnedPods, missing: int) -> None:
        for _ in range(min(missing, pods_per_call(content["spec"]["template"]))):
            self.create_pod(content, pod_from(content["spec"]["template"], content))
        if missing < 0:
            for pod in deletion_order(pods.all_active())[: min(-missing, _MAX_DELETED)]:
                self.delete_pod(content, pod)

    def _write_status(self, content: Content, pods: OwnedPods, problem: StatusError | None) -> float | None:
        """Returns the seconds until the next ready pod counts as available."""
        meta, spec, old = content["metadata"], content["spec"], content.get("status") or {}
        available, again = self._available(pods, spec.get("minReadySeconds", 0))
        conditions = old.get("conditions")
        if problem is None:
            conditions = without_condition(conditions, "ReplicaFailure")
        else:
            conditions = with_condition(
                conditions, "ReplicaFailure", "True", "FailedCreate", str(problem), self.api.now()
            )
        status: dict[str, Any] = {
            "replicas": pods.active,
            # Pods are created from the template, so they have its labels; adopted ones are assumed to have
            # them.
            **counts(fullyLabeledReplicas=pods.active, readyReplicas=pods.ready, availableReplicas=available),
            "observedGeneration": meta["generation"],
            "conditions": conditions,
        }
        write_status(self.api, self.resource, content, status)
        return again

    def _available(self, pods: OwnedPods, min_ready_seconds: int) -> tuple[int, float | None]:
        if not min_ready_seconds:
            return pods.ready, None
        now = self.api.time()
        delays = [available_in(pod, min_ready_seconds, now) for pod in pods.all_active()]
        waiting = [delay for delay in delays if delay is not None and delay > 0]
        return sum(delay == 0 for delay in delays), min(waiting, default=None)


class ReplicationControllers(ReplicaSets):
    """The same for ReplicationControllers, whose selector is a plain map."""

    name: ClassVar = "replication-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, kinds.REPLICATION_CONTROLLERS)
