"""Metadata of the objects that the builders make."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from bayplan.api.meta import ObjectMeta, OwnerReference


def make_owner(
    kind: str, name: str, *, uid: str | None = None, api_version: str = "apps/v1"
) -> OwnerReference:
    """The controller of a pod or claim, for `owner=`."""
    owner_uid = f"{kind}/{name}".lower() if uid is None else uid
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=owner_uid, controller=True)


def object_meta(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    created: datetime | None = None,
    deleted: datetime | None = None,
    owner: OwnerReference | None = None,
    uid: str | None = None,
) -> ObjectMeta:
    """Metadata with a readable uid: `pod/default/web`."""
    if uid is None:
        uid = "/".join(part for part in (kind.lower(), namespace, name) if part)
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        creation_timestamp=created,
        deletion_timestamp=deleted,
        owner_references=() if owner is None else (owner,),
    )
