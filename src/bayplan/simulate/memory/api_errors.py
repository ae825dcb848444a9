"""The API server's errors, word for word: people and scripts know these texts."""

from __future__ import annotations

from functools import cache
from typing import Final

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, GoneError, NotFoundError, ServerError

_CHANGED_SINCE: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@cache
def resource_name(kind: type[Object]) -> str:
    """`pods`, `storageclasses.storage.k8s.io`: the resource as messages name it."""
    known = KINDS.find(kind)
    if known is None:
        return f"{kind.__name__.lower()}s"
    return f"{known.plural}.{known.group}" if known.group else known.plural


def not_found(kind: type[Object], name: str) -> NotFoundError:
    return NotFoundError(f'{resource_name(kind)} "{name}" not found')


def already_exists(kind: type[Object], name: str) -> ConflictError:
    return ConflictError(f'{resource_name(kind)} "{name}" already exists')


def nameless(kind: type[Object]) -> APIError:
    problem = "metadata.name: Required value: name or generateName is required"
    return APIError(f'{kind.__name__} "" is invalid: {problem}', code=422)


def changed_since(kind: type[Object], name: str) -> ConflictError:
    return ConflictError(f'Operation cannot be fulfilled on {resource_name(kind)} "{name}": {_CHANGED_SINCE}')


def another_uid(kind: type[Object], stored: Object, uid: str) -> ConflictError:
    """The request refers to an object of the same name that has been deleted since."""
    resource = resource_name(kind)
    return ConflictError(
        f'Operation cannot be fulfilled on {resource} "{stored.name}": StorageError: invalid object, '
        f"Code: 4, Key: /registry/{resource.partition('.')[0]}/{stored.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
        f"UID in object meta: {stored.uid}"
    )


def patched_uid(stored: Pod, uid: str) -> APIError:
    """A patch refers to a pod of the same name that has been deleted since."""
    problem = f'metadata.uid: Invalid value: "{uid}": field is immutable'
    return APIError(f'Pod "{stored.name}" is invalid: {problem}', code=422)


def moved(pod: Pod) -> APIError:
    """An update may not bind a pod, nor move it to another node."""
    problem = "spec: Forbidden: pod updates may not change fields other than the mutable ones: spec.nodeName"
    return APIError(f'Pod "{pod.name}" is invalid: {problem}', code=422)


def binding_error(pod: Pod, uid: str) -> ConflictError | None:
    """The error if a pod cannot be bound; None if it can."""
    meta, spec = pod.metadata, pod.spec
    if uid and uid != meta.uid:
        return another_uid(Pod, pod, uid)
    if meta.deletion_timestamp is not None:
        reason = f"pod {meta.name} is being deleted, cannot be assigned to a host"
    elif spec.node_name:
        reason = f'pod {meta.name} is already assigned to node "{spec.node_name}"'
    elif spec.scheduling_gates:
        reason = f"pod {meta.name} has non-empty .spec.schedulingGates"
    else:
        return None
    return ConflictError(f'Operation cannot be fulfilled on pods/binding "{meta.name}": {reason}')


def too_old(version: str, oldest: int) -> GoneError:
    return GoneError(f"too old resource version: {version} ({oldest})")


def too_new(version: int, current: int) -> ServerError:
    return ServerError(f"Too large resource version: {version}, current: {current}", code=504)


def not_a_version(text: str) -> APIError:
    return APIError(f'resourceVersion: Invalid value: "{text}": it is not a number', code=400)
