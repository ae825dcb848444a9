"""Reads clusters from files: API objects, or scenarios.

| file | content |
|---|---|
| `.jsonl`, `.jsonl.gz` | scenarios or recorded decisions, one per line; read one at a time |
| `.json`, `.yaml`, `.yml`, with `.gz` too | API objects, Lists of them, a snapshot, or scenarios |
| a directory | the API objects of all YAML and JSON files in it, as one cluster |
| `-` | standard input, any of the above |
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.snapshot import (
    CONFIG_MAP,
    QUEUES_YAML,
    decode_listing,
    decode_snapshot,
    from_header,
    is_snapshot,
    read_header,
)
from bayplan.api.check import object_key
from bayplan.api.decode import decode_documents, decode_object, expand_lists
from bayplan.api.defaults import with_defaults
from bayplan.api.documents import (
    Document,
    is_json_file,
    parse_documents,
    read_document_files,
    read_lines,
    read_stream,
)
from bayplan.api.kinds import KINDS
from bayplan.api.meta import DEFAULT_NAMESPACE, Object
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release, parse_release
from bayplan.api.yaml_reader import decode_json
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import ConfigError, DecodeError, InputError

STDIN: Final = "-"
LINES: Final = (".jsonl", ".jsonl.gz")

_SCENARIO: Final = "this is a scenario: only `bayplan decide` reads them"
_TWICE: Final = "the object is in two files"
_INVALID_JSON: Final = "invalid JSON: {why}"

# Scenarios
OBJECTS: Final = "objects"
PODS: Final = "pods"
VERSION: Final = "kubernetesVersion"
"""The key of the release that a scenario is to be decided as: `1.36`."""
WRAPPED: Final = "scenario"
"""The key of the scenario in a line of recorded decisions, beside the expected results."""
_NOT_A_LIST: Final = "expected a list of API objects"
_NOT_A_MAPPING: Final = 'expected a scenario, a mapping with "objects" and "pods"'
_NOT_A_POD: Final = 'only Pods are allowed in "pods"'


def read_clusters(file: str, release: Release | None = None) -> Iterator[LoadedCluster]:
    """The clusters in a file, one after the other: scenarios if the first document is one.

    `release` is the release to decide as; None: the one that a scenario names, or the default.

    Raises:
        InputError: it is missing or invalid, or an object in it is malformed; the error names the place.
    """
    if file.endswith(LINES) and not Path(file).is_dir():
        for line, content in _json_lines(Path(file)):
            yield read_scenario(content, source=file, line=line, release=release)
        return
    files = _Files()
    files.add(file)
    if files.documents and is_scenario(files.documents[0].content):
        for document in files.documents:
            yield read_scenario(document.content, source=document.source, line=document.line, release=release)
        return
    yield files.cluster(file)


def read_cluster(files: Sequence[str]) -> LoadedCluster:
    """The objects of all the files and directories as one cluster.

    Raises:
        InputError: one is missing or invalid, an object is malformed or occurs twice, or it is a scenario.
    """
    found = _Files()
    for file in files:
        found.add(file)
    for document in found.documents:
        if is_scenario(document.content):
            raise DecodeError(_SCENARIO, source=document.source, line=document.line)
    first = "standard input" if files[0] == STDIN else files[0]
    return found.cluster(first if len(files) == 1 else f"{first} and {len(files) - 1} more")


class _Files:
    """The content of several files: snapshots, and documents with objects."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._snapshots: list[LoadedCluster] = []
        self._stored: list[Sequence[Object]] = []
        """The objects of snapshots and of a server's lists, in the order of the files."""

    def add(self, file: str) -> None:
        if file == STDIN:
            data = read_stream(sys.stdin.buffer, STDIN)
            self._add(data, STDIN, is_json=data.lstrip().startswith(b"{"))
            return
        for path, data in read_document_files(Path(file)):
            self._add(data, str(path), is_json=is_json_file(path))

    def cluster(self, name: str) -> LoadedCluster:
        """Everything as one cluster. An edited snapshot is among the documents; its header still counts."""
        added = decode_documents(self.documents)
        headers = [header for document in self.documents if (header := read_header(document))]
        parts = [*self._snapshots, *(from_header(header, (), name) for header in headers)]
        stored = [item for objects in self._stored for item in objects]
        _check_once(stored, added, several=len(self._stored) > 1)
        try:
            objects = [*stored, *with_defaults(added, stored)]
        except InputError as error:
            raise error.at(source=name) from error.__cause__
        texts = self._queues_texts()
        if not parts:
            return LoadedCluster(name, objects, source=name, queues_texts=texts)
        warnings = tuple(warning for part in parts for warning in part.warnings)
        return replace(
            parts[0], name=name, objects=objects, source=name, queues_texts=texts, warnings=warnings
        )

    def _queues_texts(self) -> dict[str, str]:
        """The queues.yaml of every ConfigMap; the configuration names the one that is used."""
        found = {}
        for document in self.documents:
            for item in expand_lists(document.content, document.source, document.line):
                meta, data = item.get("metadata"), item.get("data")
                if item.get("kind") == CONFIG_MAP and isinstance(meta, Mapping):
                    text = data.get(QUEUES_YAML) if isinstance(data, Mapping) else ""
                    key = f"{meta.get('namespace') or DEFAULT_NAMESPACE}/{meta.get('name')}"
                    found[key] = text if isinstance(text, str) else ""
        return found

    def _add(self, data: bytes, source: str, *, is_json: bool) -> None:
        snapshot = decode_snapshot(data, source) if is_json and is_snapshot(data) else None
        # What is read by the reader of files comes last, so the order of files would not be kept after it.
        listed = decode_listing(data) if is_json and snapshot is None and not self.documents else None
        if snapshot is not None:
            self._snapshots.append(snapshot)
            self._stored.append(snapshot.objects)
        elif listed is not None:
            self._stored.append(listed)
        else:
            self.documents += parse_documents(data, source, is_json=is_json)


def _check_once(stored: Sequence[Object], added: Sequence[Object], *, several: bool) -> None:
    """Rejects an object of a snapshot that is also in another file; within a file the reader does it."""
    if not stored or not (added or several):
        return
    known: set[tuple[type[Object], str, str]] = set()
    for item in stored:
        identity = (type(item), item.namespace, item.name)
        if identity in known:
            raise DecodeError(_TWICE, object_key=object_key(item))
        known.add(identity)
    for item in added:
        namespace = item.namespace or (DEFAULT_NAMESPACE if KINDS.of(type(item)).namespaced else "")
        if (type(item), namespace, item.name) in known:
            raise DecodeError(_TWICE, object_key=object_key(item))


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
                raise DecodeError(_INVALID_JSON.format(why=error), source=source, line=number) from error
    except OSError as error:
        raise DecodeError(error.strerror or str(error), source=source) from error


# Scenarios: a cluster and pending pods as one JSON object (conformance/README.md describes the format)


def is_scenario(content: Any) -> bool:
    """Whether this is a scenario (or a recorded decision that contains one) and not an API object."""
    return (
        isinstance(content, Mapping) and "kind" not in content and not {OBJECTS, WRAPPED}.isdisjoint(content)
    )


def read_scenario(
    content: Any, *, source: str = "", line: int | None = None, release: Release | None = None
) -> LoadedCluster:
    """The cluster that a scenario, or a recorded decision that contains one, describes.

    `release` is the release to decide as; None: that of the scenario's `kubernetesVersion`, or the default.

    Its objects are used as an API server stores them. If some have never been in one (neither uid nor
    resourceVersion), all get the defaults that a server would set.

    Raises:
        InputError: it is malformed; the error names file, line, object and field.
    """
    if isinstance(content, Mapping) and WRAPPED in content:
        content = content[WRAPPED]
    try:
        if not isinstance(content, Mapping):
            raise DecodeError(_NOT_A_MAPPING)
        name = str(content.get("name", ""))
        objects, pods = _objects(content, OBJECTS), _objects(content, PODS)
        if any(not item.uid and not item.metadata.resource_version for item in (*objects, *pods)):
            complete = with_defaults((*objects, *pods))
            objects, pods = complete[: len(objects)], complete[len(objects) :]
        pending = [_pod(item) for item in pods]
        release = _release(content) if release is None else release
    except InputError as error:
        raise error.at(source=source, line=line) from error.__cause__
    config = _config(content, source, line, release)

    def reload(other: Release) -> LoadedCluster:
        return read_scenario(content, source=source, line=line, release=other)

    return LoadedCluster(name, objects, pending, config, source, line, release=release, reload=reload)


def _release(scenario: Mapping[str, Any]) -> Release:
    version = scenario.get(VERSION)
    if version is None:
        return DEFAULT_RELEASE
    try:
        return parse_release(str(version))
    except ConfigError as error:
        raise DecodeError(str(error), field=VERSION) from None


def _config(
    scenario: Mapping[str, Any], source: str, line: int | None, release: Release
) -> KubeSchedulerConfiguration | None:
    config = scenario.get("config")
    if config is None:
        return None
    text = config if isinstance(config, str) else msgspec.json.encode(config).decode()
    place = source if line is None else f"{source}:{line}"
    try:
        return parse_config(text, f"{place}: config" if place else "config", release=release)
    except InputError as error:
        if not isinstance(config, str):
            # As a part of the scenario it has no lines of its own.
            error.line = None
        raise


def _objects(scenario: Mapping[str, Any], key: str) -> list[Object]:
    raw = scenario.get(key, ())
    if not isinstance(raw, list | tuple) or not all(isinstance(item, Mapping) for item in raw):
        raise DecodeError(_NOT_A_LIST, field=key)
    found = (decode_object(item) for item in raw)
    return [item for item in found if item is not None]


def _pod(item: Object) -> Pod:
    if not isinstance(item, Pod):
        raise DecodeError(_NOT_A_POD, object_key=object_key(item))
    return item
