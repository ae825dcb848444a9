"""StatefulSets: pods with a stable ordinal, name and volumes.

With OrderedReady, the default, one pod changes at a time: a pod is created when all before it are ready, pods
are deleted from the last to the first, and updated in that order. With Parallel no pod waits for others.
Names of pods and claims contain the ordinal, so a recreated pod has the same ones.

https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import Cluster, available_in, is_ready
from bayplan.embedded.controllers.controller import counts, write_status
from bayplan.embedded.controllers.pod_owner import (
    REVISION_HASH,
    PodOwner,
    Revisions,
    hash_in,
    pod_from,
    pods_per_call,
    template_in,
)
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from bayplan.embedded.server.statuses import StatusError


class _Plan(NamedTuple):
    """The input of one reconcile."""

    content: Content
    current: Content
    update: Content
    is_ordered: bool

    @property
    def ordinals(self) -> range:
        spec = self.content["spec"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        return range(start, start + spec["replicas"])

    def revision_for(self, ordinal: int) -> Content:
        """The revision of a new pod: the old one below the partition, as long as there is one."""
        return self.current if ordinal < self.partition else self.update

    @property
    def partition(self) -> int:
        strategy = self.content["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return 0
        return self.ordinals.start + ((strategy.get("rollingUpdate") or {}).get("partition") or 0)


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
        is_ordered = content["spec"].get("podManagementPolicy") != "Parallel"
        plan = _Plan(content, current, update, is_ordered)
        again = self._step(plan)
        self.cluster.sync()
        self._write_status(plan)
        return again

    # One step

    def _step(self, plan: _Plan) -> float | None:
        """Does what may be done now. Returns the seconds until the next ready pod counts as available."""
        pods = self._pods(plan)
        now, min_ready = self.api.time(), plan.content["spec"].get("minReadySeconds", 0)
        left = pods_per_call(plan.content["spec"]["template"])
        for ordinal in plan.ordinals:
            if not left:
                return 0.0
            pod = pods.get(ordinal)
            if pod is not None and pod.is_finished and not pod.is_terminating:
                self._delete(plan, pod)
                left -= 1
                if plan.is_ordered:
                    return None
                continue
            if pod is None:
                self._create(plan, ordinal)
                left -= 1
                if plan.is_ordered:
                    return None
                continue
            if plan.is_ordered and (pod.is_terminating or not is_ready(pod)):
                return None
            if plan.is_ordered and (delay := available_in(pod, min_ready, now)):
                return delay
        surplus = sorted((ordinal for ordinal in pods if ordinal not in plan.ordinals), reverse=True)
        for ordinal in surplus:
            if not left:
                return 0.0
            if not pods[ordinal].is_terminating:
                self._delete(plan, pods[ordinal])
                left -= 1
            if plan.is_ordered:
                return None
        return self._roll(plan, pods)

    def _roll(self, plan: _Plan, pods: dict[int, Pod]) -> float | None:
        """Replaces the last pod of another revision; the next one only when that is available."""
        if plan.content["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return None
        wanted = hash_in(plan.update)
        now, min_ready = self.api.time(), plan.content["spec"].get("minReadySeconds", 0)
        for ordinal in reversed(plan.ordinals):
            pod = pods.get(ordinal)
            if ordinal < plan.partition or pod is None:
                return None
            if pod.labels.get(REVISION_HASH) != wanted and not pod.is_terminating:
                self._delete(plan, pod)
                return None
            delay = None if pod.is_terminating else available_in(pod, min_ready, now)
            if delay != 0:
                return delay
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
        revision = plan.revision_for(ordinal)
        pod = stateful_pod(content, template_in(revision), hash_in(revision), ordinal)
        pod_name = pod["metadata"]["name"]
        try:
            for claim in claims_of(content, ordinal):
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
        current, update = hash_in(plan.current), hash_in(plan.update)
        everyone = list(self._pods(plan).values())
        alive = [pod for pod in everyone if not pod.is_terminating]
        hashes = [pod.labels.get(REVISION_HASH) for pod in alive]
        ready = sum(is_ready(pod) for pod in everyone)
        replicas = content["spec"]["replicas"]
        current_name = plan.current["metadata"]["name"]
        if current != update and hashes == [update] * replicas and ready == len(everyone) == replicas:
            current, current_name = update, plan.update["metadata"]["name"]
        status = {
            "replicas": len(everyone),
            "availableReplicas": sum(available_in(pod, min_ready, now) == 0 for pod in alive),
            **counts(
                readyReplicas=ready,
                currentReplicas=hashes.count(current),
                updatedReplicas=hashes.count(update),
            ),
            "currentRevision": current_name,
            "updateRevision": plan.update["metadata"]["name"],
            "observedGeneration": content["metadata"]["generation"],
            "collisionCount": 0,
        }
        write_status(self.api, STATEFUL_SETS, content, status)
        self._revisions.forget_old(content, {current, update, *(digest or "" for digest in hashes)})


POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


def ordinal_of(pod_name: str, set_name: str) -> int | None:
    """The number in `web-3`, if it is a pod of `web`."""
    prefix, _, number = pod_name.rpartition("-")
    return int(number) if prefix == set_name and number.isdecimal() else None


def stateful_pod(content: Content, template: Content, digest: str, ordinal: int) -> Content:
    name = f"{content['metadata']['name']}-{ordinal}"
    labels = {REVISION_HASH: digest, POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}
    pod = pod_from(template, content, name=name, labels=labels)
    spec = pod["spec"]
    spec["hostname"] = name
    if content["spec"].get("serviceName"):
        spec["subdomain"] = content["spec"]["serviceName"]
    volumes = {
        claim["metadata"]["name"]: claim_name(claim, content, ordinal)
        for claim in content["spec"].get("volumeClaimTemplates") or ()
    }
    if volumes:
        others = [each for each in spec.get("volumes") or () if each["name"] not in volumes]
        ours = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for volume, claim in volumes.items()
        ]
        spec["volumes"] = others + ours
    return pod


def claim_name(claim: Content, content: Content, ordinal: int) -> str:
    return f"{claim['metadata']['name']}-{content['metadata']['name']}-{ordinal}"


def claims_of(content: Content, ordinal: int) -> list[Content]:
    """The claims of a pod, with the labels of the set."""
    labels = (content["spec"].get("selector") or {}).get("matchLabels") or {}
    return [
        {
            "metadata": {
                "name": claim_name(claim, content, ordinal),
                "labels": {**(claim["metadata"].get("labels") or {}), **labels},
                **({"annotations": notes} if (notes := claim["metadata"].get("annotations")) else {}),
            },
            "spec": dict(claim["spec"]),
        }
        for claim in content["spec"].get("volumeClaimTemplates") or ()
    ]
