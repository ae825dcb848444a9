"""The verbs of the API on the store: create, get, update, patch, delete, and the actions on pods.

This is the embedded server without HTTP: controllers, simulated kubelets and the scheduler in this process
call it directly, requests come through `http/`. A call is synchronous and atomic; if it fails, it raises a
`StatusError` with the Status of a real server. A write is in memory when a call returns;
`await store.durable()` waits until it would survive a crash. The writes `create`, `update` and `patch` are
defined in steps (`creating`, `updating`, `patching`), for large objects: see `steps.py`.

    api = ObjectAPI(DocumentStore(), Catalog(), clock=time.time)
    pod = api.create(PODS, {"metadata": {"name": "web"}, "spec": {...}}, "default")
    api.patch(PODS, "web", "default", {"status": {"phase": "Running"}}, subresource="status")

Objects are passed and returned as plain values, and are not shared: arguments are not modified, and results
belong to the caller. Rules of single kinds are in `defaults.py`, `preparation.py`, `admission.py` and
`validation/`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from bayplan.api.go_values import is_version
from bayplan.api.meta import Content
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.admission import Admission
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.custom_resources import CustomResources
from bayplan.embedded.server.defaults import apply_defaults, default_taint_times
from bayplan.embedded.server.deletion import DeleteOptions, can_be_deleted, mark
from bayplan.embedded.server.documents import Document, DocumentStore, decode, encode
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.patching.ownership import track_update
from bayplan.embedded.server.patching.patches import Patch, merge_patch
from bayplan.embedded.server.preparation import (
    drop_disabled,
    prepare_new,
    resized_pod,
    restart_taint_time,
)
from bayplan.embedded.server.quotas import Charge, QuotaExceededError, charges
from bayplan.embedded.server.schema.types import type_of
from bayplan.embedded.server.sizes import MAX_UNCOUNTED_BYTES, check_rules, check_values
from bayplan.embedded.server.statuses import FieldProblem
from bayplan.embedded.server.steps import ATTEMPTS, Steps, atomic
from bayplan.embedded.server.validation import differ_in_spec, new_problems, update_problems
from bayplan.embedded.server.validation.device_claims import prepare_claim_status
from bayplan.embedded.server.views import from_storage, to_storage

CONTROL_PLANE: Final = "bayplan"
"""The default field manager."""
_NAME_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names: no vowels, and no similar-looking ones."""
_MAX_PREFIX: Final = 63 - 5
_CONDITIONAL: Final = (
    kinds.DEVICE_TAINT_RULES, kinds.POD_GROUPS, kinds.WORKLOADS, kinds.COMPOSITE_POD_GROUPS
)  # fmt: skip
"""Kinds of which an update has to name the version that it changes, and whose status has no metadata."""
_SERVERS_OWN: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Metadata that users cannot set or change."""


class ObjectAPI:
    """The API of a store. `clock` is wall time in seconds; with a seed, uids and names repeat."""

    def __init__(
        self,
        store: DocumentStore,
        catalog: Catalog | None = None,
        *,
        clock: Callable[[], float],
        seed: int | None = None,
    ) -> None:
        self.store = store
        self.catalog = catalog or Catalog()
        self.admission = Admission(store, self.catalog.release.gates)
        self.customs = CustomResources(self.catalog)
        self._clock = clock
        self._random = random.Random(seed)
        self.root_ca = ""
        """The CA certificate for clients of this server, in PEM; empty if it is not served."""
        self.guard: Callable[[Resource, Content, Content | None], None] | None = None
        """Refuses what the user of a request may not write, before and after: roles and bindings."""
        self.computed: dict[Resource, Callable[[Document], Document]] = {}
        """Resources with fields that are computed when an object is read (heartbeats)."""

    def now(self) -> str:
        """The current time as it is written into objects."""
        return self.after(0)

    def after(self, seconds: float) -> str:
        """The time some seconds from now, as it is written into objects."""
        # Go counts nanoseconds in 64 bits and wraps around: 2⁶³-1 seconds from now was a second ago.
        nanos = (int(seconds * 10**9) + 2**63) % 2**64 - 2**63
        moment = datetime.fromtimestamp(int(self._clock()), UTC) + timedelta(microseconds=nanos // 1000)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def time(self) -> float:
        return self._clock()

    # Reading

    def get(self, resource: Resource, name: str, namespace: str = "") -> Content:
        return from_storage(resource, self.document(resource, name, namespace).parse())

    def document(self, resource: Resource, name: str, namespace: str = "") -> Document:
        """The stored document, which is cheaper than its fields."""
        stored = resource.storage
        document = self.store.find(stored, stored.key(name, namespace))
        if document is None:
            raise statuses.not_found(resource, name)
        compute = self.computed.get(stored)
        return document if compute is None else compute(document)

    def documents(self, resource: Resource, namespace: str = "") -> Iterator[Document]:
        """All objects of a resource, or those of a namespace, in the order of their keys."""
        found = self.store.table(resource.storage).of_namespace(namespace)
        compute = self.computed.get(resource.storage)
        return found if compute is None else map(compute, found)

    def list(self, resource: Resource, namespace: str = "") -> list[Content]:
        return [from_storage(resource, document.parse()) for document in self.documents(resource, namespace)]

    # Writing

    def creating(
        self, resource: Resource, content: Content, namespace: str = "", *, dry_run: bool = False
    ) -> Steps[Content]:
        """Adds an object, in steps. Returns it as stored."""
        content = yield partial(_stored_copy, resource, content, "")
        stored = resource.storage
        meta = content.setdefault("metadata", {})
        content["apiVersion"], content["kind"] = stored.api_version, stored.kind
        self._set_namespace(resource, meta, namespace)
        if is_version(meta.get("resourceVersion")):
            # A real server responds like this, too: it leaves this check to its storage.
            raise statuses.StatusError("resourceVersion should not be set on objects to be created", 500)
        if resource.namespaced:
            self.admission.admit_namespace(resource, meta.get("name", ""), meta["namespace"])
        for name in (*_SERVERS_OWN, "selfLink"):
            meta.pop(name, None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated(meta["generateName"])
        meta["uid"] = self._new_uid()
        if stored.counts_generations or stored.schema is not None:
            meta["generation"] = 1
        meta["creationTimestamp"] = self.now()
        yield partial(_set_defaults, stored, content, self.now())
        check_values(stored, content, status=True)
        self.admission.admit(stored, content)
        drop_disabled(stored, content, self.catalog.release.gates)
        prepare_new(stored, content)
        problems = self.admission.device_problems(stored, content)
        problems += yield partial(new_problems, stored, content)
        if problems:
            raise statuses.invalid(resource, meta.get("name", ""), problems)
        if resource.namespaced:
            self.admission.admit_namespace(resource, meta["name"], meta["namespace"])
        self.admission.allocate(stored, content)
        if self.guard is not None:
            self.guard(stored, content, None)
        charged = self._charges(stored, content)
        key = stored.key(meta["name"], meta.get("namespace", ""))
        if self.store.find(stored, key) is not None:
            raise statuses.already_exists(resource, meta["name"])
        self.store.require_room(is_owned=bool(meta.get("ownerReferences")) or stored == kinds.EVENTS)
        if stored == kinds.CUSTOM_RESOURCE_DEFINITIONS:
            self.customs.check(content)
            self.customs.accept(content, self.now())
        created = self._put(stored, key, content, dry_run)
        self._write_charges(charged, dry_run)
        return from_storage(resource, created)

    def restore(self, resource: Resource, content: Content, namespace: str = "") -> bool:
        """Stores an object as another API server had stored it, with its uid, times and status.

        Nothing is validated or admitted again; defaults are set, and a uid and a generation if they are
        missing. False if an object of its name is there already: that one stays.
        """
        stored = resource.storage
        content = _stored_copy(resource, content, "")
        meta = content["metadata"]
        meta.pop("resourceVersion", None)
        meta.setdefault("creationTimestamp", self.now())
        if not meta.get("uid"):
            meta["uid"] = self._new_uid()
        if stored.counts_generations or stored.schema is not None:
            meta.setdefault("generation", 1)
        key = stored.key(meta["name"], namespace if resource.namespaced else "")
        if self.store.find(stored, key) is not None:
            return False
        _set_defaults(stored, content, self.now())
        self._put(stored, key, content, dry_run=False)
        return True

    def updating(
        self,
        resource: Resource,
        given: Content,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str | None = CONTROL_PLANE,
    ) -> Steps[Content]:
        """Replaces an object, or its status, in steps. Returns it as stored. Without a change nothing is
        written.

        An object without a resourceVersion replaces any version. `manager` becomes the manager of the changed
        fields; with None the object's own managedFields are stored.
        """
        for _ in range(ATTEMPTS):
            content = yield partial(_stored_copy, resource, given, subresource)
            meta = content.setdefault("metadata", {})
            self._set_namespace(resource, meta, namespace)
            document = self.document(resource, meta.get("name", ""), meta.get("namespace", ""))
            replaced = yield from self._replace(resource, document, content, subresource, dry_run, manager)
            if replaced is not None:
                return from_storage(resource, replaced)
        raise statuses.changed_since(resource, meta["name"])

    def patching(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        patch: Patch | Content,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str | None = CONTROL_PLANE,
    ) -> Steps[Content]:
        """Patches an object, in steps. A plain value is a merge patch: null removes a field.

        If the object changes meanwhile, the new version is patched.
        """
        change = merge_patch(patch) if isinstance(patch, dict) else patch
        for _ in range(ATTEMPTS):
            document = self.document(resource, name, namespace)
            old = from_storage(resource, document.parse())
            uid, version = old["metadata"]["uid"], old["metadata"]["resourceVersion"]
            content = yield partial(_changed, resource, old, change, subresource)
            meta = content.get("metadata") or {}
            if meta.get("name") != name:
                raise statuses.bad_request(
                    f"the name of the object ({meta.get('name', '')}) does not match the name on the URL "
                    f"({name})"
                )
            if meta.get("uid") not in (None, "", uid) and meta.get("resourceVersion") == version:
                raise statuses.immutable_uid(resource, name, meta["uid"])
            self._set_namespace(resource, meta, namespace)
            replaced = yield from self._replace(resource, document, content, subresource, dry_run, manager)
            if replaced is not None:
                return from_storage(resource, replaced)
        raise statuses.changed_since(resource, name)

    def delete(
        self, resource: Resource, name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> Content:
        """Deletes an object, or marks it if finalizers or a running pod delay the deletion.

        Returns the last state of the object, or the marked one.
        """
        options = options or DeleteOptions()
        document = self.document(resource, name, namespace)
        stored, content = resource.storage, document.parse()
        options.check(resource, content)
        if stored == kinds.NAMESPACES and name in (
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
        ):
            raise statuses.forbidden(resource, name, "this namespace may not be deleted")
        changed = mark(stored, content, options, self)
        if can_be_deleted(stored, content):
            return from_storage(resource, self._remove(stored, document.key, content, options.dry_run))
        if not changed:
            return from_storage(resource, content)
        return from_storage(resource, self._put(stored, document.key, content, options.dry_run))

    create, update, patch = atomic(creating), atomic(updating), atomic(patching)

    # Steps

    def _set_namespace(self, resource: Resource, meta: dict[str, Any], namespace: str) -> None:
        """Sets the namespace of an object, or checks it against that of the request."""
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        if namespace and meta.get("namespace", namespace) != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta["namespace"] = namespace or meta.get("namespace") or "default"

    def _replace(
        self,
        resource: Resource,
        document: Document,
        content: Content,
        subresource: str,
        dry_run: bool,
        manager: str | None,
    ) -> Steps[Content | None]:
        """The stored object; None if it changed meanwhile, and nothing was written."""
        stored = resource.storage
        old = document.parse()
        meta, known = content.setdefault("metadata", {}), old["metadata"]
        name = known["name"]
        if meta.get("uid") and meta["uid"] != known["uid"]:
            raise statuses.another_uid(resource, document.key, name, meta["uid"], known["uid"])
        version = meta.get("resourceVersion")
        if version and version != "0" and version != known["resourceVersion"]:
            raise statuses.changed_since(resource, name)
        if not version and (stored.schema is not None or stored in _CONDITIONAL):
            raise statuses.without_version(resource, name)
        content["apiVersion"], content["kind"] = stored.api_version, stored.kind
        for field in (*_SERVERS_OWN, "generateName"):
            if field in known:
                meta[field] = known[field]
            else:
                meta.pop(field, None)
        meta["resourceVersion"] = known["resourceVersion"]
        self._restore_immutable(stored, content, old, subresource)
        if stored.schema is None and stored.subresource("status") is not None and "status" in old:
            content.setdefault("status", {})  # a struct in Go: it can be empty, but not absent
        problems: list[FieldProblem] = []
        if not subresource:
            yield partial(_set_defaults, stored, content, self.now())
            if stored == kinds.DEVICE_TAINT_RULES:
                restart_taint_time(content, old, self.now())
            self.admission.admit_update(stored, content)
            drop_disabled(stored, content, self.catalog.release.gates, old)
        elif stored == kinds.RESOURCE_CLAIMS:
            prepare_claim_status(content, old)
            problems = self.admission.device_status_problems(content, old)
        problems += yield partial(update_problems, stored, content, old, subresource)
        if problems:
            raise statuses.invalid(resource, name, problems)
        if manager is not None and (known.get("managedFields") or meta.get("managedFields")):
            yield partial(track_update, content, old, type_of(stored), manager, self.now(), subresource)
        if not self._is_current(stored, document):
            return None
        if not subresource:
            self.admission.allocate(stored, content, old)
        if "generation" in meta and differ_in_spec(content, old):
            meta["generation"] += 1
        if content == old:
            return old
        if "deletionTimestamp" in meta and can_be_deleted(stored, content):
            return self._remove(stored, document.key, content, dry_run)
        if stored == kinds.CUSTOM_RESOURCE_DEFINITIONS:
            self.customs.check(content)
            self.customs.accept(content, self.now())
        if self.guard is not None:
            self.guard(stored, content, old)
        if subresource == "resize":
            self.admission.check_resize(content)
        charged = () if subresource not in ("", "resize") else self._charges(stored, content, old)
        replaced = self._put(stored, document.key, content, dry_run)
        self._write_charges(charged, dry_run)
        return replaced

    def _is_current(self, stored: Resource, document: Document) -> bool:
        current = self.store.find(stored, document.key)
        return current is not None and current.version == document.version

    def _charges(self, stored: Resource, content: Content, old: Content | None = None) -> Sequence[Charge]:
        """The quotas that a new object, or a new version of one, is charged to, if it is allowed."""
        if not stored.namespaced:
            return ()
        if old is None or stored != kinds.PODS:
            self.admission.check_limits(stored, content)
        try:
            return charges(self, stored, content, old)
        except QuotaExceededError as error:
            raise statuses.forbidden(stored, content["metadata"].get("name", ""), str(error)) from None

    def _write_charges(self, charged: Sequence[Charge], dry_run: bool) -> None:
        for document, quota in charged:
            self._put(kinds.RESOURCE_QUOTAS, document.key, quota, dry_run)

    def _restore_immutable(self, stored: Resource, content: Content, old: Content, subresource: str) -> None:
        if subresource in ("status", "approval"):
            for field in (*content.keys(), *old.keys()):
                if field not in ("status", "metadata"):
                    _copy_field(field, old, content)
            if stored.schema is not None or stored in (kinds.RESOURCE_CLAIMS, *_CONDITIONAL):
                managed = content["metadata"].get("managedFields")
                content["metadata"] = dict(old["metadata"])
                if managed is not None:
                    content["metadata"]["managedFields"] = managed
        elif subresource == "resize":
            content.update(resized_pod(content, old))
            for field in {*content["metadata"], *old["metadata"]} - {"managedFields"}:
                _copy_field(field, old["metadata"], content["metadata"])
        elif subresource == "finalize":
            finalizers = (content.get("spec") or {}).get("finalizers") or []
            content.clear()
            content.update({**old, "spec": {**old.get("spec", {}), "finalizers": finalizers}})
        else:
            if stored.subresource("status") is not None:
                _copy_field("status", old, content)
            if stored == kinds.NAMESPACES:
                _copy_field("spec", old, content)

    def write(
        self, resource: Resource, document: Document, content: Content, *, dry_run: bool = False
    ) -> Content:
        """Stores a new version of an object without checks, for the actions in `subresources.py`."""
        return self._put(resource, document.key, content, dry_run)

    def _put(self, stored: Resource, key: str, content: Content, dry_run: bool) -> Content:
        if dry_run:
            return content
        self.store.put(stored, key, content)
        if stored == kinds.CUSTOM_RESOURCE_DEFINITIONS:
            self.customs.define(content)
        return content

    def _remove(self, stored: Resource, key: str, content: Content, dry_run: bool) -> Content:
        if dry_run:
            return content
        if stored == kinds.CUSTOM_RESOURCE_DEFINITIONS:
            for resource in self.customs.resources_of(content):
                for document in list(self.store.table(resource)):
                    self.store.remove(resource, document.key, document.parse())
                self.store.drop(resource)
            self.customs.remove(content)
        self.store.remove(stored, key, content)
        return content

    def _new_uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _generated(self, prefix: str) -> str:
        return prefix[:_MAX_PREFIX] + "".join(self._random.choices(_NAME_SUFFIX, k=5))


def _stored_copy(resource: Resource, content: Content, subresource: str) -> Content:
    """A copy in the form in which it is stored."""
    body = encode(content)
    if len(body) > MAX_UNCOUNTED_BYTES:
        check_values(resource, content, status=subresource == "status")
        if subresource == "status":
            check_rules(resource, content)
    return to_storage(resource, decode(body))


def _changed(resource: Resource, old: Content, change: Patch, subresource: str) -> Content:
    return _stored_copy(resource, change(old), subresource)


def _set_defaults(stored: Resource, content: Content, now: str) -> None:
    apply_defaults(stored, content)
    if stored in (kinds.RESOURCE_SLICES, kinds.DEVICE_TAINT_RULES):
        default_taint_times(content, now)
    check_values(stored, content, status=False)
    check_rules(stored, content)


def _copy_field(field: str, source: Content, target: Content) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)
