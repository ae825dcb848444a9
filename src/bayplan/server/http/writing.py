"""POST, PUT, PATCH and DELETE of objects, and the actions on them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from bayplan.server import kinds, pods, scale, statuses
from bayplan.server.deletion import BACKGROUND, FOREGROUND, ORPHAN, DeleteOptions
from bayplan.server.http.answers import answer
from bayplan.server.http.reading import select, selection_of
from bayplan.server.http.requests import Form, Target, decode_body, flag, is_dry_run, read_body
from bayplan.server.kinds import Resource
from bayplan.server.objects import ObjectAPI
from bayplan.server.patching.apply import apply_patch
from bayplan.server.patching.plain import Content, Patch, json_patch, merge_patch
from bayplan.server.patching.strategic import strategic_merge_patch
from bayplan.server.schema.types import TypeMismatchError, clean, type_of
from bayplan.server.statuses import RefusalError, bad_request

_APPLY: Final = ("application/apply-patch+yaml", "application/apply-patch+json")
_RETURNS_DELETED: Final = frozenset(
    {
        kinds.CSI_DRIVERS, kinds.CSI_NODES, kinds.CSI_STORAGE_CAPACITIES, kinds.PERSISTENT_VOLUMES,
        kinds.PERSISTENT_VOLUME_CLAIMS, kinds.PODS, kinds.SERVICES, kinds.SERVICE_ACCOUNTS,
        kinds.STORAGE_CLASSES, kinds.VOLUME_ATTACHMENTS,
    }
)  # fmt: skip
"""Kinds whose deletion is answered with the object; the others get a Status."""


class Writer:
    """Answers requests that change something."""

    def __init__(self, api: ObjectAPI) -> None:
        self._api = api

    async def create(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        kind = "" if target.subresource is None else target.subresource.kind
        content, warnings = await self._object(request, target, kind)
        dry_run = is_dry_run(request, "CreateOptions")
        if target.subresource_name == "binding":
            return self._bind(request, target, content, dry_run)
        if target.subresource_name == "eviction":
            return self._evict(request, target, content)
        content.get("metadata", {}).pop("managedFields", None)
        created = self._api.create(target.resource, content, target.namespace, dry_run=dry_run)
        return answer(request, created, 201, as_yaml=form.yaml, headers=_warning_headers(warnings))

    async def update(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        kind = "" if target.subresource is None else target.subresource.kind
        content, warnings = await self._object(request, target, kind)
        name = content.setdefault("metadata", {}).setdefault("name", target.name)
        if name != target.name:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
        dry_run = is_dry_run(request, "UpdateOptions")
        resource = target.resource
        if target.subresource_name == "scale":
            updated = scale.update(
                self._api, resource, content, target.namespace, dry_run=dry_run, manager=_manager(request)
            )
        else:
            updated = self._api.update(
                resource,
                content,
                target.namespace,
                subresource=target.subresource_name,
                dry_run=dry_run,
                manager=_manager(request),
            )
        return answer(request, updated, as_yaml=form.yaml, headers=_warning_headers(warnings))

    async def patch(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        body = await read_body(request)
        dry_run = is_dry_run(request, "PatchOptions")
        resource = target.resource
        content_type = request.content_type
        if content_type in _APPLY:
            return self._apply(request, target, form, body, dry_run)
        change = self._change(target, content_type, body)
        if target.subresource_name == "scale":
            current = scale.get(self._api, resource, target.name, target.namespace)
            wanted = change(current)
            updated = scale.update(
                self._api, resource, wanted, target.namespace, dry_run=dry_run, manager=_manager(request)
            )
            return answer(request, updated, as_yaml=form.yaml)
        warnings: list[str] = []
        patched = self._api.patch(
            resource,
            target.name,
            target.namespace,
            self._cleaned(request, resource, change, warnings),
            subresource=target.subresource_name,
            dry_run=dry_run,
            manager=_manager(request),
        )
        return answer(request, patched, as_yaml=form.yaml, headers=_warning_headers(warnings))

    async def delete(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        options = await self._delete_options(request)
        deleted = self._api.delete(target.resource, target.name, target.namespace, options)
        stored = target.resource.storage
        document = self._api.store.find(stored, stored.key(target.name, target.namespace))
        is_gone = document is None or options.dry_run
        if target.resource in _RETURNS_DELETED or not is_gone or deleted["metadata"].get("finalizers"):
            return answer(request, deleted, as_yaml=form.yaml)
        details: dict[str, Any] = {"name": target.name}
        if target.resource.group:
            details["group"] = target.resource.group
        details.update(kind=target.resource.plural, uid=deleted["metadata"]["uid"])
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
        return answer(request, status)

    async def delete_all(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        options = await self._delete_options(request)
        resource = target.resource
        deleted = []
        for document in select(self._api, resource, selection_of(request, target)):
            meta = document.parse()["metadata"]
            deleted.append(self._api.delete(resource, meta["name"], meta.get("namespace", ""), options))
        version = str(self._api.store.version)
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version}
        return answer(request, {**head, "metadata": {"resourceVersion": version}, "items": deleted})

    def _bind(
        self, request: web.BaseRequest, target: Target, content: Content, dry_run: bool
    ) -> web.Response:
        meta = content.get("metadata") or {}
        if meta.get("name") != target.name:
            raise bad_request("name in URL does not match name in Binding object")
        bound_to = content.get("target") or {}
        node = bound_to.get("name", "")
        if bound_to.get("kind", "Node") != "Node":
            problem = statuses.unsupported("target.kind", bound_to["kind"], ["Node", "<empty>"])
            raise RefusalError(str(problem), 500)
        if not node:
            raise RefusalError("target.name: Required value", 500)
        pods.bind(
            self._api,
            target.name,
            target.namespace,
            node,
            uid=meta.get("uid", ""),
            labels=meta.get("labels"),
            annotations=meta.get("annotations"),
            dry_run=dry_run,
        )
        return answer(request, _DONE, 201)

    def _evict(self, request: web.BaseRequest, target: Target, content: Content) -> web.Response:
        options = _options_from(content.get("deleteOptions") or {}, is_dry_run(request, "CreateOptions"))
        pods.evict(self._api, target.name, target.namespace, options)
        return answer(request, _DONE, 201)

    def _apply(
        self, request: web.BaseRequest, target: Target, form: Form, body: bytes, dry_run: bool
    ) -> web.Response:
        wanted = decode_body(body, "application/yaml", "error decoding YAML: ")
        manager = request.query.get("fieldManager", "")
        if not manager:
            problem = statuses.required("fieldManager", "is required for apply patch")
            raise statuses.invalid_options("PatchOptions", [problem])
        warnings: list[str] = []
        cleaned = self._checked(request, target.resource, wanted, "", warnings)
        updated, created = apply_patch(
            self._api,
            target.resource,
            target.name,
            target.namespace,
            cleaned,
            manager=manager,
            force=flag(request, "force"),
            subresource=target.subresource_name,
            dry_run=dry_run,
        )
        headers = _warning_headers(warnings)
        return answer(request, updated, 201 if created else 200, as_yaml=form.yaml, headers=headers)

    def _change(self, target: Target, content_type: str, body: bytes) -> Patch:
        """The patch in a body, by its content type."""
        if content_type == "application/json-patch+json":
            return json_patch(_decode_patch(body))
        if content_type == "application/merge-patch+json":
            return merge_patch(_object_patch(body))
        if content_type == "application/strategic-merge-patch+json" and target.resource.schema is None:
            kind = "Scale" if target.subresource_name == "scale" else ""
            return strategic_merge_patch(_object_patch(body), type_of(target.resource, kind))
        raise RefusalError("415: Unsupported Media Type", 415, reason="UnsupportedMediaType", details={})

    def _cleaned(
        self, request: web.BaseRequest, resource: Resource, change: Patch, warnings: list[str]
    ) -> Patch:
        """The patch, whose outcome has to be an object of the kind."""

        def apply(content: Content) -> Content:
            try:
                return self._checked(request, resource, change(content), "", warnings)
            except TypeMismatchError as error:
                problem = statuses.invalid_field("patch", "", str(error))
                raise RefusalError(
                    f' "" is invalid: {problem}', 422, reason="Invalid", details={"causes": [problem.cause()]}
                ) from error

        return apply

    async def _object(self, request: web.BaseRequest, target: Target, kind: str) -> tuple[Content, list[str]]:
        """The object in a body, checked against its type, and warnings about it."""
        resource = target.resource
        expected = kind or resource.kind
        what = (
            f"the object provided is unrecognized (must be of type {expected}): couldn't get version/kind; "
        )
        body = await read_body(request)
        content = decode_body(body, request.content_type if "Content-Type" in request.headers else "", what)
        if not isinstance(content, dict):
            raise bad_request(f"{what}json parse error: it is not an object")
        sub = target.subresource
        api_version = resource.api_version
        if sub is not None and sub.kind:
            api_version = f"{sub.group}/{sub.version}" if sub.group else "v1"
        got_kind, got_version = content.get("kind") or expected, content.get("apiVersion") or api_version
        if got_kind != expected or (got_version != api_version and not (sub and sub.kind)):
            raise bad_request(
                f'{got_kind} in version "{got_version}" cannot be handled as a {expected}: expected '
                f"{expected} in {api_version}"
            )
        warnings: list[str] = []
        try:
            return self._checked(request, resource, content, kind, warnings), warnings
        except TypeMismatchError as error:
            version = api_version.rpartition("/")[2]
            raise bad_request(
                f'{expected} in version "{version}" cannot be handled as a {expected}: {error}'
            ) from error

    def _checked(
        self, request: web.BaseRequest, resource: Resource, content: Any, kind: str, warnings: list[str]
    ) -> Content:
        """The object without unknown fields, which are an error, a warning or nothing, as the client says."""
        cleaned, unknown = clean(content, type_of(resource, kind))
        how = request.query.get("fieldValidation", "") or "Warn"
        if how not in ("Strict", "Warn", "Ignore"):
            problem = statuses.unsupported("fieldValidation", how, ["", "Ignore", "Strict", "Warn"])
            raise statuses.invalid_options("CreateOptions", [problem])
        found = [f'unknown field "{path}"' for path in unknown]
        if found and how == "Strict":
            name = kind or resource.kind
            raise bad_request(
                f'{name} in version "{resource.version}" cannot be handled as a {name}: '
                f"strict decoding error: {', '.join(found)}"
            )
        if how == "Warn":
            warnings += found
        result: Content = cleaned
        return result

    async def _delete_options(self, request: web.BaseRequest) -> DeleteOptions:
        body = await read_body(request)
        given = {}
        if body:
            content_type = request.content_type if "Content-Type" in request.headers else ""
            given = decode_body(body, content_type, "")
            if not isinstance(given, dict):
                raise bad_request("expected DeleteOptions, got something else")
        query = request.query
        if "gracePeriodSeconds" in query:
            given["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        if "propagationPolicy" in query:
            given["propagationPolicy"] = query["propagationPolicy"]
        if "orphanDependents" in query:
            given["orphanDependents"] = flag(request, "orphanDependents")
        dry_run = is_dry_run(request, "DeleteOptions")
        return _options_from(given, dry_run)


_DONE: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _options_from(given: Content, dry_run: bool) -> DeleteOptions:
    policy = given.get("propagationPolicy")
    if policy is None and "orphanDependents" in given:
        policy = ORPHAN if given["orphanDependents"] else BACKGROUND
    if policy not in (None, BACKGROUND, FOREGROUND, ORPHAN):
        choices = [FOREGROUND, BACKGROUND, ORPHAN, "nil"]
        problem = statuses.unsupported("propagationPolicy", policy, choices)
        raise statuses.invalid_options("DeleteOptions", [problem])
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        grace_period_seconds=given.get("gracePeriodSeconds"),
        propagation=policy,
        uid=preconditions.get("uid", ""),
        resource_version=preconditions.get("resourceVersion", ""),
        dry_run=dry_run or given.get("dryRun") == ["All"],
    )


def _manager(request: web.BaseRequest) -> str:
    """Who changes the object: as the request says, or the name of the program."""
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    return request.query.get("fieldManager", "") or agent or "unknown"


def _decode_patch(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _object_patch(body: bytes) -> Content:
    patch = _decode_patch(body)
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    return patch


def _warning_headers(warnings: list[str]) -> dict[str, str] | None:
    if not warnings:
        return None
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings)
    return {"Warning": ", ".join(f'299 - "{text}"' for text in quoted)}
