"""fieldValidation: what a request asks to do about unknown and repeated fields: Strict, Warn or Ignore."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from aiohttp import web

from bayplan.embedded.server import statuses
from bayplan.embedded.server.schema.types import MAX_UNKNOWN
from bayplan.embedded.server.statuses import StatusError

MAX_WARNING_CHARACTERS: Final = 4 * 1024
"""Of all warnings of a response: clients limit the size of headers."""


def validation_mode(request: web.BaseRequest) -> str:
    how = request.query.get("fieldValidation", "") or "Warn"
    if how not in ("Strict", "Warn", "Ignore"):
        problem = statuses.unsupported("fieldValidation", how, ["", "Ignore", "Strict", "Warn"])
        raise statuses.invalid_options("CreateOptions", [problem])
    return how


def repeated_fields(request: web.BaseRequest, body: bytes) -> list[str]:
    """The fields that a body of JSON has more than once, as problems."""
    if validation_mode(request) == "Ignore" or not body.lstrip().startswith((b"{", b"[")):
        return []
    try:
        return [f'duplicate field "{path}"' for path in duplicate_fields(body)]
    except ValueError:
        return []  # YAML in braces, whose reader refuses them


def report(
    request: web.BaseRequest,
    found: list[str],
    warnings: list[str],
    refuse: Callable[[list[str]], StatusError],
) -> None:
    """Refuses unknown and repeated fields, warns of them or ignores them, as the request asks."""
    how = validation_mode(request)
    if found and how == "Strict":
        raise refuse(found)
    if how == "Warn":
        warnings += found


def duplicate_fields(body: bytes) -> list[str]:
    """The paths of fields that JSON has more than once; the last one counts."""
    repeated: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            names = Counter(name for name, _ in pairs)
            repeated[id(content)] = content, [name for name, count in names.items() if count > 1]
        return content

    whole = json.loads(body, object_pairs_hook=made)
    return list(islice(_paths(whole, "", repeated), MAX_UNKNOWN)) if repeated else []


def _paths(content: Any, path: str, repeated: Mapping[int, tuple[Any, list[str]]]) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    if isinstance(content, dict):
        yield from (f"{prefix}{name}" for name in repeated.get(id(content), (None, []))[1])
        for name, part in content.items():
            yield from _paths(part, f"{prefix}{name}", repeated)
    elif isinstance(content, list):
        for i, part in enumerate(content):
            yield from _paths(part, f"{path}[{i}]", repeated)


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
