"""Deployments: one ReplicaSet for each version of a template, and rollouts between them.

Each reconcile does one step: it finds or creates the ReplicaSet of the current template, scales the new and
the old ones as far as the strategy allows (`roll` of `bayplan.controllers.workloads`), and writes the status
(`rollout.py`), from which `kubectl rollout status` reads the progress. The resulting changes of pods cause
the next reconcile. Old ReplicaSets stay, empty: `kubectl rollout history` lists them, and `undo` returns to
them.

https://kubernetes.io/docs/concepts/workloads/controllers/deployment/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.meta import Content
from bayplan.controllers.pods import TEMPLATE_HASH, hash_of, owner_reference, selector_of
from bayplan.controllers.workloads import Bounds, Size, bounds, new_size, proportional_sizes, roll
from bayplan.embedded.controllers.cluster import ObjectChange, names_of, owner_references
from bayplan.embedded.controllers.controller import Controller, KeyMapper, own_key, write_status
from bayplan.embedded.controllers.pod_owner import refers_to
from bayplan.embedded.controllers.rollout import (
    DESIRED,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    annotations_of,
    is_complete,
    key_of,
    max_replicas_of,
    note_sizes,
    revision_of,
    size_of,
    split,
    status_of,
)
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import DEPLOYMENTS, REPLICA_SETS, Resource
from bayplan.errors import ConflictError, NotFoundError

_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAX_REPLICAS,
        "deprecated.deployment.rollback.to",
    }
)
"""Annotations of a deployment that its ReplicaSets do not get."""


class Deployments(Controller):
    """Reconciles Deployments."""

    name: ClassVar = "deployment-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {DEPLOYMENTS: own_key, REPLICA_SETS: self._replica_set, kinds.PODS: self._pod_gone}

    def _replica_set(self, change: ObjectChange) -> Iterable[str]:
        _, namespace = names_of(change.key)
        for document in (change.before, change.after):
            for owner in owner_references(document):
                if owner.controller and refers_to(DEPLOYMENTS, owner.api_version, owner.kind):
                    yield f"{namespace}/{owner.name}"

    def _pod_gone(self, change: ObjectChange) -> Iterable[str]:
        """Recreate waits until the last old pod is gone, which is not in the status of a ReplicaSet."""
        if change.after is not None:
            return
        _, namespace = names_of(change.key)
        for owner in owner_references(change.before):
            if owner.controller and refers_to(REPLICA_SETS, owner.api_version, owner.kind):
                set_document = self.api.store.find(REPLICA_SETS, f"{namespace}/{owner.name}")
                for above in owner_references(set_document):
                    if above.controller and refers_to(DEPLOYMENTS, above.api_version, above.kind):
                        yield f"{namespace}/{above.name}"

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        deployment = self.cluster.find(DEPLOYMENTS, key)
        if deployment is None:
            return None
        self._adopt(deployment)
        sets = self._sets_of(deployment)
        if "deletionTimestamp" in deployment["metadata"]:
            return self._write_status(deployment, sets)
        if deployment["spec"].get("paused") or self._is_resized(deployment, sets):
            sets = self._with_revision(deployment, sets, make=False)
            self._resize(deployment, sets)
        elif deployment["spec"]["strategy"]["type"] == "Recreate":
            sets = self._recreate(deployment, sets)
        else:
            sets = self._with_revision(deployment, sets, make=True)
            self._roll(deployment, sets)
        self._forget_old(deployment, self._sets_of(deployment))
        return self._write_status(deployment, self._sets_of(deployment))

    def _write_status(self, deployment: Content, sets: list[Content]) -> float | None:
        fresh = self.cluster.find(DEPLOYMENTS, key_of(deployment))
        if fresh is None:
            return None
        new, old = split(fresh, sets)
        status, again = status_of(fresh, new, old, self.api)
        write_status(self.api, DEPLOYMENTS, fresh, status)
        return again

    # ReplicaSets

    def _sets_of(self, deployment: Content) -> list[Content]:
        """The deployment's ReplicaSets, oldest first."""
        self.cluster.sync()
        found = self.cluster.owned(REPLICA_SETS, deployment["metadata"]["uid"])
        return sorted(
            found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"])
        )

    def _adopt(self, deployment: Content) -> None:
        """Adopts unmanaged ReplicaSets: those of a deployment deleted with --cascade=orphan."""
        meta = deployment["metadata"]
        if meta["generation"] == (deployment.get("status") or {}).get("observedGeneration"):
            return
        selector = selector_of(deployment)
        for document in list(self.api.documents(REPLICA_SETS, meta["namespace"])):
            if any(owner.controller for owner in owner_references(document)):
                continue
            content = document.parse()
            if selector.matches(content["metadata"].get("labels") or {}):
                owners = [*(content["metadata"].get("ownerReferences") or ()), owner_reference(deployment)]
                content["metadata"]["ownerReferences"] = owners
                self.api.update(REPLICA_SETS, content)

    def _with_revision(self, deployment: Content, sets: list[Content], *, make: bool) -> list[Content]:
        """Finds or creates the ReplicaSet of the template, and gives it the newest revision."""
        new, old = split(deployment, sets)
        revision = max((revision_of(each) for each in old), default=0) + 1
        if new is None:
            if not make:
                return sets
            new = self._make_set(deployment, sets, revision)
            if new is None:
                return sets
        elif self._annotate(deployment, new, revision):
            new = self.api.update(REPLICA_SETS, new)
        if annotations_of(deployment).get(REVISION) != annotations_of(new).get(REVISION):
            change = {"metadata": {"annotations": {REVISION: annotations_of(new)[REVISION]}}}
            meta = deployment["metadata"]
            self.api.patch(DEPLOYMENTS, meta["name"], meta["namespace"], change)
        return self._sets_of(deployment)

    def _annotate(self, deployment: Content, new: Content, revision: int) -> bool:
        """Brings a ReplicaSet's annotations and minReadySeconds up to date. Returns whether that changed
        it."""
        annotations = {
            **annotations_of(new),
            **{name: text for name, text in annotations_of(deployment).items() if name not in _NOT_COPIED},
        }
        known = revision_of(new)
        if known < revision:
            if known:
                history = [annotations.get(REVISION_HISTORY), str(known)]
                annotations[REVISION_HISTORY] = ",".join(part for part in history if part)
            annotations[REVISION] = str(revision)
        seconds = deployment["spec"].get("minReadySeconds")
        changed = annotations != annotations_of(new) or new["spec"].get("minReadySeconds") != seconds
        new["metadata"]["annotations"] = annotations
        if seconds is not None:
            new["spec"]["minReadySeconds"] = seconds
        else:
            new["spec"].pop("minReadySeconds", None)
        return changed

    def _make_set(self, deployment: Content, sets: list[Content], revision: int) -> Content | None:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = spec["template"]
        collisions = (deployment.get("status") or {}).get("collisionCount", 0)
        digest = hash_of(template, collisions)
        labels = {**(template["metadata"].get("labels") or {}), TEMPLATE_HASH: digest}
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: digest}
        wanted = bounds(spec["replicas"], spec["strategy"])
        total = sum(each["spec"]["replicas"] for each in sets)
        is_rolling = spec["strategy"]["type"] == "RollingUpdate"
        replicas = new_size(wanted, Size("", 0, 0), total) if is_rolling else spec["replicas"]
        new: Content = {
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": {},
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": replicas,
                "selector": selector,
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        }
        self._annotate(deployment, new, revision)
        note_sizes(new, wanted)
        try:
            created = self.api.create(REPLICA_SETS, new)
        except ConflictError:
            # The name is taken by another template or another owner: the hash has to be another one.
            status = {**(deployment.get("status") or {}), "collisionCount": collisions + 1}
            write_status(self.api, DEPLOYMENTS, deployment, status)
            raise
        if replicas:
            self._record_scaled(deployment, created, 0, replicas)
        return created

    def _scale(self, deployment: Content, target: Content, replicas: int, wanted: Bounds) -> None:
        before = target["spec"]["replicas"]
        target["spec"]["replicas"] = replicas
        noted = note_sizes(target, wanted)
        if before == replicas and not noted:
            return
        target.update(self.api.update(REPLICA_SETS, target))
        if before != replicas:
            self._record_scaled(deployment, target, before, replicas)

    def _record_scaled(self, deployment: Content, target: Content, before: int, after: int) -> None:
        direction = "up" if after > before else "down"
        name = target["metadata"]["name"]
        message = f"Scaled {direction} replica set {name} from {before} to {after}"
        self.events.normal(deployment, "ScalingReplicaSet", message)

    # Strategies

    def _roll(self, deployment: Content, sets: list[Content]) -> None:
        wanted = bounds(deployment["spec"]["replicas"], deployment["spec"]["strategy"])
        new, old = split(deployment, sets)
        if new is None:
            return
        sizes = roll(wanted, size_of(new), [size_of(each) for each in old if each["spec"]["replicas"]])
        for each in (new, *old):
            name = each["metadata"]["name"]
            if name in sizes or each is new:
                self._scale(deployment, each, sizes.get(name, each["spec"]["replicas"]), wanted)

    def _recreate(self, deployment: Content, sets: list[Content]) -> list[Content]:
        wanted = bounds(deployment["spec"]["replicas"], deployment["spec"]["strategy"])
        sets = self._with_revision(deployment, sets, make=False)
        _, old = split(deployment, sets)
        active = [each for each in old if each["spec"]["replicas"]]
        for each in active:
            self._scale(deployment, each, 0, wanted)
        if active or any(self._has_pods(each) for each in old):
            return sets
        sets = self._with_revision(deployment, sets, make=True)
        new, _ = split(deployment, sets)
        if new is not None:
            self._scale(deployment, new, wanted.replicas, wanted)
        return sets

    def _has_pods(self, replica_set: Content) -> bool:
        owned = self.cluster.pods.owned_by(replica_set["metadata"]["uid"])
        return owned.active + owned.terminating > 0

    def _is_resized(self, deployment: Content, sets: list[Content]) -> bool:
        """Whether `replicas` of the deployment changed since its ReplicaSets were last scaled."""
        replicas = str(deployment["spec"]["replicas"])
        return any(
            each["spec"]["replicas"] and annotations_of(each).get(DESIRED, replicas) != replicas
            for each in sets
        )

    def _resize(self, deployment: Content, sets: list[Content]) -> None:
        wanted = bounds(deployment["spec"]["replicas"], deployment["spec"]["strategy"])
        new, old = split(deployment, sets)
        active = [each for each in sets if each["spec"]["replicas"]]
        if len(active) <= 1:
            only = active[0] if active else new or (sets[-1] if sets else None)
            if only is not None:
                self._scale(deployment, only, wanted.replicas, wanted)
            return
        if new is not None and is_complete(new, wanted.replicas):
            for each in old:
                if each["spec"]["replicas"]:
                    self._scale(deployment, each, 0, wanted)
            return
        if deployment["spec"]["strategy"]["type"] != "RollingUpdate":
            return
        sized = [(size_of(each), max_replicas_of(each)) for each in reversed(active)]
        sizes = proportional_sizes(wanted, sized)
        for each in active:
            self._scale(deployment, each, sizes[each["metadata"]["name"]], wanted)

    def _forget_old(self, deployment: Content, sets: list[Content]) -> None:
        """Deletes old empty ReplicaSets beyond revisionHistoryLimit, once the rollout is complete."""
        limit = deployment["spec"].get("revisionHistoryLimit")
        new, old = split(deployment, sets)
        if limit is None or new is None or not is_complete(new, deployment["spec"]["replicas"]):
            return
        old = sorted(old, key=revision_of)
        for each in old[: max(len(old) - limit, 0)]:
            status, meta = each.get("status") or {}, each["metadata"]
            is_observed = status.get("observedGeneration", 0) >= meta["generation"]
            if is_observed and not each["spec"]["replicas"] and not status.get("replicas"):
                with suppress(NotFoundError):
                    self.api.delete(REPLICA_SETS, meta["name"], meta["namespace"])
