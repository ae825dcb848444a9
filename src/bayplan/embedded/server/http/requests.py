"""Parses requests: the resource, the object, and the format of the response."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from bayplan.api.documents import parse_documents
from bayplan.api.go_values import GoValueError, parse_int
from bayplan.api.nesting import decode_json
from bayplan.embedded.server import statuses
from bayplan.embedded.server.http.turns import MAX_BYTES, MAX_YAML_BYTES, in_thread_if
from bayplan.embedded.server.kinds import Catalog, Resource, Subresource
from bayplan.embedded.server.schema.protobuf import ProtobufError, decode_protobuf
from bayplan.embedded.server.sizes import check_json, check_names
from bayplan.embedded.server.statuses import StatusError, bad_request, too_large
from bayplan.errors import DecodeError
from bayplan.net import listening

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MAX_BODY_BYTES: Final = 3 * 1024 * 1024

_ACCEPTED: Final = f"accepted media types include: {JSON}, {YAML}, {PROTOBUF}"
_AVAILABLE: Final = (
    f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}, {JSON};stream=watch "
    "(this server answers no protobuf: set the client's content type to application/json)"
)
_BODY_SECONDS: Final = listening.Limits().body_seconds
_JSON_TYPES: Final = (JSON, "", "application/octet-stream")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path under /api or /apis."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: Subresource | None = None

    @property
    def subresource_name(self) -> str:
        return "" if self.subresource is None else self.subresource.name


def find_target(catalog: Catalog, steps: list[str]) -> Target | None:
    """The target of a path, split at its slashes, without `api` and with a group: [group, version, …]."""
    group, version, *rest = steps
    namespace = ""
    if (
        len(rest) >= 3
        and rest[0] == "namespaces"
        and not _belongs_to_namespace(catalog, version, group, rest)
    ):
        namespace = rest[1]
        rest = rest[2:]
    if not rest or (len(rest) > 3 and rest[2] != "proxy"):
        return None
    resource = catalog.find(group, version, rest[0])
    if resource is None or (namespace and not resource.namespaced):
        return None
    target = Target(resource, namespace, rest[1] if len(rest) > 1 else "")
    if resource.namespaced and target.name and not namespace:
        return None
    if len(rest) < 3:
        return target
    subresource = resource.subresource(rest[2])
    return None if subresource is None else replace(target, subresource=subresource)


def _belongs_to_namespace(catalog: Catalog, version: str, group: str, rest: list[str]) -> bool:
    """Whether `namespaces/NAME/WORD` is a part of the namespace itself, not of what is in it."""
    namespaces = catalog.find(group, version, "namespaces")
    return len(rest) == 3 and namespaces is not None and namespaces.subresource(rest[2]) is not None


class Form(NamedTuple):
    """The requested format of a response."""

    kind: str = ""
    """Table, PartialObjectMetadata(List) or APIGroupDiscoveryList; empty for the object itself."""
    yaml: bool = False


def wanted_form(accept: str) -> Form:
    """The first format in an Accept header that this server supports.

    Raises:
        StatusError: there is none; 406.
    """
    if not accept:
        return Form()
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        options = dict(word.partition("=")[::2] for word in parameters)
        kind = options.get("as", "")
        if media not in (JSON, YAML, "*/*", "application/*"):
            continue
        if kind and options.get("v") not in ("v1", "v2"):
            continue
        return Form(kind, media == YAML)
    raise StatusError(_AVAILABLE, 406, reason="NotAcceptable", details={})


def flag(request: web.BaseRequest, name: str) -> bool:
    return request.query.get(name, "") in _TRUE


def integer(request: web.BaseRequest, name: str) -> int | None:
    """A parameter that is a number.

    Raises:
        StatusError: it is none; 400.
    """
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        return parse_int(text)
    except GoValueError as error:
        raise bad_request(str(error)) from None


def is_dry_run(request: web.BaseRequest, kind: str) -> bool:
    """Whether nothing is to be written. `kind` is the kind of the options, for messages."""
    given = request.query.getall("dryRun", [])
    if not given:
        return False
    if given != ["All"]:
        raise statuses.invalid_options(kind, [statuses.unsupported("dryRun", given, ["All"])])
    return True


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
    return await in_thread_if(is_large, lambda: _decoded(body, content_type, what))


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
    if content_type.removesuffix("+yaml") in (YAML, "application/apply-patch"):
        try:
            if body.lstrip().startswith(b"{"):
                return decode_bounded(body)  # as kubectl sends it; JSON is YAML, and much faster to read
        except (msgspec.DecodeError, DecodeError):
            pass  # YAML can begin like this, and its parser reports the line of an error
        try:
            documents = list(parse_documents(body))
        except DecodeError as error:
            raise bad_request(f"{what}yaml: {error}") from error
        if len(documents) != 1:
            raise bad_request(f"{what}yaml: expected one document, got {len(documents)}")
        check_names(documents[0].content)
        return documents[0].content
    if content_type == PROTOBUF:
        try:
            content = decode_protobuf(body)
            check_names(content)
            return content
        except ProtobufError as error:
            raise bad_request(f"{what}{error}") from error
    message = f"the body of the request was in an unknown format - {_ACCEPTED}"
    raise StatusError(message, 415, reason="UnsupportedMediaType")


def _excerpt(body: bytes) -> str:
    text = body[:30].decode(errors="replace")
    return text if len(body) <= 30 else f"{text} ..."
