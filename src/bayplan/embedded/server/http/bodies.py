"""Reads the bodies of requests: an object, a patch, or options.

Objects are checked against their types: wrong types are rejected; unknown and duplicate fields are rejected,
reported as a warning or ignored, as the client requests (`fieldValidation`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from bayplan.api.documents import parse_documents
from bayplan.api.meta import Content
from bayplan.api.yaml_reader import DUPLICATE_KEY, decode_json
from bayplan.embedded.server import statuses
from bayplan.embedded.server.deletion import BACKGROUND, FOREGROUND, ORPHAN, DeleteOptions
from bayplan.embedded.server.http.field_validation import repeated_fields, report
from bayplan.embedded.server.http.requests import JSON, PROTOBUF, YAML, Target, flag, integer, is_dry_run
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.patching.patches import Patch, json_patch, merge_patch, strategic_merge_patch
from bayplan.embedded.server.schema.protobuf import ProtobufError, decode_protobuf
from bayplan.embedded.server.schema.types import TypeMismatchError, clean, named_type, type_of
from bayplan.embedded.server.sizes import check_json, check_names
from bayplan.embedded.server.statuses import StatusError, bad_request, too_large
from bayplan.embedded.server.steps import MAX_BYTES, MAX_YAML_BYTES, in_thread_if, in_yaml_queue
from bayplan.errors import DecodeError
from bayplan.net import listening

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
MAX_YAML_BODY_BYTES: Final = 1024 * 1024
"""YAML takes twenty times as long as JSON; kubectl sends JSON."""
MAX_QUICK_YAML_BYTES: Final = 64 * 1024
"""Larger bodies of YAML take a second and more to read; they wait in a queue of their own."""

_ACCEPTED: Final = f"accepted media types include: {JSON}, {YAML}, {PROTOBUF}"
_BODY_SECONDS: Final = listening.Limits().body_seconds
_JSON_TYPES: Final = (JSON, "", "application/octet-stream")
_REPEATED_KEY: Final = re.compile(re.escape(DUPLICATE_KEY).replace(r"\{key\}", "(.*)"), re.DOTALL)
_KEY_SET: Final = (
    "{what}error converting YAML to JSON: yaml: unmarshal errors:\n"
    '  line {line}: key "{key}" already set in map'
)


async def read_body(request: web.BaseRequest) -> bytes:
    """The whole body.

    Raises:
        StatusError: it is too large (413), compressed (415), or does not arrive (408).
    """
    try:
        return await listening.read_body(request, max_bytes=MAX_BODY_BYTES, seconds=_BODY_SECONDS)
    except listening.BodyTooLargeError as error:
        raise too_large(f"limit is {MAX_BODY_BYTES}") from error
    except listening.EncodedBodyError as error:
        message = "the body of the request was compressed: send it without Content-Encoding"
        raise StatusError(message, 415, reason="UnsupportedMediaType") from error
    except listening.BodyTimeoutError as error:
        message = f"the body of the request did not arrive within {_BODY_SECONDS:g} seconds"
        raise StatusError(message, 408, reason="Timeout") from error


async def decode_body(body: bytes, content_type: str, what: str) -> Any:
    """The value in a body of JSON, YAML or protobuf; `what` begins the error message.

    Raises:
        StatusError: it is malformed (400), or in a format that this server does not support (415).
    """
    is_large = is_large_body(body, content_type)
    if content_type.removesuffix("+yaml") not in (YAML, "application/apply-patch"):
        return await in_thread_if(is_large, lambda: _decoded(body, content_type, what))
    if body.lstrip().startswith(b"{"):
        try:
            # As kubectl sends it; JSON is YAML, and much faster to read.
            return await in_thread_if(is_large, lambda: decode_bounded(body))
        except (msgspec.DecodeError, DecodeError):
            pass  # YAML can begin like this, and its parser reports the line of an error
    if len(body) > MAX_YAML_BODY_BYTES:
        raise too_large(f"limit is {MAX_YAML_BODY_BYTES} for YAML; JSON may be larger")
    if len(body) > MAX_QUICK_YAML_BYTES:
        return await in_yaml_queue(lambda: _decoded_yaml(body, what))
    return await in_thread_if(is_large, lambda: _decoded_yaml(body, what))


def is_large_body(body: bytes, content_type: str) -> bool:
    return len(body) > (MAX_BYTES if content_type in _JSON_TYPES else MAX_YAML_BYTES)


def decode_bounded(body: bytes) -> Any:
    """Decodes JSON within the limits of depth, number of values and length of names.

    Raises:
        StatusError: there are too many values, or a name is too long; 413.
        DecodeError: it is nested too deeply.
        msgspec.DecodeError: it is not JSON.
    """
    check_json(body)
    content = decode_json(body)
    if len(body) > MAX_BYTES:
        check_names(content)
    return content


def _decoded(body: bytes, content_type: str, what: str) -> Any:
    if content_type in _JSON_TYPES:
        try:
            return decode_bounded(body)
        except (msgspec.DecodeError, DecodeError) as error:
            why = error if body else "unexpected end of JSON input"
            raise bad_request(f"{what}json parse error: {why} ({_excerpt(body) or '<empty>'})") from error
    if content_type == PROTOBUF:
        try:
            content = decode_protobuf(body)
            check_names(content)
            return content
        except ProtobufError as error:
            raise bad_request(f"{what}{error}") from error
    message = f"the body of the request was in an unknown format - {_ACCEPTED}"
    raise StatusError(message, 415, reason="UnsupportedMediaType")


def _decoded_yaml(body: bytes, what: str) -> Any:
    try:
        documents = list(parse_documents(body))
    except DecodeError as error:
        if (twice := _REPEATED_KEY.search(str(error))) is not None:
            raise bad_request(_KEY_SET.format(what=what, line=error.line, key=twice[1])) from error
        raise bad_request(f"{what}yaml: {error}") from error
    if len(documents) != 1:
        raise bad_request(f"{what}yaml: expected one document, got {len(documents)}")
    check_names(documents[0].content)
    return documents[0].content


def _excerpt(body: bytes) -> str:
    text = body[:30].decode(errors="replace")
    return text if len(body) <= 30 else f"{text} ..."


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
        check = partial(_checked, request, resource, content, kind, warnings, body)
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

    def refuse(found: list[str]) -> StatusError:
        return bad_request(f"error strict decoding YAML: {', '.join(found)}")

    def check() -> Content:
        cleaned, unknown = clean(content, type_of(resource), lenient=resource.schema is not None)
        if unknown:
            raise _untyped(resource, content, unknown)
        report(request, repeated_fields(request, body), warnings, refuse)
        result: Content = cleaned
        return result

    try:
        return ReadObject(await in_thread_if(is_large, check), warnings, is_large)
    except TypeMismatchError as error:
        raise bad_request(f"failed to create typed patch object: {error}") from error


def _untyped(resource: Resource, content: Content, unknown: Sequence[str]) -> StatusError:
    """The error for unknown fields: they cannot be owned, whatever fieldValidation says, as upstream."""
    # managedfields/internal/structuredmerge.go: Apply. It has no status, so it is sent with 500.
    meta = content.get("metadata") or {}
    problems = [f".{path}: field not declared in schema" for path in unknown]
    why = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
    where = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    about = f"{where}; {resource.api_version}, Kind={resource.kind}"
    return StatusError(f"failed to create typed patch object ({about}): {why}", 500)


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


def checked_patch(
    request: web.BaseRequest, resource: Resource, change: Patch, warnings: list[str], body: bytes
) -> Patch:
    """The patch, with a check that its result is an object of the kind, and that it has no field twice."""

    def refuse(found: list[str]) -> StatusError:
        return _invalid_patch(f"strict decoding error: {', '.join(found)}")

    def apply(content: Content) -> Content:
        try:
            cleaned, unknown = clean(change(content), type_of(resource), lenient=resource.schema is not None)
        except TypeMismatchError as error:
            raise _invalid_patch(str(error)) from error
        found = [f'unknown field "{path}"' for path in unknown]
        report(request, [*repeated_fields(request, body), *found], warnings, refuse)
        result: Content = cleaned
        return result

    return apply


def checked_scale(resource: Resource, content: Any) -> Content:
    """The Scale that a patch makes.

    Raises:
        StatusError: it is not one; 422.
    """
    try:
        scale: Content = clean(content, type_of(resource, "Scale"))[0]
    except TypeMismatchError as error:
        raise _invalid_patch(str(error)) from error
    return scale


def _invalid_patch(why: str) -> StatusError:
    problem = statuses.invalid_field("patch", "", why)
    return StatusError(
        f' "" is invalid: {problem}', 422, reason="Invalid", details={"causes": [problem.cause()]}
    )


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


def _checked(
    request: web.BaseRequest,
    resource: Resource,
    content: Any,
    kind: str,
    warnings: list[str],
    body: bytes,
) -> Content:
    is_custom = resource.schema is not None and not kind
    cleaned, unknown = clean(content, type_of(resource, kind), lenient=is_custom)
    found = [f'unknown field "{path}"' for path in unknown]

    def refuse(found: list[str]) -> StatusError:
        name = kind or resource.kind
        return bad_request(
            f'{name} in version "{resource.version}" cannot be handled as a {name}: '
            f"strict decoding error: {', '.join(found)}"
        )

    report(request, [*found, *repeated_fields(request, body)], warnings, refuse)
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
