"""What all controllers that make pods have in common: which pods are theirs, and making and deleting them.

A pod is theirs if it names them as its controller. A pod that nobody manages and that their selector matches
is adopted; a pod of theirs that the selector does not match any more, because somebody changed its labels, is
let go. Both are looked for when something happens to such a pod, not in all pods at every look.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector
from bayplan.embedded.controllers.cluster import Cluster, Seen, names_of
from bayplan.embedded.controllers.controller import Concerns, Controller
from bayplan.embedded.controllers.pod_index import OwnedPods, controller_of
from bayplan.embedded.controllers.templates import owner_reference, refers_to, selector_of
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.documents import Content, Document
from bayplan.embedded.server.kinds import PODS, Resource
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError


class PodOwner(Controller):
    """A controller that has pods made from a template."""

    def __init__(self, cluster: Cluster, resource: Resource) -> None:
        super().__init__(cluster)
        self.resource = resource
        self._selectors: dict[str, Selector] = {}
        self._doubtful: dict[str, set[str]] = {}
        """For each workload the pods that it may have to adopt or to let go."""

    def watches(self) -> dict[Resource, Concerns]:
        return {self.resource: self._workload, PODS: self._pod}

    # What concerns whom

    def _workload(self, seen: Seen) -> Iterable[str]:
        if seen.after is None:
            self._selectors.pop(seen.key, None)
            self._doubtful.pop(seen.key, None)
        elif seen.before is None:
            selector = self._selectors[seen.key] = selector_of(seen.after.parse())
            _, namespace = names_of(seen.key)
            for pod in self.cluster.pods.bare(namespace):
                if selector.matches(pod.labels):
                    self._doubtful.setdefault(seen.key, set()).add(pod.key)
        return (seen.key,)

    def _pod(self, seen: Seen) -> Iterable[str]:
        before, after = _record(seen.before), _record(seen.after)
        if self._is_anothers(before) and self._is_anothers(after):
            return ()
        found = set()
        for pod in (before, after):
            owner = controller_of(pod)
            if (
                pod is not None
                and owner is not None
                and refers_to(self.resource, owner.api_version, owner.kind)
            ):
                found.add(f"{pod.namespace}/{owner.name}")
        if after is not None and (before is None or _may_change_hands(before, after)):
            found |= self._mark_doubtful(after, found)
        return found

    def _is_anothers(self, pod: Pod | None) -> bool:
        """Whether a pod, if there is one, is managed by another kind of workload: most are."""
        if pod is None:
            return True
        owner = pod.metadata.controller()
        return owner is not None and owner.kind != self.resource.kind

    def _mark_doubtful(self, pod: Pod, its_owner: set[str]) -> set[str]:
        keys = its_owner
        if controller_of(pod) is None:
            _, namespace = names_of(pod.key)
            keys = {
                key
                for key, selector in self._selectors.items()
                if key.startswith(f"{namespace}/") and selector.matches(pod.labels)
            }
        for key in keys:
            self._doubtful.setdefault(key, set()).add(pod.key)
        return keys

    # Pods

    def pods_of(self, workload: Content) -> OwnedPods:
        """The pods of a workload, after adopting and letting go."""
        meta = workload["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        doubtful = self._doubtful.pop(key, None)
        if doubtful:
            selector = self._selectors.get(key) or selector_of(workload)
            for pod_key in sorted(doubtful):
                self._settle(workload, selector, self.cluster.pods.get(pod_key))
            self.cluster.sync()
        return self.cluster.pods.owned_by(meta["uid"])

    def _settle(self, workload: Content, selector: Selector, pod: Pod | None) -> None:
        if pod is None:
            return
        owner, meta = pod.metadata.controller(), workload["metadata"]
        is_ours = owner is not None and owner.uid == meta["uid"]
        matches = selector.matches(pod.labels)
        is_for_us = owner is None and matches and not pod.is_terminating and "deletionTimestamp" not in meta
        if is_ours and not matches:
            content = self.api.get(PODS, pod.name, pod.namespace)
            owners = [
                known for known in content["metadata"]["ownerReferences"] if known["uid"] != meta["uid"]
            ]
        elif is_for_us and not pod.is_finished:
            content = self.api.get(PODS, pod.name, pod.namespace)
            owners = [*(content["metadata"].get("ownerReferences") or ()), owner_reference(workload)]
        else:
            return
        content["metadata"]["ownerReferences"] = owners
        self.api.update(PODS, content)

    def create_pod(self, workload: Content, pod: Content) -> Content:
        """Creates a pod and tells of it; why it failed is told, too, before the error goes on."""
        try:
            created = self.api.create(PODS, pod, workload["metadata"]["namespace"])
        except StatusError as refusal:
            self.events.warning(workload, "FailedCreate", f"Error creating: {refusal}")
            raise
        self.events.normal(workload, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return created

    def delete_pod(self, workload: Content, pod: Pod) -> None:
        """Deletes a pod, if it is still there, and tells of it."""
        with suppress(NotFoundError):
            self.api.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))
            self.events.normal(workload, "SuccessfulDelete", f"Deleted pod: {pod.name}")


def _record(document: Document | None) -> Pod | None:
    return None if document is None else document.record(Pod)


def _may_change_hands(before: Pod, after: Pod) -> bool:
    return (
        before.labels != after.labels or before.metadata.owner_references != after.metadata.owner_references
    )
