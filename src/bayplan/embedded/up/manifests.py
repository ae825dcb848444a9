"""Applies objects from files to a cluster as `kubectl apply` would, but without HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bayplan.answers.sources.files import read_cluster
from bayplan.answers.sources.snapshot import is_snapshot_file
from bayplan.api.documents import Document, parse_documents, read_documents
from bayplan.api.input_files import read_stream
from bayplan.embedded.server.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODES, Resource, UnknownKindError
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.schema.types import TypeMismatchError, clean, type_of
from bayplan.embedded.server.statuses import AbsentError
from bayplan.embedded.up.restoring import Snapshot
from bayplan.errors import APIError, DecodeError

STDIN: Final = "-"
_STDIN_NAME: Final = "standard input"

_NO_OBJECT: Final = "this is no API object: it has no {field}"


def read_manifests(files: Iterable[str]) -> list[list[Document]]:
    """The objects of each file or directory, with the items of Lists.

    Raises:
        DecodeError: something is not an object, with file and line.
    """
    return [list(_objects(file)) for file in files]


def read_manifests_or_snapshots(files: Iterable[str]) -> list[list[Document] | Snapshot]:
    """The same, but files that are snapshots as `Snapshot`.

    Raises:
        InputError: something is not an object, with file and line.
    """
    return [_snapshot(file) or list(_objects(file)) for file in files]


def _snapshot(file: str) -> Snapshot | None:
    if file == STDIN or not Path(file).is_file() or not is_snapshot_file(Path(file)):
        return None
    loaded = read_cluster([file])
    return Snapshot(loaded.objects, loaded.release)


def _objects(file: str) -> Iterator[Document]:
    if file == STDIN:
        documents = parse_documents(read_stream(sys.stdin.buffer, _STDIN_NAME), _STDIN_NAME)
    else:
        documents = read_documents(Path(file))
    for document in documents:
        yield from _flattened(document)


def _flattened(document: Document) -> Iterator[Document]:
    content = document.content
    if not isinstance(content, dict):
        raise DecodeError(_NO_OBJECT.format(field="fields"), source=document.source, line=document.line)
    for field in ("apiVersion", "kind"):
        if not isinstance(content.get(field), str):
            raise DecodeError(_NO_OBJECT.format(field=field), source=document.source, line=document.line)
    if content["kind"] == "List" and content["apiVersion"] == "v1":
        for item in content.get("items") or ():
            yield from _flattened(Document(item, document.source, document.line))
    else:
        yield document


def is_definition(document: Document) -> bool:
    """Whether it is a CustomResourceDefinition."""
    return bool(document.content["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind)


def is_node(document: Document) -> bool:
    return bool(document.content["kind"] == NODES.kind and document.content["apiVersion"] == "v1")


def apply(api: ObjectAPI, documents: Iterable[Document]) -> int:
    """Creates or updates the objects. Returns their number.

    Raises:
        DecodeError: the API rejects one, with file and line.
    """
    count = 0
    for document in documents:
        try:
            _apply(api, document)
        except UnknownKindError as error:
            raise DecodeError(str(error), source=document.source, line=document.line) from None
        except APIError as error:
            raise DecodeError(str(error), source=document.source, line=_line(document, error)) from None
        count += 1
    return count


def _apply(api: ObjectAPI, document: Document) -> None:
    resource = api.catalog.of_kind(document.content["apiVersion"], document.content["kind"])
    content = _checked(resource, document)
    meta = content.get("metadata") or {}
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    if resource.namespaced:
        namespace = namespace or "default"
    try:
        if not name:
            raise AbsentError("it has no name yet")
        api.patch(resource, name, namespace, content)
    except AbsentError:
        api.create(resource, content, namespace)


def _checked(resource: Resource, document: Document) -> dict[str, Any]:
    """The object, after the server's checks of a request body: unknown fields and types.

    `kubectl apply` requests strict validation of unknown fields, so this does, too.
    """
    try:
        cleaned, unknown = clean(document.content, type_of(resource), lenient=resource.schema is not None)
    except TypeMismatchError as error:
        line = document.line_of(error.path)
        raise DecodeError(str(error), source=document.source, line=line) from None
    if unknown:
        line = document.line_of(unknown[0])
        raise DecodeError(f'unknown field "{unknown[0]}"', source=document.source, line=line)
    content: dict[str, Any] = cleaned
    return content


def _line(document: Document, error: APIError) -> int | None:
    """The line of the first field in an error of the API."""
    details = getattr(error, "details", None) or {}
    for cause in details.get("causes") or ():
        if cause.get("field"):
            return document.line_of(str(cause["field"]))
    return document.line
