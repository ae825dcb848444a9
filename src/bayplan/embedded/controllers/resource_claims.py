"""ResourceClaims: created from templates for pods, released and deleted when the pods are done.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar

from bayplan.api.devices import (
    CLAIM_FINALIZER,
    MAX_RESERVED_FOR,
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.claims import (
    PodClaim,
    all_claims_of,
    claim_from_template,
    claims_of,
    no_longer_needs_claims,
    owner_problem,
    uses_claims,
)
from bayplan.controllers.pods import controller_reference
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server import statuses
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError


class PodResourceClaims(Controller):
    """Creates claims for pods from their templates."""

    name: ClassVar = "resource_claim"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._users: dict[str, set[str]] = {}
        """The pods that name a claim or template, by its key; keys of templates have the prefix
        `template `."""
        self._names: dict[str, frozenset[str]] = {}
        """The keys in `_users` that contain a pod, by the key of the pod."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {PODS: self._pod, RESOURCE_CLAIMS: self._claim, RESOURCE_CLAIM_TEMPLATES: self._template}

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        pod = None if change.after is None else change.after.record(Pod)
        if pod is None or not pod.spec.resource_claims:
            self._index(change.key, frozenset())
            return ()
        names = set()
        for claim in claims_of(pod):
            if claim.claim_name:
                names.add(f"{pod.namespace}/{claim.claim_name}")
            if claim.template:
                names.add(f"template {pod.namespace}/{claim.template}")
        self._index(change.key, frozenset(names))
        return (change.key,) if self._needs_work(pod) else ()

    def _index(self, key: str, names: frozenset[str]) -> None:
        known = self._names.pop(key, frozenset())
        for name in known - names:
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        for name in names - known:
            self._users.setdefault(name, set()).add(key)
        if names:
            self._names[key] = names

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        return sorted(self._users.get(change.key, ()))

    def _template(self, change: ObjectChange) -> Iterable[str]:
        return () if change.after is None else sorted(self._users.get(f"template {change.key}", ()))

    def _needs_work(self, pod: Pod) -> bool:
        """Whether a claim has to be created, or to be reserved because the scheduler did not."""
        if pod.is_terminating or pod.is_finished:
            return False
        for pod_claim in claims_of(pod):
            claim = self._find(pod, pod_claim)
            if claim is None:
                if pod_claim.template:
                    return True
            elif pod.spec.node_name and _is_to_be_reserved(claim, pod):
                return True
        return False

    def _find(self, pod: Pod, pod_claim: PodClaim) -> ResourceClaim | None:
        document = self.api.store.find(RESOURCE_CLAIMS, f"{pod.namespace}/{pod_claim.claim_name}")
        return None if document is None else document.record(ResourceClaim)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(PODS, key)
        pod = None if document is None else document.record(Pod)
        if pod is None or pod.is_terminating or pod.is_finished:
            return None
        created = {}
        for pod_claim in claims_of(pod):
            try:
                if (name := self._created(pod, pod_claim)) is not None:
                    created[pod_claim.name] = name
            except StatusError as error:
                content = self.api.get(PODS, pod.name, pod.namespace)
                message = f"PodResourceClaim {pod_claim.name}: {_creation_problem(error, pod_claim)}"
                self.events.warning(content, "FailedResourceClaimCreation", message)
                raise
        if created:
            self._write_claim_names(pod, created)
        if pod.spec.node_name:
            self._reserve(self.api.document(PODS, pod.name, pod.namespace).record(Pod))
        return None

    def _created(self, pod: Pod, pod_claim: PodClaim) -> str | None:
        """The name of a claim that the pod's status does not contain yet; None if there is nothing to do."""
        if not pod_claim.template:
            return None
        known = self._find(pod, pod_claim) if pod_claim.claim_name else None
        if known is not None and not owner_problem(pod, known):
            return None
        for claim in self.cluster.owned(RESOURCE_CLAIMS, pod.uid):
            # It was created, but writing its name into the pod's status failed.
            reference = controller_reference(claim)
            notes = claim["metadata"].get("annotations") or {}
            if (
                reference is not None
                and reference["uid"] == pod.uid
                and notes.get(POD_CLAIM_NAME_ANNOTATION) == pod_claim.name
            ):
                return str(claim["metadata"]["name"])
        template = self.cluster.find(RESOURCE_CLAIM_TEMPLATES, f"{pod.namespace}/{pod_claim.template}")
        if template is None:
            raise _no_template(pod_claim.template)
        claim = self.api.create(
            RESOURCE_CLAIMS, claim_from_template(template, pod, pod_claim.name), pod.namespace
        )
        return str(claim["metadata"]["name"])

    def _write_claim_names(self, pod: Pod, created: dict[str, str]) -> None:
        content = self.api.get(PODS, pod.name, pod.namespace)
        status = content.setdefault("status", {})
        known = [each for each in status.get("resourceClaimStatuses") or () if each["name"] not in created]
        new = [{"name": name, "resourceClaimName": claim} for name, claim in created.items()]
        status["resourceClaimStatuses"] = [*known, *new]
        self.api.update(PODS, content, subresource="status")

    def _reserve(self, pod: Pod) -> None:
        """Reserves allocated claims for a pod whose node was not set by the scheduler."""
        for pod_claim in claims_of(pod):
            claim = self._find(pod, pod_claim)
            if claim is None or (pod_claim.template and owner_problem(pod, claim)):
                return
            if _is_to_be_reserved(claim, pod):
                content = self.api.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
                consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
                content["status"].setdefault("reservedFor", []).append(consumer)
                self.api.update(RESOURCE_CLAIMS, content, subresource="status")


class ResourceClaims(Controller):
    """Releases claims of finished pods, and deletes those that were created for them."""

    name: ClassVar = "resource_claim"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {RESOURCE_CLAIMS: self._claim, PODS: self._pod}

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        return () if change.after is None else (change.key,)

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        document = change.after or change.before
        assert document is not None
        pod = document.record(Pod)
        if not uses_claims(pod) or not (change.after is None or no_longer_needs_claims(pod)):
            return ()
        return [f"{pod.namespace}/{claim.claim_name}" for claim in all_claims_of(pod) if claim.claim_name]

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(RESOURCE_CLAIMS, key)
        if document is None:
            return None
        claim = document.record(ResourceClaim)
        consumers = claim.status.reserved_for
        left = [consumer for consumer in consumers if self._is_in_use(consumer, claim.namespace)]
        has_finalizer = CLAIM_FINALIZER in claim.metadata.finalizers
        if len(left) < len(consumers):
            content = document.parse()
            uids = {consumer.uid for consumer in left}
            kept = [each for each in content["status"]["reservedFor"] if each["uid"] in uids]
            self._release(content, kept, deallocates=has_finalizer)
        elif has_finalizer and not left and claim.metadata.deletion_timestamp is not None:
            self._release(document.parse(), [], deallocates=True)
        if not left:
            self._delete_if_unused(claim)
        return None

    def _is_in_use(self, consumer: ResourceClaimConsumerReference, namespace: str) -> bool:
        """Whether a consumer may still use a claim. Consumers that are not pods are assumed to."""
        if consumer.api_group or consumer.resource != "pods":
            return True
        pod = self.cluster.pods.get(f"{namespace}/{consumer.name}")
        return pod is not None and pod.uid == consumer.uid and not no_longer_needs_claims(pod)

    def _release(self, claim: Content, consumers: list[Content], *, deallocates: bool) -> None:
        status = claim.setdefault("status", {})
        if consumers:
            status["reservedFor"] = consumers
        else:
            status.pop("reservedFor", None)
            if deallocates:
                status.pop("allocation", None)
        claim = self.api.update(RESOURCE_CLAIMS, claim, subresource="status")
        finalizers = claim["metadata"].get("finalizers") or []
        if CLAIM_FINALIZER in finalizers and "allocation" not in claim["status"]:
            claim["metadata"]["finalizers"] = [each for each in finalizers if each != CLAIM_FINALIZER]
            self.api.update(RESOURCE_CLAIMS, claim)

    def _delete_if_unused(self, claim: ResourceClaim) -> None:
        """Deletes a claim that was created for a pod which has finished or was replaced by another.

        If there is no such pod any more, the garbage collector deletes the claim.
        """
        owner = claim.metadata.controller()
        if owner is None or owner.kind != "Pod" or owner.api_version != "v1":
            return
        pod = self.cluster.pods.get(f"{claim.namespace}/{owner.name}")
        if pod is not None and (pod.uid != owner.uid or no_longer_needs_claims(pod)):
            with suppress(NotFoundError):
                options = DeleteOptions(uid=claim.uid)
                self.api.delete(RESOURCE_CLAIMS, claim.name, claim.namespace, options)


def _is_to_be_reserved(claim: ResourceClaim, pod: Pod) -> bool:
    status = claim.status
    is_full = len(status.reserved_for) >= MAX_RESERVED_FOR
    return status.allocation is not None and not is_full and not claim.is_reserved_for(pod.uid)


def _no_template(name: str) -> StatusError:
    # The lister of a real controller names the kind in the singular.
    text = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
    return statuses.AbsentError(text, reason="NotFound", details={})


def _creation_problem(error: StatusError, pod_claim: PodClaim) -> str:
    if isinstance(error, NotFoundError):
        return f'resource claim template "{pod_claim.template}": {error}'
    return f"create ResourceClaim : {error}"
