"""StatefulSets: pods with a stable ordinal, name and volumes.

`stateful_steps` of `bayplan.controllers.workloads` decides which pod is next; this controller creates and
deletes it, with its claims, and writes the status. Names of pods and claims contain the ordinal, so a
recreated pod has the same ones.

https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.pods import REVISION_HASH, available_in, is_ready
from bayplan.controllers.workloads import (
    ordinal_of,
    stateful_claims,
    stateful_partition,
    stateful_pod,
    stateful_steps,
)
from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.controllers.controller import counts, write_status
from bayplan.embedded.controllers.pod_owner import PodOwner, Revisions, pods_per_call, template_in
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from bayplan.embedded.server.statuses import StatusError


class _Plan(NamedTuple):
    """The input of one reconcile."""

    content: Content
    current: Content
    update: Content


class StatefulSets(PodOwner):
    """Reconciles StatefulSets."""

    name: ClassVar = "statefulset-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, STATEFUL_SETS)
        self._revisions = Revisions(cluster)

    def reconcile(self, key: str) -> float | None:
        content = self.cluster.find(STATEFUL_SETS, key)
        if content is None or "deletionTimestamp" in content["metadata"]:
            return None
        update = self._revisions.current(content)
        known = (content.get("status") or {}).get("currentRevision", "")
        current = self._revisions.named(content, known) or update
        plan = _Plan(content, current, update)
        again = self._step(plan)
        self.cluster.sync()
        self._write_status(plan)
        return again

    def _step(self, plan: _Plan) -> float | None:
        """Does what may be done now, some per call. Returns the seconds until the next step may be due."""
        spec = plan.content["spec"]
        left = pods_per_call(spec["template"])
        for step in stateful_steps(spec, self._pods(plan), name_in(plan.update), self.api.time()):
            if step.wait is not None:
                return step.wait
            if not left:
                return 0.0
            left -= 1
            if step.delete is not None:
                self._delete(plan, step.delete)
            else:
                assert isinstance(step.create, int)
                self._create(plan, step.create)
        return None

    def _pods(self, plan: _Plan) -> dict[int, Pod]:
        found = {}
        for pod in self.pods_of(plan.content).pods.values():
            ordinal = ordinal_of(pod.name, plan.content["metadata"]["name"])
            if ordinal is not None:
                found[ordinal] = pod
        return found

    def _create(self, plan: _Plan, ordinal: int) -> None:
        content = plan.content
        name, namespace = content["metadata"]["name"], content["metadata"]["namespace"]
        # Below the partition a new pod has the old revision, as long as there is one.
        revision = plan.current if ordinal < stateful_partition(content["spec"]) else plan.update
        pod = stateful_pod(content, template_in(revision), name_in(revision), ordinal)
        pod_name = pod["metadata"]["name"]
        try:
            for claim in stateful_claims(content, ordinal):
                claim_name = claim["metadata"]["name"]
                if self.api.store.find(PERSISTENT_VOLUME_CLAIMS, f"{namespace}/{claim_name}") is None:
                    self.api.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace)
                    message = f"create Claim {claim_name} Pod {pod_name} in StatefulSet {name} success"
                    self.events.normal(content, "SuccessfulCreate", message)
            self.api.create(PODS, pod, namespace)
        except StatusError as error:
            message = f"create Pod {pod_name} in StatefulSet {name} failed error: {error}"
            self.events.warning(content, "FailedCreate", message)
            raise
        message = f"create Pod {pod_name} in StatefulSet {name} successful"
        self.events.normal(content, "SuccessfulCreate", message)

    def _delete(self, plan: _Plan, pod: Pod) -> None:
        name = plan.content["metadata"]["name"]
        self.api.delete(PODS, pod.name, pod.namespace)
        message = f"delete Pod {pod.name} in StatefulSet {name} successful"
        self.events.normal(plan.content, "SuccessfulDelete", message)

    # Status

    def _write_status(self, plan: _Plan) -> None:
        content = plan.content
        now, min_ready = self.api.time(), content["spec"].get("minReadySeconds", 0)
        current, update = name_in(plan.current), name_in(plan.update)
        everyone = list(self._pods(plan).values())
        alive = [pod for pod in everyone if not pod.is_terminating]
        revisions = [pod.labels.get(REVISION_HASH, "") for pod in alive]
        ready = sum(is_ready(pod) for pod in everyone)
        replicas = content["spec"]["replicas"]
        if current != update and revisions == [update] * replicas and ready == len(everyone) == replicas:
            current = update
        status = {
            "replicas": len(everyone),
            "availableReplicas": sum(available_in(pod, min_ready, now) == 0 for pod in alive),
            **counts(
                readyReplicas=ready,
                currentReplicas=revisions.count(current),
                updatedReplicas=revisions.count(update),
            ),
            "currentRevision": current,
            "updateRevision": update,
            "observedGeneration": content["metadata"]["generation"],
            "collisionCount": 0,
        }
        write_status(self.api, STATEFUL_SETS, content, status)
        self._revisions.forget_old(content, {one.rpartition("-")[2] for one in (current, update, *revisions)})


def name_in(revision: Content) -> str:
    """The name of a revision: the label of its pods, where those of a DaemonSet have only the hash."""
    name: str = revision["metadata"]["name"]
    return name
