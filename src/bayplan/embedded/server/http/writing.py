"""POST, PUT, PATCH and DELETE of objects, and the actions on them."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from aiohttp import web

from bayplan.api.meta import Content
from bayplan.embedded.server import kinds, statuses, subresources
from bayplan.embedded.server.access import Tokens
from bayplan.embedded.server.documents import Document, encode
from bayplan.embedded.server.http.answers import answer, answer_as, answer_list
from bayplan.embedded.server.http.bodies import (
    checked_patch,
    checked_scale,
    options_from,
    read_body,
    read_configuration,
    read_delete_options,
    read_object,
    read_patch,
)
from bayplan.embedded.server.http.field_validation import warning_headers
from bayplan.embedded.server.http.reading import select, selection_of
from bayplan.embedded.server.http.requests import (
    MAX_MANAGER_BYTES,
    Form,
    Target,
    flag,
    given_manager,
    is_dry_run,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.patching.apply import applying_patch
from bayplan.embedded.server.statuses import AbsentError, StatusError, bad_request
from bayplan.embedded.server.steps import MAX_BYTES, Steps, at_once, in_steps, in_threads
from bayplan.embedded.server.validation.device_slices import driver_warnings

R = TypeVar("R")

_LARGE_SCHEMA: Final = 4 * MAX_BYTES
"""A definition whose defaults may take long to fill in."""
_APPLY: Final = ("application/apply-patch+yaml", "application/apply-patch+json")
_CREATED_BY_UPDATE: Final = frozenset({kinds.EVENTS, kinds.LEASES})
_RETURNS_DELETED: Final = frozenset(
    {
        kinds.CSI_DRIVERS, kinds.CSI_NODES, kinds.CSI_STORAGE_CAPACITIES, kinds.PERSISTENT_VOLUMES,
        kinds.PERSISTENT_VOLUME_CLAIMS, kinds.PODS, kinds.SERVICES, kinds.SERVICE_ACCOUNTS,
        kinds.STORAGE_CLASSES, kinds.VOLUME_ATTACHMENTS,
    }
)  # fmt: skip
"""Kinds whose deletion returns the object; others return a Status."""


class Writer:
    """Handles write requests."""

    def __init__(self, api: ObjectAPI, tokens: Tokens, *, evaluates_roles: bool = False) -> None:
        self._api = api
        self._tokens = tokens
        self._evaluates_roles = evaluates_roles
        self._large_write = asyncio.Lock()

    async def _run(self, steps: Steps[R], is_large: bool) -> R:
        """The result of a write. Large ones run one after the other, so that none has to be repeated."""
        if not is_large:
            return at_once(steps)
        async with self._large_write:
            return await in_threads(steps)

    async def create(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        kind = "" if target.subresource is None else target.subresource.kind
        content, warnings, is_large = await read_object(request, target, kind)
        dry_run = is_dry_run(request, "CreateOptions")
        given_manager(request)
        if target.subresource_name == "binding":
            return self._bind(request, target, content, dry_run)
        if target.subresource_name == "token":
            made = self._tokens.create(target.name, target.namespace, content)
            return await answer_as(request, form, made, 201)
        if target.subresource_name == "eviction":
            return self._evict(request, target, content)
        content.get("metadata", {}).pop("managedFields", None)
        creating = self._api.creating(target.resource, content, target.namespace, dry_run=dry_run)
        created = await self._run(creating, is_large or self._is_large(target))
        return await self._created(request, target, created, form, warnings)

    async def update(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        kind = "" if target.subresource is None else target.subresource.kind
        content, warnings, is_large = await read_object(request, target, kind)
        name = content.setdefault("metadata", {}).setdefault("name", target.name)
        if name != target.name:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
        dry_run = is_dry_run(request, "UpdateOptions")
        resource = target.resource
        if target.subresource_name == "scale":
            updated = subresources.update_scale(
                self._api, resource, content, target.namespace, dry_run=dry_run, manager=_manager(request)
            )
        elif self._is_to_be_created(target, content):
            creating = self._api.creating(resource, content, target.namespace, dry_run=dry_run)
            created = await self._run(creating, is_large or self._is_large(target))
            return await self._created(request, target, created, form, warnings)
        else:
            updating = self._api.updating(
                resource,
                content,
                target.namespace,
                subresource=target.subresource_name,
                dry_run=dry_run,
                manager=_manager(request),
            )
            updated = await self._run(updating, is_large or self._is_large(target))
        return await self._written(request, target, updated, form, warnings)

    async def _created(
        self, request: web.BaseRequest, target: Target, created: Content, form: Form, warnings: list[str]
    ) -> web.Response:
        """The response with a new object, and a warning if its kind has no effect here."""
        is_evaluated = self._evaluates_roles and target.resource.group == kinds.RBAC_GROUP
        if target.resource.caution and not is_evaluated:
            warnings.append(target.resource.caution)
        return await self._written(request, target, created, form, warnings, 201)

    async def _written(
        self,
        request: web.BaseRequest,
        target: Target,
        content: Content,
        form: Form,
        warnings: list[str],
        status: int = 200,
    ) -> web.Response:
        """The response with the stored object."""
        if target.resource.storage == kinds.RESOURCE_SLICES:
            warnings += driver_warnings(content)
        return await answer_as(request, form, content, status, headers=warning_headers(warnings))

    def _is_large(self, target: Target) -> bool:
        """Whether processing the existing object, or its schema's defaults, takes long."""
        store, stored = self._api.store, target.resource.storage
        if stored.schema is not None:
            definition = store.find(kinds.CUSTOM_RESOURCE_DEFINITIONS, f"{stored.plural}.{stored.group}")
            if definition is not None and len(definition.body) > _LARGE_SCHEMA:
                return True
        known = store.find(stored, stored.key(target.name, target.namespace)) if target.name else None
        return known is not None and len(known.body) > MAX_BYTES

    def _is_to_be_created(self, target: Target, content: Content) -> bool:
        """Whether an update creates the object, as with some kinds, unless it has a resourceVersion."""
        stored = target.resource.storage
        if stored not in _CREATED_BY_UPDATE or content["metadata"].get("resourceVersion"):
            return False
        return self._api.store.find(stored, stored.key(target.name, target.namespace)) is None

    async def patch(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        body = await read_body(request)
        dry_run = is_dry_run(request, "PatchOptions")
        resource = target.resource
        content_type = request.content_type
        if content_type in _APPLY:
            return await self._apply(request, target, form, body, dry_run)
        change = await read_patch(target, content_type, body)
        if target.subresource_name == "scale":
            current = subresources.get_scale(self._api, resource, target.name, target.namespace)
            wanted = checked_scale(resource, change(current))
            updated = subresources.update_scale(
                self._api, resource, wanted, target.namespace, dry_run=dry_run, manager=_manager(request)
            )
            return await answer_as(request, form, updated)
        warnings: list[str] = []
        patching = self._api.patching(
            resource,
            target.name,
            target.namespace,
            checked_patch(request, resource, change, warnings, body),
            subresource=target.subresource_name,
            dry_run=dry_run,
            manager=_manager(request),
        )
        patched = await self._run(patching, len(body) > MAX_BYTES or self._is_large(target))
        return await self._written(request, target, patched, form, warnings)

    async def delete(self, request: web.BaseRequest, target: Target, form: Form) -> web.Response:
        options = await read_delete_options(request)
        deleted = self._api.delete(target.resource, target.name, target.namespace, options)
        stored = target.resource.storage
        document = self._api.store.find(stored, stored.key(target.name, target.namespace))
        is_gone = document is None or options.dry_run
        if target.resource in _RETURNS_DELETED or not is_gone or deleted["metadata"].get("finalizers"):
            return await answer_as(request, form, deleted)
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

    async def delete_all(self, request: web.BaseRequest, target: Target, form: Form) -> web.StreamResponse:
        options = await read_delete_options(request)
        resource = target.resource

        def delete(document: Document) -> bytes:
            meta = document.parse()["metadata"]
            try:
                return encode(self._api.delete(resource, meta["name"], meta.get("namespace", ""), options))
            except AbsentError:
                return b""  # another request was faster

        found = await select(self._api, resource, selection_of(request, target))
        deleted = [body for body in await in_steps(delete, found) if body]
        version = str(self._api.store.version)
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version}
        head_of_all = {**head, "metadata": {"resourceVersion": version}}
        return await answer_list(request, Form(), head_of_all, deleted, self._api.store.durable)

    def _bind(
        self, request: web.BaseRequest, target: Target, content: Content, dry_run: bool
    ) -> web.Response:
        meta = content.get("metadata") or {}
        if meta.get("name") != target.name:
            raise bad_request("name in URL does not match name in Binding object")
        bound_to = content.get("target") or {}
        node = bound_to.get("name", "")
        problems = []
        if bound_to.get("kind", "Node") != "Node":
            problems.append(statuses.unsupported("target.kind", bound_to["kind"], ["Node", "<empty>"]))
        if not node:
            problems.append(statuses.required("target.name"))
        if problems:
            # kube-apiserver has no status for these errors, so they are sent with 500 and without a reason.
            raise StatusError(statuses.aggregated([str(problem) for problem in problems]), 500)
        subresources.bind(
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
        options = options_from(content.get("deleteOptions") or {}, is_dry_run(request, "CreateOptions"))
        subresources.evict(self._api, target.name, target.namespace, options)
        return answer(request, _DONE, 201)

    async def _apply(
        self, request: web.BaseRequest, target: Target, form: Form, body: bytes, dry_run: bool
    ) -> web.Response:
        manager = given_manager(request)
        if not manager:
            problem = statuses.required("fieldManager", "is required for apply patch")
            raise statuses.invalid_options("PatchOptions", [problem])
        wanted, warnings, is_large = await read_configuration(request, target.resource, body)
        applying = applying_patch(
            self._api,
            target.resource,
            target.name,
            target.namespace,
            wanted,
            manager=manager,
            force=flag(request, "force"),
            subresource=target.subresource_name,
            dry_run=dry_run,
        )
        updated, created = await self._run(applying, is_large or self._is_large(target))
        if created:
            return await self._created(request, target, updated, form, warnings)
        return await self._written(request, target, updated, form, warnings)


_DONE: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _manager(request: web.BaseRequest) -> str:
    """The field manager: from the request, or the name of the program."""
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    return given_manager(request) or agent[:MAX_MANAGER_BYTES] or "unknown"
