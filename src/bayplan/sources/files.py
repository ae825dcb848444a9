"""Reads clusters from files: API objects, or scenarios.

| file | content |
|---|---|
| `.jsonl`, `.jsonl.gz` | scenarios or recorded decisions, one per line; read one at a time |
| `.json`, `.yaml`, `.yml`, with `.gz` too | API objects, Lists of them, or scenarios |
| a directory | the API objects of all YAML and JSON files in it, as one cluster |
| `-` | standard input, any of the above |
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.api.decode import decode_documents
from bayplan.api.defaults import with_defaults
from bayplan.api.documents import Document, parse_documents, read_documents
from bayplan.api.input_files import read_lines, read_stream
from bayplan.api.nesting import decode_json
from bayplan.errors import DecodeError, InputError
from bayplan.releases import Release
from bayplan.sources.loaded import LoadedCluster
from bayplan.sources.scenario import is_scenario, read_scenario

STDIN: Final = "-"
LINES: Final = (".jsonl", ".jsonl.gz")

_SCENARIO: Final = "this is a scenario: only `bayplan decide` reads them"
_BROKEN_JSON: Final = "broken JSON: {why}"


def read_clusters(file: str, release: Release | None = None) -> Iterator[LoadedCluster]:
    """The clusters in a file, one after the other.

    `release` is the release to decide as; None: the one that a scenario names, or the default.

    Raises:
        InputError: it is missing or broken, or an object in it is malformed; the error names the place.
    """
    if file == STDIN:
        yield from _clusters_of(_standard_input(), file, release)
    elif file.endswith(LINES) and not Path(file).is_dir():
        for line, content in _json_lines(Path(file)):
            yield read_scenario(content, source=file, line=line, release=release)
    else:
        yield from _clusters_of(read_documents(Path(file)), file, release)


def read_cluster(files: Sequence[str]) -> LoadedCluster:
    """The objects of all the files and directories as one cluster.

    Raises:
        InputError: one is missing or broken, an object is malformed or occurs twice, or it is a scenario.
    """
    documents: list[Document] = []
    for file in files:
        documents += _standard_input() if file == STDIN else read_documents(Path(file))
    for document in documents:
        if is_scenario(document.content):
            raise DecodeError(_SCENARIO, source=document.source, line=document.line)
    name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    return _cluster(documents, name)


def _clusters_of(
    documents: Iterable[Document], file: str, release: Release | None
) -> Iterator[LoadedCluster]:
    """Scenarios if the first document is one; otherwise all documents are one cluster."""
    documents = list(documents)
    if documents and is_scenario(documents[0].content):
        for document in documents:
            yield read_scenario(document.content, source=document.source, line=document.line, release=release)
        return
    yield _cluster(documents, file)


def _cluster(documents: Iterable[Document], name: str) -> LoadedCluster:
    objects = decode_documents(documents)
    try:
        return LoadedCluster(name, with_defaults(objects), source=name)
    except InputError as error:
        raise error.at(source=name) from error.__cause__


def _standard_input() -> Iterator[Document]:
    data = read_stream(sys.stdin.buffer, STDIN)
    return parse_documents(data, STDIN, is_json=data.lstrip().startswith(b"{"))


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Each line that is not empty, with its number."""
    source = str(path)
    try:
        for number, line in read_lines(path):
            try:
                yield number, decode_json(line)
            except DecodeError as error:
                raise error.at(source=source, line=number) from None
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DecodeError(_BROKEN_JSON.format(why=error), source=source, line=number) from error
    except OSError as error:
        raise DecodeError(error.strerror or str(error), source=source) from error
