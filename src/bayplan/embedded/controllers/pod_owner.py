"""What all controllers of pods have in common: their pods, templates, and revisions of templates.

A pod belongs to the workload that it names as its controller. Pods without a controller are adopted if the
selector matches; owned pods are released if it no longer matches, because their labels were changed. Both are
checked when such a pod changes, not for all pods in every reconcile.

DaemonSets and StatefulSets keep the versions of their template as ControllerRevisions: `kubectl rollout
history` lists them, `undo` applies one as a patch; pods carry the hash of theirs as a label.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector
from bayplan.controllers.pods import (
    REVISION_HASH,
    _encode,
    controller_of,
    hash_of,
    owner_reference,
    selector_of,
)
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange, OwnedPods, names_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import CONTROLLER_REVISIONS, PODS, Resource
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError

_PODS_PER_CALL: Final = 10
_BYTES_PER_CALL: Final = 100_000
"""Of the JSON of pods: one of 40 kB takes about 4 ms to create, a small one half a millisecond."""


def pods_per_call(template: Content) -> int:
    """How many pods a controller creates before it lets other tasks run; the rest follow in the next call."""
    return max(min(_BYTES_PER_CALL // len(_encode(template)), _PODS_PER_CALL), 1)


def refers_to(resource: Resource, api_version: str, kind: str) -> bool:
    return resource.kind == kind and resource.api_version == api_version


class PodOwner(Controller):
    """A controller that creates pods from a template."""

    def __init__(self, cluster: Cluster, resource: Resource) -> None:
        super().__init__(cluster)
        self.resource = resource
        self._selectors: dict[str, Selector] = {}
        self._unchecked: dict[str, set[str]] = {}
        """For each workload the pods that it may have to adopt or release."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {self.resource: self._workload, PODS: self._pod}

    # From changes to keys

    def _workload(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            self._selectors.pop(change.key, None)
            self._unchecked.pop(change.key, None)
        elif change.before is None:
            selector = self._selectors[change.key] = selector_of(change.after.parse())
            _, namespace = names_of(change.key)
            for pod in self.cluster.pods.bare(namespace):
                if selector.matches(pod.labels):
                    self._unchecked.setdefault(change.key, set()).add(pod.key)
        return (change.key,)

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        before, after = _record(change.before), _record(change.after)
        if self._has_other_controller(before) and self._has_other_controller(after):
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
        if after is not None and (before is None or _may_change_owner(before, after)):
            found |= self._mark_unchecked(after, found)
        return found

    def _has_other_controller(self, pod: Pod | None) -> bool:
        """Whether a pod is None, or managed by another kind of workload: most are."""
        if pod is None:
            return True
        owner = pod.metadata.controller()
        return owner is not None and owner.kind != self.resource.kind

    def _mark_unchecked(self, pod: Pod, its_owner: set[str]) -> set[str]:
        keys = its_owner
        if controller_of(pod) is None:
            _, namespace = names_of(pod.key)
            keys = {
                key
                for key, selector in self._selectors.items()
                if key.startswith(f"{namespace}/") and selector.matches(pod.labels)
            }
        for key in keys:
            self._unchecked.setdefault(key, set()).add(pod.key)
        return keys

    # Pods

    def pods_of(self, workload: Content) -> OwnedPods:
        """The pods of a workload, after adoption and release."""
        meta = workload["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        unchecked = self._unchecked.pop(key, None)
        if unchecked:
            selector = self._selectors.get(key) or selector_of(workload)
            for pod_key in sorted(unchecked):
                self._adopt_or_release(workload, selector, self.cluster.pods.get(pod_key))
            self.cluster.sync()
        return self.cluster.pods.owned_by(meta["uid"])

    def _adopt_or_release(self, workload: Content, selector: Selector, pod: Pod | None) -> None:
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
        """Creates a pod. Success and failure are recorded as events; errors are raised again."""
        try:
            created = self.api.create(PODS, pod, workload["metadata"]["namespace"])
        except StatusError as error:
            self.events.warning(workload, "FailedCreate", f"Error creating: {error}")
            raise
        self.events.normal(workload, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return created

    def delete_pod(self, workload: Content, pod: Pod) -> None:
        """Deletes a pod, if it still exists, and records an event."""
        with suppress(NotFoundError):
            self.api.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))
            self.events.normal(workload, "SuccessfulDelete", f"Deleted pod: {pod.name}")


def _record(document: Document | None) -> Pod | None:
    return None if document is None else document.record(Pod)


def _may_change_owner(before: Pod, after: Pod) -> bool:
    return (
        before.labels != after.labels or before.metadata.owner_references != after.metadata.owner_references
    )


class Revisions:
    """The revisions of the workloads of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.api

    def of(self, workload: Content) -> list[Content]:
        """All of a workload, oldest first."""
        found = self._cluster.owned(CONTROLLER_REVISIONS, workload["metadata"]["uid"])
        return sorted(found, key=lambda each: (each["revision"], each["metadata"]["name"]))

    def current(self, workload: Content) -> Content:
        """The revision of the template as it is now: an old one that is the newest again, or a new one."""
        data = _sorted({"spec": {"template": {**workload["spec"]["template"], "$patch": "replace"}}})
        known = self.of(workload)
        newest = known[-1]["revision"] if known else 0
        for each in reversed(known):
            if each["data"] == data:
                if each["revision"] == newest:
                    return each
                return self._api.update(CONTROLLER_REVISIONS, {**each, "revision": newest + 1})
        meta = workload["metadata"]
        digest = hash_of(data, (workload.get("status") or {}).get("collisionCount", 0))
        labels = workload["spec"]["template"]["metadata"].get("labels") or {}
        revision = {
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta["namespace"],
                "labels": {**labels, REVISION_HASH: digest},
                "ownerReferences": [owner_reference(workload)],
            },
            "data": data,
            "revision": newest + 1,
        }
        created = self._api.create(CONTROLLER_REVISIONS, revision)
        self._cluster.sync()
        return created

    def named(self, workload: Content, name: str) -> Content | None:
        meta = workload["metadata"]
        return self._cluster.find(CONTROLLER_REVISIONS, f"{meta['namespace']}/{name}") if name else None

    def forget_old(self, workload: Content, in_use: set[str]) -> None:
        """Deletes revisions beyond revisionHistoryLimit that no pod uses. `in_use` are hashes."""
        known = [each for each in self.of(workload) if hash_in(each) not in in_use]
        limit = workload["spec"].get("revisionHistoryLimit", 10)
        for each in known[: max(len(known) - limit, 0)]:
            with suppress(NotFoundError):
                self._api.delete(
                    CONTROLLER_REVISIONS, each["metadata"]["name"], each["metadata"]["namespace"]
                )


def _sorted(content: Any) -> Any:
    """With keys in Go's order: clients compare the data of a revision byte by byte (daemon.Match)."""
    if isinstance(content, dict):
        return {key: _sorted(content[key]) for key in sorted(content)}
    return [_sorted(part) for part in content] if isinstance(content, list) else content


def hash_in(revision: Content) -> str:
    return str(revision["metadata"]["labels"][REVISION_HASH])


def template_in(revision: Content) -> Content:
    template = dict(revision["data"]["spec"]["template"])
    template.pop("$patch", None)
    return template
