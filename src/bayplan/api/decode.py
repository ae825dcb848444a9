"""Decodes objects: a single one, a list, or files of them.

Unknown fields and kinds are ignored, as Kubernetes requires of clients older than the server. Errors are
`DecodeError` or another `InputError` that names file, line, object and field, in our own words.

`decode_json` is for what an API server sends (fast, trusted), everything else for what people write (checked
by `check.py`). Neither sets defaults: see `defaults.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from bayplan.api.check import check_decoded, object_key
from bayplan.api.documents import Document, parse_documents, read_documents
from bayplan.api.kinds import KINDS, Kind
from bayplan.api.meta import DEFAULT_NAMESPACE, Object
from bayplan.api.reading import (
    decode_record,
    is_about_time,
    mismatched_types,
    problem_and_field,
    type_in_words,
    without_nulls,
)
from bayplan.api.yaml_reader import TOO_DEEP
from bayplan.errors import DecodeError, InputError

_PYTHON_TYPES: Final = {"str": str, "int": int, "float": float, "bool": bool, "array": list, "object": dict}

_NOT_AN_OBJECT: Final = "expected an API object (a mapping with apiVersion and kind), got {actual}"
_NO_KIND: Final = "it is missing"
_EXPECTED: Final = "expected {expected}, got {actual}"
_NOT_A_TIME: Final = "expected a time such as 2026-01-31T12:00:00Z"
_OUT_OF_RANGE: Final = "the number is out of range"
_INVALID_JSON: Final = "invalid JSON: {why}"
_IN_ITSELF: Final = "it is nested too deeply, or contains itself"
_TWICE: Final = "the object occurs twice; first {where}"


def decode_object(raw: Mapping[str, Any], *, source: str = "", line: int | None = None) -> Object | None:
    """The record of one object, checked; None for kinds that scheduling does not read.

    Raises:
        InputError: it is malformed; the error names the object and the field.
    """
    try:
        record = _record_of(raw)
        if record is None:
            return None
        obj = _convert(raw, record)
        check_decoded(obj)
    except InputError as error:
        raise error.at(source=source, line=line) from error.__cause__
    except RecursionError as error:
        raise DecodeError(_IN_ITSELF, source=source, line=line, object_key=_raw_key(raw)) from error
    return obj


def decode_all(raw: Any, *, source: str = "", line: int | None = None) -> list[Object]:
    """The records of an object or, for a List, of its items; without those of unknown kind.

    Raises:
        InputError: one of them is malformed.
    """
    decoded = (decode_object(item, source=source, line=line) for _, item in _expand(raw, source, line))
    return [obj for obj in decoded if obj is not None]


def decode_json(kind: Kind, data: bytes | str) -> Object:
    """The record of one object of this kind from an API server's JSON, unchecked.

    Raises:
        DecodeError: it is malformed.
    """
    record = kind.record

    def invalid(raw: Any, error: msgspec.ValidationError) -> NoReturn:
        raise _explained(error, raw, record) from error

    try:
        return decode_record(record, data, invalid, in_lists=False)
    except RecursionError as error:
        raise DecodeError(TOO_DEEP, object_key=kind.name) from error
    except msgspec.DecodeError as error:
        raise DecodeError(_INVALID_JSON.format(why=error), object_key=kind.name) from error


def read_objects(path: Path) -> list[Object]:
    """The objects of a YAML or JSON file, or of all such files of a directory; `.gz` is unpacked.

    Raises:
        InputError: a file is missing or invalid, or an object is malformed or occurs twice.
    """
    return decode_documents(read_documents(path))


def parse_objects(data: bytes, source: str = "", *, is_json: bool = False) -> list[Object]:
    """The objects in YAML or JSON text, as `read_objects` gives them; `source` is for messages."""
    return decode_documents(parse_documents(data, source, is_json=is_json))


def decode_documents(documents: Iterable[Document]) -> list[Object]:
    """The objects in documents that were read before, as `read_objects` gives them."""
    objects: list[Object] = []
    first_seen: dict[tuple[type[Object], str, str], tuple[Document, str]] = {}
    for document in documents:
        for path, raw in _expand(document.content, document.source, document.line):
            place = document, path
            try:
                obj = decode_object(raw)
                if obj is None:
                    continue
                identity = type(obj), obj.namespace or DEFAULT_NAMESPACE, obj.name
                if obj.name and (first := first_seen.setdefault(identity, place)) is not place:
                    raise DecodeError(_TWICE.format(where=_where(*first)), object_key=object_key(obj))
            except InputError as error:
                inside = f"{path}.{error.field}" if path and error.field else error.field or path
                line = document.line_of(inside)
                raise error.at(source=document.source, line=line) from error.__cause__
            objects.append(obj)
    return objects


def _where(document: Document, path: str) -> str:
    line = document.line_of(path)
    return document.source if line is None else f"{document.source}:{line}"


def expand_lists(raw: Any, source: str = "", line: int | None = None) -> Iterator[Mapping[str, Any]]:
    """The objects in a document: itself, or the items of a List.

    Raises:
        DecodeError: it is neither.
    """
    return (item for _, item in _expand(raw, source, line))


def _expand(raw: Any, source: str, line: int | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each object in `raw` with its path: `raw` itself, or the items of a List."""
    if raw is None:
        return
    if not isinstance(raw, Mapping):
        actual = type_in_words(_type_name(raw))
        raise DecodeError(_NOT_AN_OBJECT.format(actual=actual), source=source, line=line)
    kind = raw.get("kind")
    items = raw.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in raw:
        yield "", raw
        return
    if items is not None and not isinstance(items, list):
        problem = _EXPECTED.format(expected="a list", actual=type_in_words(_type_name(items)))
        raise DecodeError(problem, object_key=kind, field="items", source=source, line=line)
    for i, item in enumerate(items or ()):
        if isinstance(item, Mapping) and "kind" not in item and kind != "List":
            # The items of a PodList do not repeat kind and apiVersion.
            item = {"apiVersion": raw.get("apiVersion", ""), **item, "kind": kind.removesuffix("List")}
        for _, inner in _expand(item, source, line):
            yield f"items[{i}]", inner


def _record_of(raw: Mapping[str, Any]) -> type[Object] | None:
    kind, api_version = raw.get("kind"), raw.get("apiVersion")
    if kind is None or kind == "":
        raise DecodeError(_NO_KIND, object_key=_raw_key(raw), field="kind")
    if not isinstance(kind, str):
        problem = _EXPECTED.format(expected=type_in_words("str"), actual=type_in_words(_type_name(kind)))
        raise DecodeError(problem, object_key=_raw_key(raw), field="kind")
    # Other groups have kinds of the same name: a Knative Service is not a core Service.
    known = KINDS.get(kind, api_version.rpartition("/")[0] if isinstance(api_version, str) else None)
    return None if known is None or not known.in_files else known.record


def _convert(raw: Any, record: type[Object]) -> Object:
    try:
        return msgspec.convert(raw, record)
    except msgspec.ValidationError:
        pass
    cleaned = without_nulls(raw, in_lists=False)
    try:
        return msgspec.convert(cleaned, record)
    except msgspec.ValidationError as error:
        raise _explained(error, cleaned, record) from error


def _explained(error: msgspec.ValidationError, raw: Any, record: type[Object]) -> DecodeError:
    """msgspec's error ("Expected `int`, got `str` - at `$.spec.x[0]`") in our words, with the field."""
    problem, field = problem_and_field(error)
    if (mismatch := mismatched_types(problem)) is not None:
        expected, actual = mismatch
        if field.endswith("[...]"):
            field = f"{field[:-5]}[{_culprit(raw, field[:-5], actual)}]"
        problem = _EXPECTED.format(expected=expected, actual=type_in_words(actual))
    elif is_about_time(problem):
        problem = _NOT_A_TIME
    elif "`int`" in problem or "out of range" in problem:
        problem = _OUT_OF_RANGE
    return DecodeError(problem, object_key=_raw_key(raw, record.__name__), field=field)


def _culprit(raw: Mapping[str, Any], path: str, actual: str) -> str:
    """The key that msgspec omits (`[...]`): that of the first value of the wrong type in the map."""
    content: Any = raw
    for step in re.findall(r"[^.\[\]]+", path):
        content = content[int(step)] if isinstance(content, list) else content[step]
    wrong = _PYTHON_TYPES.get(actual, object)
    return next((key for key, entry in content.items() if type(entry) is wrong), "...")


def _type_name(raw: Any) -> str:
    return next((name for name, python_type in _PYTHON_TYPES.items() if type(raw) is python_type), "null")


def _raw_key(raw: Any, kind: str = "") -> str:
    """Kind, namespace and name of an object that may be malformed, as far as they can be read."""
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    parts = [metadata.get(part) for part in ("namespace", "name")] if isinstance(metadata, Mapping) else []
    key = "/".join(part for part in parts if isinstance(part, str) and part)
    return f"{kind} {key}".strip()
