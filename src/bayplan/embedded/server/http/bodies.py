"""Bodies of write requests: an object, a patch, or options.

Objects are checked against their types: wrong types are rejected; unknown fields are rejected, reported as a
warning or ignored, as the client requests (`fieldValidation`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from bayplan.embedded.server import statuses
from bayplan.embedded.server.deletion import BACKGROUND, FOREGROUND, ORPHAN, DeleteOptions
from bayplan.embedded.server.http.requests import (
    YAML,
    Target,
    decode_body,
    decode_bounded,
    flag,
    integer,
    is_dry_run,
    is_large_body,
    read_body,
)
from bayplan.embedded.server.http.turns import MAX_BYTES, in_thread_if
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.patching.plain import Content, Patch, json_patch, merge_patch
from bayplan.embedded.server.patching.strategic import strategic_merge_patch
from bayplan.embedded.server.schema.types import TypeMismatchError, clean, named_type, type_of
from bayplan.embedded.server.statuses import StatusError, bad_request
from bayplan.errors import DecodeError

MAX_WARNING_CHARACTERS: Final = 4 * 1024
"""Of all warnings of a response: clients limit the size of headers."""


class ReadObject(NamedTuple):
    """The object in a body."""

    content: Content
    warnings: list[str]
    is_large: bool
    """Whether processing it takes long."""


async def read_object(request: web.BaseRequest, target: Target, kind: str) -> ReadObject:
    """The object in a body. `kind` is set if it is not that of the resource."""
    resource = target.resource
    expected = kind or resource.kind
    what = f"the object provided is unrecognized (must be of type {expected}): couldn't get version/kind; "
    body = await read_body(request)
    content_type = _content_type(request)
    is_large = is_large_body(body, content_type)
    content = await decode_body(body, content_type, what)
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
        check = partial(_checked, request, resource, content, kind, warnings)
        return ReadObject(await in_thread_if(is_large, check), warnings, is_large)
    except TypeMismatchError as error:
        version = api_version.rpartition("/")[2]
        raise bad_request(
            f'{expected} in version "{version}" cannot be handled as a {expected}: {error}'
        ) from error


async def read_configuration(request: web.BaseRequest, resource: Resource, body: bytes) -> ReadObject:
    """The applied configuration of a server-side apply."""
    is_large = is_large_body(body, YAML)
    content = await decode_body(body, YAML, "error decoding YAML: ")
    warnings: list[str] = []
    try:
        check = partial(_checked, request, resource, content, "", warnings)
        return ReadObject(await in_thread_if(is_large, check), warnings, is_large)
    except TypeMismatchError as error:
        raise bad_request(f"failed to create typed patch object: {error}") from error


async def read_patch(target: Target, content_type: str, body: bytes) -> Patch:
    """The patch in a body, by its content type; server-side apply is not among them."""
    if content_type == "application/json-patch+json":
        return json_patch(await _decode_patch(body))
    if content_type == "application/merge-patch+json":
        return merge_patch(await _object_patch(body))
    if content_type == "application/strategic-merge-patch+json" and target.resource.schema is None:
        kind = "Scale" if target.subresource_name == "scale" else ""
        return strategic_merge_patch(await _object_patch(body), type_of(target.resource, kind))
    raise StatusError("415: Unsupported Media Type", 415, reason="UnsupportedMediaType", details={})


def checked_patch(request: web.BaseRequest, resource: Resource, change: Patch, warnings: list[str]) -> Patch:
    """The patch, with a check that its result is an object of the kind."""

    def apply(content: Content) -> Content:
        try:
            return _checked(request, resource, change(content), "", warnings)
        except TypeMismatchError as error:
            problem = statuses.invalid_field("patch", "", str(error))
            raise StatusError(
                f' "" is invalid: {problem}', 422, reason="Invalid", details={"causes": [problem.cause()]}
            ) from error

    return apply


async def read_delete_options(request: web.BaseRequest) -> DeleteOptions:
    """DeleteOptions from the body and the parameters, which take precedence."""
    body = await read_body(request)
    given: Content = {}
    if body:
        content = await decode_body(body, _content_type(request), "")
        try:
            given, _ = clean(content, named_type("DeleteOptions"))
        except TypeMismatchError as error:
            raise bad_request(str(error)) from error
    query = request.query
    if (period := integer(request, "gracePeriodSeconds")) is not None:
        given["gracePeriodSeconds"] = period
    if "propagationPolicy" in query:
        given["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        given["orphanDependents"] = flag(request, "orphanDependents")
    return options_from(given, is_dry_run(request, "DeleteOptions"))


def options_from(given: Content, dry_run: bool) -> DeleteOptions:
    """DeleteOptions as they are in a request."""
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


def warning_headers(warnings: list[str]) -> dict[str, str] | None:
    """Warning headers like those of kube-apiserver: without control characters, and limited."""
    shown: list[str] = []
    length = 0
    for text in dict.fromkeys(warnings):
        if not text.isprintable():
            continue
        length += len(text)
        if length > MAX_WARNING_CHARACTERS:
            break
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        shown.append(f'299 - "{escaped}"')
    return {"Warning": ", ".join(shown)} if shown else None


def _checked(
    request: web.BaseRequest, resource: Resource, content: Any, kind: str, warnings: list[str]
) -> Content:
    is_custom = resource.schema is not None and not kind
    cleaned, unknown = clean(content, type_of(resource, kind), lenient=is_custom)
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


def _content_type(request: web.BaseRequest) -> str:
    return request.content_type if "Content-Type" in request.headers else ""


async def _decode_patch(body: bytes) -> Any:
    try:
        return await in_thread_if(len(body) > MAX_BYTES, lambda: decode_bounded(body))
    except (msgspec.DecodeError, DecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error


async def _object_patch(body: bytes) -> Content:
    patch = await _decode_patch(body)
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    return patch
