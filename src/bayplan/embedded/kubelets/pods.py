"""Pods on simulated kubelets: a bound pod starts, runs, ends, and is stopped when deleted.

The next step of a pod depends only on its status and the clock, so there is no task and no timer for a pod:
a reconcile does what is due and returns when the next step is. The pods of Jobs end after some seconds; other
pods without `bayplan/run-seconds` run forever and cost nothing.

| annotation | meaning |
|---|---|
| `bayplan/run-seconds` | how long its containers run; without it until it is deleted, in pods of Jobs 5 s |
| `bayplan/exit-code` | how they end: 0 (the default) is success |
| `bayplan/stop-seconds` | how long they take to stop when the pod is deleted; 1 by default, 0 for `pause` |

The restart policy decides whether they are started again. The first restart is immediate, the following ones
wait 10 s, 20 s and so on, up to 5 minutes, as with a real kubelet.

A deleted pod stops soon after SIGTERM, like a well-behaved program; one that takes longer than its grace
period is killed. The preStop hook `sleep` takes its time; other hooks take none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple

from bayplan.api.devices import ResourceClaim
from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.api.pod import Pod, conflicts, host_ports
from bayplan.controllers.claims import all_claims_of, owner_problem, uses_claims
from bayplan.controllers.pods import is_ready
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.kubelets import pod_status, resizing
from bayplan.embedded.kubelets.addresses import Addresses
from bayplan.embedded.kubelets.nodes import is_down
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import CONFIG_MAPS, JOBS, NODES, PODS, RESOURCE_CLAIMS, SECRETS, Resource
from bayplan.errors import NotFoundError

RUN_SECONDS: Final = "bayplan/run-seconds"
EXIT_CODE: Final = "bayplan/exit-code"
STOP_SECONDS: Final = "bayplan/stop-seconds"
_PAUSE: Final = re.compile(r"(.*/)?pause([:@].*)?")
DEFAULT_STOP_SECONDS: Final = 1.0
DEFAULT_JOB_RUN_SECONDS: Final = 5.0

_NO_PORTS: Final = (
    "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
)
_TERMINATED: Final = 143
_KILLED: Final = 137
_PREPARE_AGAIN_SECONDS: Final = 60.0
"""Delay until a kubelet retries to prepare the devices of a pod, if nothing changes before."""
_FIRST_BACKOFF: Final = 10.0
_MAX_BACKOFF: Final = 300.0


class PodKubelets(Controller):
    """Reconciles the pods of all kubelets."""

    name: ClassVar = "kubelet"

    def __init__(
        self,
        cluster: Cluster,
        stop_seconds: float = DEFAULT_STOP_SECONDS,
        job_run_seconds: float = DEFAULT_JOB_RUN_SECONDS,
    ) -> None:
        super().__init__(cluster)
        self._default_stop_seconds = stop_seconds
        self._job_run_seconds = job_run_seconds
        self._addresses = Addresses(cluster)
        self._held: dict[str, set[str]] = {}
        """Keys of pods by namespace that need a ConfigMap or Secret which is not there."""
        self._deferred: dict[str, set[str]] = {}
        """Keys of pods by node that wait for room, to be resized."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {
            PODS: self._pod,
            NODES: self._node,
            RESOURCE_CLAIMS: self._claim,
            CONFIG_MAPS: self._configuration,
            SECRETS: self._configuration,
        }

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            assert change.before is not None
            before = change.before.record(Pod)
            self._addresses.release(before)
            return self._deferred.pop(before.spec.node_name, ())
        pod = change.after.record(Pod)
        keys = (change.key,) if pod.spec.node_name and not self._just_runs(pod) else ()
        if self._deferred and (pod.is_finished or pod.status.container_statuses):
            # It may have become smaller, or have ended.
            return (*keys, *self._deferred.pop(pod.spec.node_name, ()))
        return keys

    def _node(self, change: ObjectChange) -> Iterable[str]:
        """A node that is created or recovers has pods to start and to stop."""
        was_up = change.before is not None and not is_down(change.before)
        if change.after is None or was_up or is_down(change.after):
            return ()
        return [pod.key for pod in self.cluster.pods.on_node(change.key)]

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        """Pods may have waited for a claim to be reserved for them."""
        if change.after is None:
            return ()
        consumers = change.after.record(ResourceClaim).status.reserved_for
        keys = (change.after.key.rpartition("/")[0] + f"/{each.name}" for each in consumers)
        return [key for key in keys if (pod := self.cluster.pods.get(key)) and pod.status.phase == "Pending"]

    def _configuration(self, change: ObjectChange) -> Iterable[str]:
        """Pods may have waited for a new ConfigMap or Secret."""
        return self._held.pop(change.key.partition("/")[0], ()) if change.before is None else ()

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(PODS, key)
        if document is None:
            return None
        pod = document.record(Pod)
        node = self.api.store.find(NODES, pod.spec.node_name) if pod.spec.node_name else None
        if node is None or is_down(node):
            return None
        if pod.is_terminating:
            return self._stop(document, pod)
        match pod.status.phase:
            case "Pending":
                return self._start(document, pod, node)
            case "Running":
                if resizing.is_resized(pod):
                    document = self._resize(document, pod, node)
                return self._run(document, document.record(Pod))
        return None

    def _resize(self, document: Document, pod: Pod, node: Document) -> Document:
        """Gives the containers what the pod asks for, or says why not. Returns the pod as it is then."""
        content = document.parse()
        others = [
            other
            for each in self.cluster.pods.on_node(pod.spec.node_name)
            if each.key != pod.key and not each.is_finished
            if (other := self.cluster.find(PODS, each.key)) is not None
        ]
        why = resizing.problem(content, node.parse(), others)
        if why:
            self._deferred.setdefault(pod.spec.node_name, set()).add(pod.key)
            status = resizing.deferred(content, why, self.api.now())
        else:
            status = resizing.granted(content)
        if status == content["status"]:
            return document
        self._write(document, content, status)
        if why:
            self.events.warning(content, "ResizeDeferred", why)
        written = self.api.store.find(PODS, document.key)
        assert written is not None, "nothing deletes it meanwhile"
        return written

    def _start(self, document: Document, pod: Pod, node: Document) -> float | None:
        content = document.parse()
        if self._lacks_ports(pod):
            # kubelet/lifecycle/predicate.go: a scheduler would not have chosen the node.
            status = {
                "phase": "Failed",
                "reason": "NodePorts",
                "message": _NO_PORTS,
                "startTime": self.api.now(),
            }
            self._write(document, content, {**(content.get("status") or {}), **status})
            return None
        if uses_claims(pod) and (problem := self._claim_problem(pod)):
            message = f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}"
            self.events.warning(content, "FailedPrepareDynamicResources", message)
            return _PREPARE_AGAIN_SECONDS
        if (missing := self._missing_configuration(content)) is not None:
            self._hold(document, content, missing)
            return None
        host_ip, pod_ip = self._addresses.give(pod, node)
        content["status"] = pod_status.running(content, self.api.now(), pod_ip, host_ip)
        self.api.write(PODS, document, content)
        for problem in _problems(pod):
            self.events.warning(content, "InvalidAnnotation", problem)
        return self._run_seconds(pod)

    def _lacks_ports(self, pod: Pod) -> bool:
        """Whether another pod of the node has one of its host ports."""
        wanted = host_ports(pod)
        if not wanted:
            return False
        others = self.cluster.pods.on_node(pod.spec.node_name)
        running = [other for other in others if other.uid != pod.uid and other.status.phase == "Running"]
        return conflicts(wanted, {port for other in running for port in host_ports(other)})

    def _missing_configuration(self, content: Content) -> Reference | None:
        """The first ConfigMap or Secret that the pod needs and that does not exist."""
        namespace = content["metadata"]["namespace"]
        for reference in configuration_references(content["spec"]):
            if self.api.store.find(reference.resource, f"{namespace}/{reference.name}") is None:
                return reference
        return None

    def _hold(self, document: Document, content: Content, missing: Reference) -> None:
        self._held.setdefault(content["metadata"]["namespace"], set()).add(document.key)
        problem = f'{missing.resource.singular} "{missing.name}" not found'
        if missing.volume:
            message = f'MountVolume.SetUp failed for volume "{missing.volume}" : {problem}'
            reason = "ContainerCreating"
            self.events.warning(content, "FailedMount", message)
        else:
            reason = "CreateContainerConfigError"
            self.events.warning(content, "Failed", f"Error: {problem}")
        status = pod_status.held(content, self.api.now(), reason, problem)
        if status != content.get("status"):
            self._write(document, content, status)

    def _claim_problem(self, pod: Pod) -> str:
        """Why the pod's devices cannot be prepared; empty if they can."""
        for pod_claim in all_claims_of(pod):
            name = pod_claim.claim_name
            if not name:
                return f'pod "{pod.key}": ResourceClaim not created yet'
            document = self.api.store.find(RESOURCE_CLAIMS, f"{pod.namespace}/{name}")
            if document is None:
                return f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
            claim = document.record(ResourceClaim)
            if pod_claim.template and (problem := owner_problem(pod, claim)):
                return problem
            if not claim.is_reserved_for_pod(pod):
                return f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({claim.uid})"
            if claim.status.allocation is None:
                return f"ResourceClaim {name}: not allocated"
        return ""

    def _run(self, document: Document, pod: Pod) -> float | None:
        seconds = self._run_seconds(pod)
        if seconds is None:
            if not is_ready(pod):
                self._make_ready(document)
            return None
        content = document.parse()
        status = content["status"]
        if pod_status.is_waiting(status):
            return self._restart_when_due(document, content, pod)
        now = self.api.time()
        left = _seconds(pod_status.started_at(status), now) + seconds - now
        if left > 0:
            if not is_ready(pod):
                self._make_ready(document)
            return left
        return self._end(document, content, pod)

    def _make_ready(self, document: Document) -> None:
        """Sets Ready again after the node recovered: the node lifecycle controller had set it to False."""
        content = document.parse()
        if pod_status.is_waiting(content["status"]):
            return
        content["status"] = pod_status.with_readiness(content["status"], ready=True, now=self.api.now())
        self.api.write(PODS, document, content)

    def _end(self, document: Document, content: Content, pod: Pod) -> float | None:
        status, exit_code = content["status"], _exit_code(pod)
        policy = content["spec"].get("restartPolicy", "Always")
        now = self.api.now()
        if policy == "Never" or (policy == "OnFailure" and exit_code == 0):
            self._write(document, content, pod_status.ended(status, exit_code, now))
            return None
        delay = _backoff(pod_status.restarts(status))
        if delay:
            self._write(document, content, pod_status.backing_off(status, exit_code, now, delay))
            return delay
        self._write(document, content, pod_status.restarted(status, exit_code, now, now))
        return self._run_seconds(pod)

    def _restart_when_due(self, document: Document, content: Content, pod: Pod) -> float | None:
        status, now = content["status"], self.api.time()
        finished = pod_status.finished_at(status) or self.api.now()
        left = _seconds(finished, now) + _backoff(pod_status.restarts(status)) - now
        if left > 0:
            return left
        restarted = pod_status.restarted(status, _exit_code(pod), finished, self.api.now())
        self._write(document, content, restarted)
        return self._run_seconds(pod)

    def _write(self, document: Document, content: Content, status: Content) -> None:
        content["status"] = status
        self.api.write(PODS, document, content)

    def _stop(self, document: Document, pod: Pod) -> float | None:
        """Ends a pod when its containers have stopped; at once if it never ran or has ended."""
        content = document.parse()
        grace: float = content["metadata"].get("deletionGracePeriodSeconds", 0)
        seconds = _pre_stop_seconds(content) + self._stop_seconds(pod)
        if pod.status.phase == "Running":
            deletion = pod.metadata.deletion_timestamp
            assert deletion is not None
            signalled = deletion.timestamp() - grace
            left = signalled + min(seconds, grace) - self.api.time()
            if left > 0:
                return left
        if content["metadata"].get("finalizers") and not pod.is_finished:
            # The controllers of its finalizers need its final status before it is deleted.
            exit_code = _TERMINATED if seconds < grace else _KILLED
            self._write(document, content, pod_status.ended(content["status"], exit_code, self.api.now()))
        with suppress(NotFoundError):
            options = DeleteOptions(grace_period_seconds=0, uid=pod.uid)
            self.api.delete(PODS, pod.name, pod.namespace, options)
        return None

    def _just_runs(self, pod: Pod) -> bool:
        """Whether a pod needs no reconcile, now or later; this is the usual state."""
        is_running = pod.status.phase == "Running" and not pod.is_terminating and is_ready(pod)
        return is_running and self._run_seconds(pod) is None and not resizing.is_resized(pod)

    def _run_seconds(self, pod: Pod) -> float | None:
        """How long it runs; None for until it is deleted."""
        text = pod.annotations.get(RUN_SECONDS)
        if text is not None:
            return float(text) if _is_duration(text) else None
        owner = pod.metadata.controller()
        # Volcano's Jobs also have servers that never end, and which of their pods do is not written down.
        is_of_job = owner is not None and (owner.kind, owner.api_version) == ("Job", JOBS.api_version)
        return self._job_run_seconds if is_of_job else None

    def _stop_seconds(self, pod: Pod) -> float:
        text = pod.annotations.get(STOP_SECONDS)
        if text is not None and _is_duration(text):
            return float(text)
        if self._default_stop_seconds == DEFAULT_STOP_SECONDS and _only_pauses(pod):
            return 0.0
        return self._default_stop_seconds


class Reference(NamedTuple):
    """A ConfigMap or Secret that a pod cannot start without."""

    resource: Resource
    name: str
    volume: str = ""
    """The volume that mounts it; empty for variables."""


def configuration_references(spec: Content) -> Iterator[Reference]:
    """The ConfigMaps and Secrets of a pod, without optional ones."""
    for volume in spec.get("volumes") or ():
        projected = (volume.get("projected") or {}).get("sources") or ()
        for source in (volume, *projected):
            for resource, field in ((CONFIG_MAPS, "configMap"), (SECRETS, "secret")):
                part = source.get(field)
                if part is not None and not part.get("optional"):
                    yield Reference(resource, part.get("secretName") or part.get("name", ""), volume["name"])
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        sources = [*(container.get("envFrom") or ())]
        sources += [each.get("valueFrom") or {} for each in container.get("env") or ()]
        for source in sources:
            for field, part in source.items():
                kind = _VARIABLE_SOURCES.get(field)
                if kind is not None and not part.get("optional"):
                    yield Reference(kind, part.get("name", ""))


_VARIABLE_SOURCES: Final = {
    "configMapRef": CONFIG_MAPS,
    "configMapKeyRef": CONFIG_MAPS,
    "secretRef": SECRETS,
    "secretKeyRef": SECRETS,
}


def _only_pauses(pod: Pod) -> bool:
    """Whether it runs nothing but Kubernetes' `pause`, which ends as soon as it gets SIGTERM."""
    return all(_PAUSE.fullmatch(container.image) for container in pod.spec.containers)


def _pre_stop_seconds(content: Content) -> float:
    """How long its containers sleep before SIGTERM (`lifecycle.preStop.sleep`)."""
    hooks = ((each.get("lifecycle") or {}).get("preStop") or {} for each in content["spec"]["containers"])
    return max(((hook.get("sleep") or {}).get("seconds", 0) for hook in hooks), default=0)


def _exit_code(pod: Pod) -> int:
    text = pod.annotations.get(EXIT_CODE, "0")
    return int(text) if _is_exit_code(text) else 0


def _problems(pod: Pod) -> list[str]:
    """Problems of the annotations for the kubelet, and what it does instead."""
    found = []
    exit_code = pod.annotations.get(EXIT_CODE)
    instead = {RUN_SECONDS: "the pod runs until it is deleted", STOP_SECONDS: "it stops as other pods do"}
    for name, what in instead.items():
        seconds = pod.annotations.get(name)
        if seconds is not None and not _is_duration(seconds):
            found.append(
                f'metadata.annotations[{name}]: "{seconds}" is not a number of seconds such as "30"; {what}'
            )
    if exit_code is not None and not _is_exit_code(exit_code):
        found.append(
            f'metadata.annotations[{EXIT_CODE}]: "{exit_code}" is not a number from 0 to 255; 0 is used'
        )
    return found


def _is_duration(text: str) -> bool:
    try:
        seconds = float(text)
    except ValueError:
        return False
    return math.isfinite(seconds) and seconds >= 0


def _is_exit_code(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 3 and int(text) <= 255


def _backoff(restarts: int) -> float:
    return 0.0 if not restarts else min(_FIRST_BACKOFF * 2.0 ** (restarts - 1), _MAX_BACKOFF)


def _seconds(text: str | None, default: float) -> float:
    return default if text is None else seconds_or_1970(text)
