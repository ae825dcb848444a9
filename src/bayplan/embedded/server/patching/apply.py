"""Server-side apply: sets the fields of a manager's configuration, and removes those it no longer contains.

Another manager's field with a different value is a conflict, unless the change is forced. Supported are
fields, maps, and lists of type map or set; unions and conversion between versions are not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bayplan.api.meta import Content
from bayplan.embedded.server import statuses
from bayplan.embedded.server.documents import copied
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.patching.ownership import (
    APPLY,
    UPDATE,
    PartFinder,
    Path,
    Paths,
    entry_paths,
    field_of,
    identity,
    key_step,
    make_entry,
    managers_of,
    nested,
    paths_of,
    shown,
    without,
)
from bayplan.embedded.server.schema.types import ANYTHING, Field, Type, type_of
from bayplan.embedded.server.steps import ATTEMPTS, Steps
from bayplan.errors import NotFoundError

if TYPE_CHECKING:
    from bayplan.embedded.server.objects import ObjectAPI

_BEFORE: Final = "before-first-apply"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def applying_patch(
    api: ObjectAPI,
    resource: Resource,
    name: str,
    namespace: str,
    wanted: Content,
    *,
    manager: str,
    force: bool = False,
    subresource: str = "",
    dry_run: bool = False,
) -> Steps[tuple[Content, bool]]:
    """Applies a manager's configuration, in steps. Returns the object and whether it was created.

    If the object changes meanwhile, they start again with the new version.
    """
    _check(wanted, resource, name)
    paths = yield partial(paths_of, wanted, type_of(resource))
    meta = {**(wanted.get("metadata") or {}), "name": name}
    wanted = {**wanted, "metadata": meta}
    entry = yield partial(make_entry, manager, APPLY, resource.api_version, api.now(), paths, subresource)
    for _ in range(ATTEMPTS):
        try:
            live = api.get(resource, name, namespace)
        except NotFoundError:
            if subresource or meta.get("uid") or meta.get("resourceVersion"):
                raise
            wanted["metadata"] = {**meta, "managedFields": [entry]}
            return (yield from api.creating(resource, wanted, namespace, dry_run=dry_run)), True
        version = live["metadata"]["resourceVersion"]
        merged = yield partial(_combined, resource, live, wanted, entry, paths, force)
        try:
            updated = yield from api.updating(
                resource, merged, namespace, subresource=subresource, dry_run=dry_run, manager=None
            )
        except statuses.ClashError:
            now = api.document(resource, name, namespace).version
            if meta.get("resourceVersion") or str(now) == version:
                raise
        else:
            return updated, False
    raise statuses.changed_since(resource, name)


def _combined(
    resource: Resource, live: Content, wanted: Content, entry: Content, paths: Paths, force: bool
) -> Content:
    """The object with a manager's configuration; `entry` is the manager's entry in managedFields."""
    of = type_of(resource)
    manager, subresource = entry["manager"], entry.get("subresource", "")
    entries = _entries(live, of, entry["time"])
    ours = [known for known in entries if _is_ours(known, manager, subresource)]
    others = [known for known in entries if known not in ours]
    conflicts = _conflicts(others, paths, live, wanted)
    if conflicts and not force:
        raise _conflict(conflicts)
    mine = frozenset(path for known in ours for path in entry_paths(known))
    merged: Content = _merged(live, wanted, Field(of))
    theirs = frozenset(path for known in others for path in entry_paths(known))
    merged = without(merged, mine - paths - theirs)
    contested = frozenset(path for _, path in conflicts)
    kept = [*(_less(known, contested) for known in others), entry]
    merged["metadata"]["managedFields"] = [known for known in kept if known["fieldsV1"]]
    if not wanted["metadata"].get("resourceVersion"):
        merged["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    _keep_times(merged, live)
    return merged


def _check(wanted: Content, resource: Resource, name: str) -> None:
    if not wanted.get("kind") or not wanted.get("apiVersion"):
        raise statuses.bad_request("invalid object type: /, Kind=")
    if (wanted["kind"], wanted["apiVersion"]) != (resource.kind, resource.api_version):
        raise statuses.bad_request(
            f"apply: {wanted['kind']} in {wanted['apiVersion']} is sent to {resource.full_name}"
        )
    meta = wanted.get("metadata") or {}
    if meta.get("name", name) != name:
        raise statuses.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    if meta.get("managedFields"):
        raise statuses.bad_request("metadata.managedFields must be nil")


def _entries(live: Content, of: Type, now: str) -> list[Content]:
    """The managers of an object. Fields of one that was never applied belong to `before-first-apply`.

    Fields of a client-side apply of kubectl are taken over without conflicts, as kubectl does it.
    """
    entries = managers_of(live)
    if entries or _LAST_APPLIED in (live["metadata"].get("annotations") or {}):
        return entries
    paths = frozenset(path for path in paths_of(live, of) if path[0] != "f:status")
    return [make_entry(_BEFORE, UPDATE, live["apiVersion"], now, paths)]


def _is_ours(entry: Content, manager: str, subresource: str) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (
        manager, APPLY, subresource,
    )  # fmt: skip


def _conflicts(
    others: list[Content], paths: Paths, live: Content, wanted: Content
) -> list[tuple[Content, Path]]:
    """Fields of other managers whose value would change."""
    live_part, wanted_part = PartFinder(live).find, PartFinder(wanted).find
    return [
        (entry, path)
        for entry in others
        for path in sorted(entry_paths(entry) & paths)
        if path[-1] != "." and live_part(path) != wanted_part(path)
    ]


def _conflict(conflicts: list[tuple[Content, Path]]) -> statuses.ClashError:
    by_manager: dict[str, list[str]] = {}
    causes = []
    for entry, path in conflicts:
        who = f'"{entry.get("manager", "")}"'
        if entry.get("subresource"):
            who += f' with subresource "{entry["subresource"]}"'
        if entry.get("operation") == UPDATE:
            who += f" using {entry.get('apiVersion', '')}"
        field = shown(path)
        by_manager.setdefault(who, []).append(field)
        causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field})
    if len(conflicts) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = [
            f"conflicts with {who}:\n" + "\n".join(f"- {field}" for field in fields)
            for who, fields in by_manager.items()
        ]
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return statuses.ClashError(text, reason="Conflict", details={"causes": causes})


def _less(entry: Content, paths: Paths) -> Content:
    left = entry_paths(entry) - paths
    return {**entry, "fieldsV1": nested(left)}


def _merged(live: Any, wanted: Any, field: Field) -> Any:
    of = field.type
    if field.atomic or of.atomic:
        return wanted
    if isinstance(wanted, dict) and isinstance(live, dict) and (of.is_struct or of.name == "map"):
        result = dict(live)
        for name, part in wanted.items():
            inner = field_of(of, name)
            result[name] = _merged(live[name], part, inner) if name in live else copied(part)
        return result
    if isinstance(wanted, list) and isinstance(live, list) and field.keys:
        return _merged_entries(live, wanted, field)
    if isinstance(wanted, list) and isinstance(live, list) and field.is_set:
        known = {identity(item) for item in live}
        return [*live, *(item for item in wanted if identity(item) not in known)]
    return wanted


def _merged_entries(live: list[Any], wanted: list[Any], field: Field) -> list[Any]:
    """Entries of other managers keep their positions, ours are in our order."""
    inner = Field(field.type.items or ANYTHING)
    known = {key_step(item, field.keys): item for item in live}
    wanted_items = {key_step(item, field.keys): item for item in wanted}
    made = {
        step: _merged(known[step], item, inner) if step in known else copied(item)
        for step, item in wanted_items.items()
    }
    result = [made.get(step, item) for step, item in known.items()]
    result += [item for step, item in made.items() if step not in known]
    return result


def _keep_times(merged: Content, live: Content) -> None:
    """Keeps the times of managers if nothing else changed: applying the same again writes nothing."""
    times = {
        (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")): entry
        for entry in managers_of(live)
    }
    for entry in merged["metadata"]["managedFields"]:
        known = times.get((entry.get("manager"), entry.get("operation"), entry.get("subresource", "")))
        if known is not None and known.get("fieldsV1") == entry.get("fieldsV1"):
            entry["time"] = known.get("time", entry["time"])
