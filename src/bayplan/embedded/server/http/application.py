"""Handles requests: authentication, routing, and the response.

It has its own router: paths are regular, kinds come and go with CustomResourceDefinitions, and aiohttp's
router would take longer than most requests. Clients see only what would survive a crash: every response waits
until the state it contains is on the disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiohttp import web

from bayplan.api.meta import Content
from bayplan.embedded.server.access import MASTERS, RBAC, Action, Tokens, User, impersonated
from bayplan.embedded.server.escalation import CURRENT_USER, Escalation
from bayplan.embedded.server.http import discovery
from bayplan.embedded.server.http.answers import answer, answer_as, error_response
from bayplan.embedded.server.http.bodies import MAX_BODY_BYTES, decode_body, read_body
from bayplan.embedded.server.http.reading import Reader, Watcher
from bayplan.embedded.server.http.requests import Form, Target, find_target, flag, not_acceptable, wanted_form
from bayplan.embedded.server.http.writing import Writer
from bayplan.embedded.server.kinds import NAMESPACES, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import (
    StatusError,
    bad_request,
    method_not_allowed,
    no_such_path,
    not_simulated,
)
from bayplan.embedded.server.subresources import get_scale
from bayplan.embedded.server.tables.printer import Printer
from bayplan.errors import APIError
from bayplan.net.listening import BoundedServer, Limits

HEALTH: Final = ("/healthz", "/livez", "/readyz")
_OPEN_TO_ALL: Final = frozenset((*HEALTH, "/version"))
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

DEFAULT_LIMITS: Final = Limits()

QueuePosition = Callable[[str], dict[str, Any]]
"""The position of the pod `namespace/name`, as JSON values."""

_USER: Final = web.RequestKey("user", User)
_log = logging.getLogger(__name__)


class Application:
    """The API over HTTP. Every token may do everything, unless roles are evaluated (`rbac`)."""

    def __init__(
        self, api: ObjectAPI, tokens: Iterable[str], *, watcher: Watcher | None = None, rbac: bool = False
    ) -> None:
        self._api = api
        self._tokens = Tokens(api, tokens)
        self._rbac = RBAC(api) if rbac else None
        if self._rbac is not None:
            self._rbac.create_defaults()
            api.guard = Escalation(self._rbac).check
        self._printer = Printer(api.time)
        self._reader = Reader(api, self._printer)
        self._watcher = watcher or Watcher(api, self._printer)
        self._writer = Writer(api, self._tokens, evaluates_roles=rbac)
        self._openapi = discovery.OpenAPIDocuments(api.catalog)
        self.queue_position: QueuePosition | None = None
        """GET /queue: a pod's position in the queue of the scheduler in this process, if one runs."""

    def server(self, limits: Limits = DEFAULT_LIMITS) -> BoundedServer:
        """For aiohttp's runners."""
        return BoundedServer(self.handle, limits, max_body_bytes=MAX_BODY_BYTES)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handles a request."""
        try:
            if request.path not in _OPEN_TO_ALL:
                request[_USER] = self._authenticate(request)
                CURRENT_USER.set(request[_USER])
            response = await self._route(request)
            if not response.prepared and request.path not in _OPEN_TO_ALL:
                await self._api.store.durable()
            return response
        except APIError as error:
            return error_response(request, error)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except RecursionError:
            return error_response(request, bad_request("the object is nested too deeply"))
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            message = "Internal error occurred: the server's log says why"
            return error_response(request, StatusError(message, 500, reason="InternalError", details={}))

    def _authenticate(self, request: web.BaseRequest) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self._tokens.user(token) if scheme.lower() == "bearer" else None
        if user is None:
            raise StatusError("Unauthorized", 401, reason="Unauthorized")
        return impersonated(
            user, request.headers, request.headers.getall("Impersonate-Group", []), self._rbac
        )

    def _authorize(self, request: web.BaseRequest, action: Action) -> None:
        if self._rbac is not None:
            self._rbac.require(request[_USER], action)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        steps = [step for step in request.path.split("/") if step]
        is_object = steps[:1] in (["api"], ["apis"]) and len(steps) > 2 + (steps[0] == "apis")
        if not is_object and request.path not in _OPEN_TO_ALL:
            self._authorize(request, Action(request.method.lower(), path=request.path))
        match steps:
            case ["api", _, _, *_]:
                return await self._handle_objects(request, ["", *steps[1:]])
            case ["apis", discovery.METRICS_GROUP, _, _, *_]:
                raise not_simulated(discovery.NO_METRICS)
            case ["apis", _, _, _, *_]:
                return await self._handle_objects(request, steps[1:])
            case ["api" | "apis", *_]:
                return await self._discover(request, steps)
            case ["openapi", *rest]:
                return self._describe(request, rest)
            case ["version"]:
                return answer(request, discovery.version(self._api.catalog.release))
            case [("healthz" | "livez" | "readyz"), *_]:
                return self._health()
            case ["queue"] if self.queue_position is not None:
                return self._queue(request, self.queue_position)
            case []:
                paths = ["/api", "/api/v1", "/apis", *HEALTH, "/openapi/v2", "/openapi/v3", "/version"]
                return answer(request, {"paths": paths})
        raise no_such_path()

    def _queue(self, request: web.BaseRequest, position: QueuePosition) -> web.StreamResponse:
        """As at the serving port of `bayplan run`."""
        key = request.query.get("pod", "")
        if request.method != "GET":
            raise method_not_allowed()
        if key.count("/") != 1:
            raise bad_request("pass ?pod=NAMESPACE/NAME")
        return answer(request, position(key))

    def _health(self) -> web.Response:
        failure = self._api.store.failure
        if failure is None:
            return web.Response(text="ok")
        return web.Response(text=f"[-]storage failed: {failure}", status=500)

    def _describe(self, request: web.BaseRequest, steps: list[str]) -> web.StreamResponse:
        """OpenAPI. Version 2 has definitions only, and in protobuf nothing: clients use that for kinds that
        version 3 does not have."""
        if steps == ["v2"]:
            return self._describe_v2(request)
        if steps == ["v3"]:
            return answer(request, self._openapi.index())
        if steps and steps[0] == "v3":
            found = self._openapi.find("/".join(steps[1:]))
            if found is not None:
                return answer(request, found)
        raise no_such_path()

    def _describe_v2(self, request: web.BaseRequest) -> web.StreamResponse:
        if "protobuf" in request.headers.get("Accept", ""):
            return web.Response(body=discovery.EMPTY_V2_PROTOBUF, content_type=discovery.V2_PROTOBUF)
        body = self._openapi.find_v2()
        etag = hashlib.sha256(body).hexdigest().upper()
        if request.headers.get("If-None-Match", "").strip('"') == etag:
            return web.Response(status=304)
        response = answer(request, body)
        response.headers["ETag"] = f'"{etag}"'
        return response

    async def _discover(self, request: web.BaseRequest, steps: list[str]) -> web.StreamResponse:
        catalog = self._api.catalog
        if request.method != "GET":
            raise method_not_allowed()
        form = wanted_form(request.headers.get("Accept", ""))
        match steps:
            case ["api" | "apis" as root] if form.kind == "APIGroupDiscoveryList":
                body = discovery.aggregated(catalog, core=root == "api")
                response = answer(request, body)
                kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                response.headers["Content-Type"] = kind
                return response
            case ["api"]:
                return await answer_as(request, form, discovery.api_versions())
            case ["apis"]:
                return await answer_as(request, form, discovery.group_list(catalog))
            case ["apis", name] if name in discovery.group_names(catalog):
                return await answer_as(request, form, discovery.group(catalog, name))
            case ["api", version]:
                resources = discovery.resource_list(catalog, "", version)
            case ["apis", name, version]:
                resources = discovery.resource_list(catalog, name, version)
            case _:
                resources = None
        if resources is None:
            raise no_such_path()
        return await answer_as(request, form, resources)

    async def _handle_objects(self, request: web.BaseRequest, steps: list[str]) -> web.StreamResponse:
        """Requests for objects. `steps` is [group, version, …]."""
        if (resource := discovery.REVIEWS.get((steps[0], steps[2]))) is not None and len(steps) == 3:
            if request.method != "POST":
                raise method_not_allowed()
            if wanted_form(request.headers.get("Accept", "")).kind:
                raise not_acceptable()  # a review is not stored: it has no table
            content = await decode_body(await read_body(request), request.content_type, "")
            if not isinstance(content, dict):
                raise bad_request("expected an object")
            self._authorize(request, Action("create", resource.group, resource.plural))
            return answer(request, review(resource, content, request[_USER], self._tokens, self._rbac), 201)
        target = find_target(self._api.catalog, steps)
        if target is None:
            raise no_such_path()
        form = wanted_form(request.headers.get("Accept", ""))
        verb = _VERBS.get(request.method, "")
        if target.subresource is not None:
            if verb not in target.subresource.verbs:
                raise method_not_allowed()
            self._reject_unsimulated(target)
        elif not target.name:
            verb = {"get": "list", "delete": "deletecollection", "create": "create"}.get(verb, "")
            if verb not in target.resource.verbs:
                raise method_not_allowed()
        elif verb == "create" or verb not in target.resource.verbs:
            raise method_not_allowed()
        is_watch = verb == "list" and flag(request, "watch")
        self._authorize(request, _resource_action("watch" if is_watch else verb, target))
        return await self._dispatch(request, verb, target, form)

    def _reject_unsimulated(self, target: Target) -> None:
        """Rejects requests for logs and other features of real nodes, if the object exists."""
        assert target.subresource is not None
        if why := target.subresource.unavailable:
            self._api.document(target.resource, target.name, target.namespace)
            raise not_simulated(why)

    async def _dispatch(
        self, request: web.BaseRequest, verb: str, target: Target, form: Form
    ) -> web.StreamResponse:
        if verb == "list":
            if flag(request, "watch"):
                return await self._watcher.watch(request, target, form)
            return await self._reader.list(request, target, form)
        if verb == "get":
            if target.subresource_name == "scale":
                found = get_scale(self._api, target.resource, target.name, target.namespace)
                return await answer_as(request, form, found)
            return await self._reader.get(request, target, form)
        if verb == "create":
            if not target.namespace and target.resource.namespaced:
                raise method_not_allowed()
            return await self._writer.create(request, target, form)
        if verb == "update":
            return await self._writer.update(request, target, form)
        if verb == "patch":
            return await self._writer.patch(request, target, form)
        if verb == "delete":
            return await self._writer.delete(request, target, form)
        return await self._writer.delete_all(request, target, form)


def _resource_action(verb: str, target: Target) -> Action:
    resource, sub = target.resource, target.subresource_name
    named = f"{resource.plural}/{sub}" if sub else resource.plural
    if target.resource == NAMESPACES and target.name:
        return Action(verb, resource.group, named, target.name, target.name)
    return Action(verb, resource.group, named, target.name, target.namespace)


def _reviewed_action(spec: Content) -> Action:
    path, wanted = spec.get("nonResourceAttributes"), spec.get("resourceAttributes") or {}
    if path:
        return Action(path.get("verb", ""), path=path.get("path", ""))
    resource, sub = wanted.get("resource", ""), wanted.get("subresource", "")
    named = f"{resource}/{sub}" if sub else resource
    return Action(
        wanted.get("verb", ""),
        wanted.get("group", ""),
        named,
        wanted.get("name", ""),
        wanted.get("namespace", ""),
    )


_EVERYTHING: Final = ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},)
_EVERY_PATH: Final = ({"verbs": ["*"], "nonResourceURLs": ["*"]},)


def review(resource: Resource, content: Content, user: User, tokens: Tokens, rbac: RBAC | None) -> Content:
    """The review with its status. Without RBAC users of tokens may do everything."""
    spec = content.get("spec") or {}
    status: Content
    if resource.kind == "SelfSubjectReview":
        status = {"userInfo": user.info()}
    elif resource.kind == "TokenReview":
        token = spec.get("token")
        found = tokens.user(token) if isinstance(token, str) else None
        status = {"user": {}} if found is None else {"authenticated": True, "user": found.info()}
    elif resource.kind == "SelfSubjectRulesReview":
        rules = list(_EVERYTHING + _EVERY_PATH)
        if rbac is not None and MASTERS not in user.groups:
            rules = list(rbac.rules(user, spec.get("namespace", "")))
        status = {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }
    elif resource.kind == "SelfSubjectAccessReview":
        status = {"allowed": rbac is None or rbac.allows(user, _reviewed_action(spec))}
    else:
        # Reviews about other users: for example of a scheduler's own server, about clients that want its
        # metrics.
        about = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        allowed = MASTERS in about.groups if rbac is None else rbac.allows(about, _reviewed_action(spec))
        status = {"allowed": allowed}
    return {
        "metadata": {},
        **content,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "status": status,
    }
