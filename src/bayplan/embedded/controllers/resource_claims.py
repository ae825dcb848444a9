"""ResourceClaims: created from templates for pods and PodGroups, released and deleted when these are done.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Generic, TypeVar

from bayplan.api.devices import (
    CLAIM_FINALIZER,
    MAX_RESERVED_FOR,
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from bayplan.api.groups import PodGroup
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.claims import (
    PodClaim,
    all_claims_of,
    claim_from_template,
    claims_of,
    is_owned,
    no_longer_needs_claims,
    owner_problem,
    shared_claims,
    uses_claims,
)
from bayplan.controllers.pods import controller_reference
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.controllers.pod_groups import group_key_of
from bayplan.embedded.server import statuses
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import (
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Resource,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError

OwnerT = TypeVar("OwnerT", Pod, PodGroup)


class TemplateClaims(Controller, Generic[OwnerT]):
    """Creates claims from the templates that objects of one kind name."""

    name: ClassVar = "resource_claim"
    owners: ClassVar[Resource]
    record: type[OwnerT]

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._users: dict[str, set[str]] = {}
        """The owners that name a claim, template or group, by its key; keys of templates and groups have a
        word in front."""
        self._names: dict[str, frozenset[str]] = {}
        """The keys in `_users` that contain an owner, by the key of the owner."""

    def watches(self) -> dict[Resource, KeyMapper]:
        claims: dict[Resource, KeyMapper] = {
            RESOURCE_CLAIMS: self._claim,
            RESOURCE_CLAIM_TEMPLATES: self._template,
        }
        return {self.owners: self._owner} | claims

    def _owner(self, change: ObjectChange) -> Iterable[str]:
        owner = None if change.after is None else change.after.record(self.record)
        if owner is None or not owner.spec.resource_claims:
            self._index(change.key, frozenset())
            return ()
        self._index(change.key, frozenset(self._named(owner)))
        return (change.key,) if self._needs_work(owner) else ()

    def _named(self, owner: OwnerT) -> Iterable[str]:
        for claim in claims_of(owner):
            if claim.claim_name:
                yield f"{owner.namespace}/{claim.claim_name}"
            if claim.template:
                yield f"template {owner.namespace}/{claim.template}"

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

    def _needs_work(self, owner: OwnerT) -> bool:
        """Whether a claim has to be created."""
        return self._is_alive(owner) and any(
            claim.template and self._find(owner, claim) is None for claim in claims_of(owner)
        )

    def _is_alive(self, owner: OwnerT) -> bool:
        return owner.metadata.deletion_timestamp is None

    def _find(self, owner: OwnerT, claim: PodClaim) -> ResourceClaim | None:
        document = self.api.store.find(RESOURCE_CLAIMS, f"{owner.namespace}/{claim.claim_name}")
        return None if document is None else document.record(ResourceClaim)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(self.owners, key)
        owner = None if document is None else document.record(self.record)
        if owner is None or not self._is_alive(owner):
            return None
        created = {}
        for claim in claims_of(owner):
            try:
                if (name := self._created(owner, claim)) is not None:
                    created[claim.name] = name
            except StatusError as error:
                content = self.api.get(self.owners, owner.name, owner.namespace)
                kind = f"{type(owner).__name__}ResourceClaim"
                message = f"{kind} {claim.name}: {_creation_problem(error, claim)}"
                self.events.warning(content, "FailedResourceClaimCreation", message)
                raise
        if created:
            self._write_claim_names(owner, created)
        return None

    def _created(self, owner: OwnerT, claim: PodClaim) -> str | None:
        """The name of a claim that the owner's status does not contain yet; None if there is nothing to
        do."""
        if not claim.template:
            return None
        known = self._find(owner, claim) if claim.claim_name else None
        if known is not None and is_owned(known, owner):
            return None
        if (found := self._owned(owner, claim.name)) is not None:
            # It was created, but writing its name into the status failed.
            return found
        template = self.cluster.find(RESOURCE_CLAIM_TEMPLATES, f"{owner.namespace}/{claim.template}")
        if template is None:
            raise _no_template(claim.template)
        made = claim_from_template(template, owner, claim.name)
        return str(self.api.create(RESOURCE_CLAIMS, made, owner.namespace)["metadata"]["name"])

    def _owned(self, owner: Pod | PodGroup, name: str) -> str | None:
        """The claim that was created for the entry `name` of this pod or group."""
        for claim in self.cluster.owned(RESOURCE_CLAIMS, owner.uid):
            reference = controller_reference(claim)
            notes = claim["metadata"].get("annotations") or {}
            is_its = reference is not None and reference["uid"] == owner.uid
            if is_its and notes.get(POD_CLAIM_NAME_ANNOTATION) == name:
                return str(claim["metadata"]["name"])
        return None

    def _write_claim_names(self, owner: OwnerT, created: dict[str, str]) -> None:
        content = self.api.get(self.owners, owner.name, owner.namespace)
        status = content.setdefault("status", {})
        statuses = [each for each in status.get("resourceClaimStatuses") or () if each["name"] not in created]
        statuses += [{"name": name, "resourceClaimName": claim} for name, claim in created.items()]
        status["resourceClaimStatuses"] = statuses
        self.api.update(self.owners, content, subresource="status")


class GroupResourceClaims(TemplateClaims[PodGroup]):
    """Creates claims for PodGroups (gate DRAWorkloadResourceClaims)."""

    owners: ClassVar = POD_GROUPS
    record = PodGroup

    def watches(self) -> dict[Resource, KeyMapper]:
        return super().watches() if has_group_claims(self.api) else {}


class PodResourceClaims(TemplateClaims[Pod]):
    """Creates claims for pods, and reserves those of pods that the scheduler did not bind.

    An entry that stands for a claim of the pod's group gets the name of that claim, once it exists.
    """

    owners: ClassVar = PODS
    record = Pod

    def watches(self) -> dict[Resource, KeyMapper]:
        groups: dict[Resource, KeyMapper] = {POD_GROUPS: self._group} if has_group_claims(self.api) else {}
        return super().watches() | groups

    def _group(self, change: ObjectChange) -> Iterable[str]:
        return () if change.after is None else sorted(self._users.get(f"group {change.key}", ()))

    def _named(self, owner: Pod) -> Iterable[str]:
        yield from super()._named(owner)
        if owner.spec.scheduling_group is not None:
            yield f"group {group_key_of(owner)}"

    def _is_alive(self, owner: Pod) -> bool:
        return super()._is_alive(owner) and not owner.is_finished

    def _needs_work(self, owner: Pod) -> bool:
        """The same, or a claim has to be reserved because the scheduler did not."""
        if not self._is_alive(owner):
            return False
        return super()._needs_work(owner) or (
            bool(owner.spec.node_name)
            and any(
                claim is not None and self._is_to_be_reserved(claim, owner)
                for claim in (self._find(owner, one) for one in claims_of(owner))
            )
        )

    def reconcile(self, key: str) -> float | None:
        super().reconcile(key)
        document = self.api.store.find(PODS, key)
        pod = None if document is None else document.record(Pod)
        if pod is not None and self._is_alive(pod) and pod.spec.node_name:
            self._reserve(pod)
        return None

    def _created(self, owner: Pod, claim: PodClaim) -> str | None:
        if owner.spec.scheduling_group is None or not has_group_claims(self.api):
            return super()._created(owner, claim)
        group = self._group_of(owner)
        if group is None:
            return None  # whose claim it is, is known once the group exists
        if claim.name not in shared_claims(owner, group):
            return super()._created(owner, claim)
        name = self._owned(group, claim.name) if claim.template else None
        return None if name == claim.claim_name else name

    def _group_of(self, pod: Pod) -> PodGroup | None:
        document = self.api.store.find(POD_GROUPS, group_key_of(pod))
        return None if document is None else document.record(PodGroup)

    def _reserve(self, pod: Pod) -> None:
        """Reserves allocated claims for a pod whose node was not set by the scheduler."""
        for pod_claim in claims_of(pod):
            claim = self._find(pod, pod_claim)
            if claim is None or (pod_claim.template and owner_problem(pod, claim)):
                return
            if self._is_to_be_reserved(claim, pod):
                content = self.api.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
                consumer = self._consumer(pod, pod_claim.name)
                content["status"].setdefault("reservedFor", []).append(consumer)
                self.api.update(RESOURCE_CLAIMS, content, subresource="status")

    def _consumer(self, pod: Pod, name: str) -> Content:
        """For whom the claim of this entry is reserved: the pod, or its group."""
        group = self._group_of(pod) if has_group_claims(self.api) else None
        if group is None or name not in shared_claims(pod, group):
            return {"resource": "pods", "name": pod.name, "uid": pod.uid}
        group_ref = {"apiGroup": POD_GROUPS.group, "resource": POD_GROUPS.plural}
        return group_ref | {"name": group.name, "uid": group.uid}

    def _is_to_be_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        status = claim.status
        is_full = len(status.reserved_for) >= MAX_RESERVED_FOR
        return status.allocation is not None and not is_full and not claim.is_reserved_for_pod(pod)


class ResourceClaims(Controller):
    """Releases claims of finished pods, and deletes those that were created for them."""

    name: ClassVar = "resource_claim"

    def watches(self) -> dict[Resource, KeyMapper]:
        groups: dict[Resource, KeyMapper] = {POD_GROUPS: self._group} if has_group_claims(self.api) else {}
        return {RESOURCE_CLAIMS: self._claim, PODS: self._pod} | groups

    def _group(self, change: ObjectChange) -> Iterable[str]:
        """The claims of a group that was deleted."""
        if change.after is not None or change.before is None:
            return ()
        group = change.before.record(PodGroup)
        return [f"{group.namespace}/{claim.claim_name}" for claim in claims_of(group) if claim.claim_name]

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
        """Whether a consumer may still use a claim. Consumers that are neither pods nor groups are assumed
        to."""
        if (consumer.api_group, consumer.resource) == (POD_GROUPS.group, POD_GROUPS.plural):
            document = self.api.store.find(POD_GROUPS, f"{namespace}/{consumer.name}")
            is_known = document is not None and document.record(PodGroup).uid == consumer.uid
            return is_known or not has_group_claims(self.api)
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


def has_group_claims(api: ObjectAPI) -> bool:
    """Whether PodGroups may have claims."""
    return "DRAWorkloadResourceClaims" in api.catalog.release.gates


def _no_template(name: str) -> StatusError:
    # The lister of a real controller names the kind in the singular.
    text = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
    return statuses.AbsentError(text, reason="NotFound", details={})


def _creation_problem(error: StatusError, pod_claim: PodClaim) -> str:
    if isinstance(error, NotFoundError):
        return f'resource claim template "{pod_claim.template}": {error}'
    return f"create ResourceClaim : {error}"
