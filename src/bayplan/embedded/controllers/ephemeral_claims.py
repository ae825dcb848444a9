"""Generic ephemeral volumes: a claim for each, made for one pod and gone with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.controllers.templates import is_controlled_by, owner_reference
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, Resource

_MAX_CREATED: Final = 100
"""Claims created per call; the rest are created in the next one, so that other tasks run."""


class EphemeralClaims(Controller):
    """Reconciles pods with ephemeral volumes."""

    name: ClassVar = "ephemeral_volume"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {PODS: self._pod}

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        if change.before is not None or change.after is None:
            return ()
        volumes = change.after.record(Pod).spec.volumes
        return (change.key,) if any(volume.ephemeral is not None for volume in volumes) else ()

    def reconcile(self, key: str) -> float | None:
        pod = self.cluster.find(PODS, key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return None
        meta = pod["metadata"]
        left = _MAX_CREATED
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if template is None:
                continue
            name = f"{meta['name']}-{volume['name']}"
            known = self.cluster.find(PERSISTENT_VOLUME_CLAIMS, f"{meta['namespace']}/{name}")
            if known is None:
                if not left:
                    return 0.0
                left -= 1
                described = template.get("metadata") or {}
                own = {"name": name, "ownerReferences": [owner_reference(pod)]}
                claim = {"metadata": {**described, **own}, "spec": dict(template["spec"])}
                self.api.create(PERSISTENT_VOLUME_CLAIMS, claim, meta["namespace"])
            elif not is_controlled_by(known, pod):
                message = (
                    f'PVC "{meta["namespace"]}/{name}" was not created for pod "{key}" (pod is not owner)'
                )
                self.events.warning(pod, "EphemeralVolumeCollision", message)
        return None
