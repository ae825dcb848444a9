"""What every namespace has: the ServiceAccount `default`, and the ConfigMap with the CA of the API server.

Kubernetes has a controller for each. Clients wait for them before they use a new namespace, and Helm charts
and operators expect the account.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from bayplan.embedded.controllers.cluster import ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, own_key
from bayplan.embedded.server.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Resource

ACCOUNT: Final = "default"
ROOT_CA: Final = "kube-root-ca.crt"


class NamespaceDefaults(Controller):
    """Makes the objects that belong to a namespace, and makes them again if they are deleted or changed."""

    name: ClassVar = "namespace-defaults"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NAMESPACES: own_key, SERVICE_ACCOUNTS: self._object, CONFIG_MAPS: self._object}

    def _object(self, change: ObjectChange) -> Iterable[str]:
        namespace, _, name = change.key.partition("/")
        return (namespace,) if name in (ACCOUNT, ROOT_CA) and change.before is not None else ()

    def reconcile(self, key: str) -> float | None:
        namespace = self.cluster.find(NAMESPACES, key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return None
        if self.api.store.find(SERVICE_ACCOUNTS, f"{key}/{ACCOUNT}") is None:
            self.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": ACCOUNT}}, key)
        if self.api.root_ca:
            self._write_root_ca(key)
        return None

    def _write_root_ca(self, namespace: str) -> None:
        data = {"ca.crt": self.api.root_ca}
        found = self.cluster.find(CONFIG_MAPS, f"{namespace}/{ROOT_CA}")
        if found is None:
            self.api.create(CONFIG_MAPS, {"metadata": {"name": ROOT_CA}, "data": data}, namespace)
        elif found.get("data") != data:
            self.api.update(CONFIG_MAPS, {**found, "data": data}, namespace)
