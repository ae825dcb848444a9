"""Parses the paths and parameters of requests, and the requested format of the response.

`bodies.py` reads the bodies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from aiohttp import web

from bayplan.api.go_values import GoValueError, parse_int
from bayplan.embedded.server import statuses
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.kinds import Resource, Subresource
from bayplan.embedded.server.statuses import StatusError, bad_request

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_AVAILABLE: Final = (
    f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}, {JSON};stream=watch "
    "(this server answers watches, tables and custom resources in JSON only)"
)
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
    protobuf: bool = False
    or_json: bool = False
    """Protobuf is preferred, and JSON accepted."""


def wanted_form(accept: str) -> Form:
    """The first format in an Accept header that this server supports.

    Raises:
        StatusError: there is none; 406.
    """
    if not accept:
        return Form()
    is_protobuf = False
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        options = dict(word.partition("=")[::2] for word in parameters)
        kind = options.get("as", "")
        is_protobuf = is_protobuf or (media == PROTOBUF and not kind)
        if media not in (JSON, YAML, "*/*", "application/*"):
            continue
        if kind and options.get("v") not in ("v1", "v2"):
            continue
        if is_protobuf and not kind and media != YAML:
            return Form(protobuf=True, or_json=True)
        return Form(kind, media == YAML)
    if is_protobuf:
        return Form(protobuf=True)
    raise not_acceptable()


def not_acceptable() -> StatusError:
    return StatusError(_AVAILABLE, 406, reason="NotAcceptable", details={})


def flag(request: web.BaseRequest, name: str) -> bool:
    return request.query.get(name, "") in _TRUE


def integer(request: web.BaseRequest, name: str) -> int | None:
    """A parameter that is a number.

    Raises:
        StatusError: 400, it is not a number.
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


MAX_MANAGER_BYTES: Final = 128
_OPTIONS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}


def given_manager(request: web.BaseRequest) -> str:
    """The field manager of the query, which is written into objects; empty if there is none.

    Raises:
        StatusError: it is too long, or has characters that cannot be printed; 422.
    """
    # validation.go: ValidateFieldManager
    manager = request.query.get("fieldManager", "")
    problems = []
    if len(manager.encode(errors="replace")) > MAX_MANAGER_BYTES:
        problems.append(statuses.too_long("fieldManager", MAX_MANAGER_BYTES))
    for i, character in enumerate(manager):
        if not character.isprintable():
            why = f"invalid character U+{ord(character):04X} (at position {i})"
            problems.append(statuses.invalid_field("fieldManager", manager, why))
            break
    if problems:
        raise statuses.invalid_options(_OPTIONS[request.method], problems)
    return manager
