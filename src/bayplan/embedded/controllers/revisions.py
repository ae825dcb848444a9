"""ControllerRevisions: the versions of a template that DaemonSets and StatefulSets keep.

`kubectl rollout history` lists them, `undo` applies one as a patch; pods carry the hash of theirs as a label.
"""

from __future__ import annotations

from contextlib import suppress

from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.controllers.templates import REVISION_HASH, hash_of, owner_reference
from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import CONTROLLER_REVISIONS
from bayplan.errors import NotFoundError


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
        data = {"spec": {"template": {**workload["spec"]["template"], "$patch": "replace"}}}
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


def hash_in(revision: Content) -> str:
    return str(revision["metadata"]["labels"][REVISION_HASH])


def template_in(revision: Content) -> Content:
    template = dict(revision["data"]["spec"]["template"])
    template.pop("$patch", None)
    return template
