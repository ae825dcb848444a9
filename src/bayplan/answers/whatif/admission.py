"""Creates pods of a what-if cluster as its API server would: defaults, classes, limits and quotas.

| plugin | here |
|---|---|
| LimitRanger | default requests and limits of the namespace; what is outside its bounds is rejected |
| Priority, DefaultTolerationSeconds | from the class of the pod, or the default class |
| RuntimeClass | overhead, node selector and tolerations of the pod's class |
| ResourceQuota | what exceeds a quota of the namespace is rejected; new pods count as long as they exist |

Webhooks and admission policies are not known. The rules are those of the embedded server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from bayplan.answers.sources.warnings import NO_RUNTIME_CLASS, Reason, Warning
from bayplan.answers.whatif.state import BranchStore
from bayplan.api.admission import (
    AdmissionError,
    add_default_tolerations,
    apply_runtime_class,
    default_priority_class,
    give_defaults,
    merge_label_keys,
    prioritize,
    prioritize_group,
)
from bayplan.api.decode import decode_object
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content, Object
from bayplan.api.pod import Pod
from bayplan.api.pod_defaults import default_pod
from bayplan.api.quantity import is_binary, parse_quantity, quantity_text
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import LimitRange, PriorityClass, ResourceQuota, RuntimeClass
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.quotas import (
    QuotaExceededError,
    charges,
    limit_problem,
    matches,
    usage,
)
from bayplan.embedded.server.validation import new_problems
from bayplan.errors import InputError

_FORBIDDEN: Final = "{what} is forbidden: {why}"


class Admission:
    """Admits pods and claims to the objects of a store."""

    def __init__(self, store: BranchStore, lacks_kind: Callable[[str], bool]) -> None:
        self._store = store
        self._lacks_kind = lacks_kind
        self._quotas = _Quotas(store)
        self.warnings: dict[Warning, None] = {}

    def admitted(self, content: Content, namespace: str) -> Pod:
        """A new pod with everything that the server sets.

        Raises:
            InputError: it is invalid, or a class that it names does not exist.
        """
        # A copy: pods of one workload share the parts of its template.
        content = msgspec.json.decode(msgspec.json.encode(content))
        meta, spec = content["metadata"], content["spec"]
        meta["namespace"] = namespace
        name = meta.get("name", "")
        for limits in self._limit_ranges(namespace):
            give_defaults(limits, content)
        default_pod(content)
        classes = {one.name: _content(one) for one in self._store.all(PriorityClass)}
        try:
            prioritize(spec, classes.get, default_priority_class(classes.values()), strict=True)
            add_default_tolerations(spec)
            self._apply_runtime_class(spec, f"{namespace}/{name}")
        except AdmissionError as error:
            raise InputError(_FORBIDDEN.format(what=f'pods "{name}"', why=error)) from None
        merge_label_keys(spec, meta.get("labels") or {})
        if problems := new_problems(kinds.PODS, content):
            raise InputError(str(statuses.invalid(kinds.PODS, name, problems)))
        content.pop("status", None)
        made = decode_object({**content, "apiVersion": "v1", "kind": "Pod"})
        assert isinstance(made, Pod)
        return made

    def admit_group(self, content: Content, *, with_policy: bool) -> Content:
        """A new PodGroup with its priority.

        Raises:
            InputError: the class that it names does not exist, or says something else.
        """
        spec, name = dict(content["spec"]), content["metadata"].get("name", "")
        classes = {one.name: _content(one) for one in self._store.all(PriorityClass)}
        default = default_priority_class(classes.values())
        try:
            prioritize_group(spec, classes.get, default, what="pod group", with_policy=with_policy)
        except AdmissionError as error:
            raise InputError(_FORBIDDEN.format(what=f'podgroups "{name}"', why=error)) from None
        return {**content, "spec": spec}

    def _apply_runtime_class(self, spec: Content, pod: str) -> None:
        name = spec.get("runtimeClassName")
        found = self._store.find(RuntimeClass, name) if name else None
        if name and found is None and self._lacks_kind("RuntimeClass"):
            text = NO_RUNTIME_CLASS.format(kind="RuntimeClass", name=name)
            self.warnings[Warning(text, pod, Reason.MISSING_OBJECT, f"RuntimeClass {name}")] = None
            return
        apply_runtime_class(spec, None if found is None else _content(found))

    def rejection(self, item: Pod | PersistentVolumeClaim) -> str:
        """Why the limits of the namespace do not allow a new object, as the server says it; otherwise it is
        charged to the quotas, and this is empty."""
        resource = kinds.PODS if isinstance(item, Pod) else kinds.PERSISTENT_VOLUME_CLAIMS
        limit_ranges = list(self._limit_ranges(item.namespace))
        if not limit_ranges and not self._quotas.of(item.namespace):
            return ""
        content = _content(item)
        why = next(filter(None, (limit_problem(one, resource, content) for one in limit_ranges)), "")
        why = why or self._quotas.charge(resource, content)
        what = f'{resource.full_name} "{item.name}"'
        return _FORBIDDEN.format(what=what, why=why) if why else ""

    def released(self, pod: Pod) -> None:
        """A pod was deleted: the quotas have room for another one."""
        self._quotas.release(pod)

    def _limit_ranges(self, namespace: str) -> Iterator[Content]:
        found = (one for one in self._store.all(LimitRange) if one.namespace == namespace)
        return map(_content, sorted(found, key=lambda one: one.name))


class _Quotas:
    """The quotas of a store, and the objects that they count (`embedded.server.quotas.Objects`)."""

    def __init__(self, store: BranchStore) -> None:
        self.catalog = Catalog()
        self._store = store

    def of(self, namespace: str) -> list[ResourceQuota]:
        return [one for one in self._store.all(ResourceQuota) if one.namespace == namespace]

    def documents(self, resource: Resource, namespace: str = "") -> Iterable[Document]:
        kind = KINDS.get(resource.kind, resource.group)
        if kind is None:
            return ()
        found = (one for one in self._store.all(kind.record) if one.namespace == namespace)
        return [Document(one.key, 0, msgspec.json.encode(one)) for one in found]

    def charge(self, resource: Resource, content: Content) -> str:
        """Why there is no room; empty if the object is charged."""
        try:
            charged = charges(self, resource, content)
        except QuotaExceededError as error:
            return str(error)
        for _, quota in charged:
            self._write(quota["metadata"]["name"], content["metadata"]["namespace"], quota["status"])
        return ""

    def release(self, pod: Pod) -> None:
        for quota in self.of(pod.namespace):
            content = _content(pod)
            if not quota.status or not matches(_content(quota), kinds.PODS, content):
                continue
            used = dict(quota.status.get("used") or {})
            for name, amount in usage(kinds.PODS, content).items():
                if name in used:
                    left = max(parse_quantity(used[name]) - amount, 0)
                    used[name] = quantity_text(left, binary=is_binary(used[name]))
            self._write(quota.name, quota.namespace, {**quota.status, "used": used})

    def _write(self, name: str, namespace: str, status: Content) -> None:
        quota = self._store.get(ResourceQuota, name, namespace)
        meta = replace(quota.metadata, resource_version="")
        self._store.update(replace(quota, metadata=meta, status=status))


def _content(item: Object) -> Content:
    found: Content = msgspec.json.decode(msgspec.json.encode(item))
    return found
