"""Objects as a server stores them: snapshots, and the lists that `kubectl get … -o json` prints.

A snapshot is what scheduling reads of a cluster, as one JSON file: a `List` of lists, one for each kind
(`PodList`, …), with a header:

    {"apiVersion": "v1", "kind": "List",
     "snapshot": {"formatVersion": 1, "serverVersion": "v1.36.0", "time": …, "kinds": ["Node", …], …},
     "items": [{"apiVersion": "v1", "kind": "NodeList", "items": [...]}, …]}

So whatever reads a dump of kubectl also reads a snapshot; the header adds which kinds are complete. Objects
have only the fields that scheduling reads: no environment variables, no Secrets, no ConfigMaps.

Everything here is decoded straight into records. The reader of ordinary files (`api/documents.py`) makes
plain values first, because it has to name the line of an error, and takes several times as long. It gets what
is unusual: an object that is not from a server, one that occurs twice, one that is malformed.

Pods of a Deployment have the same spec except for the node and the random name of the volume with their
token. With these two values cut out, their specs are the same bytes, so a lookup replaces decoding and
checking (`PodDecoder`). Pods whose specs differ in more are decoded one by one.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api.check import check_decoded
from bayplan.api.decode import decode_json
from bayplan.api.defaults import defaulted
from bayplan.api.documents import GZIP_MAGIC, Document
from bayplan.api.kinds import KINDS, Kind
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import ContainerStatus, Pod, PodSpec, PodStatus
from bayplan.api.reading import problem_and_field
from bayplan.api.releases import DEFAULT_RELEASE, Release, nearest_release
from bayplan.errors import DecodeError, InputError

MAX_TEMPLATES: Final = 4096

_NODE_NAME: Final = b'"nodeName":'
_TOKEN_VOLUME: Final = b'"kube-api-access-'

_decoder: Final = msgspec.json.Decoder(PodSpec)


class PodWithRawSpec(msgspec.Struct, frozen=True, gc=False):
    """A pod whose spec is not decoded yet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = PodStatus()


class _Cut(NamedTuple):
    """A spec without the values that differ from pod to pod."""

    key: tuple[bytes, ...]
    node_name: str
    token_volume: str


class _Template(NamedTuple):
    spec: PodSpec
    token_index: int
    """Which volume has the token; -1: none."""


class PodDecoder:
    """Decodes and checks pods, with the templates of those before.

    Args:
        sets_defaults: whether specs may lack what a server sets: a file may have been edited.
    """

    def __init__(self, *, sets_defaults: bool = False) -> None:
        self._sets_defaults = sets_defaults
        self._templates: dict[tuple[bytes, ...], _Template] = {}

    def decode(self, raw: PodWithRawSpec) -> Pod:
        """The pod.

        Raises:
            DecodeError: as `check_decoded`.
            msgspec.ValidationError: the spec does not have the fields of a pod's.
        """
        spec_bytes = bytes(raw.spec)
        cut = _cut(spec_bytes)
        template = None if cut is None else self._templates.get(cut.key)
        if cut is None or template is None:
            pod = Pod(metadata=raw.metadata, spec=_decoder.decode(spec_bytes), status=raw.status)
            check_decoded(pod)
            if self._sets_defaults:
                pod = defaulted(pod)
            if cut is not None and len(self._templates) < MAX_TEMPLATES:
                self._add(cut, pod.spec)
            return pod
        pod = Pod(metadata=raw.metadata, spec=_filled(template, cut), status=raw.status)
        if not raw.metadata.name or _has_quantities(raw.status):
            check_decoded(pod)
        return pod

    def _add(self, cut: _Cut, spec: PodSpec) -> None:
        """Makes a template of a spec, if the values that were cut out are where they belong."""
        names = [volume.name for volume in spec.volumes]
        index = names.index(cut.token_volume) if cut.token_volume in names else -1
        if spec.node_name == cut.node_name and (index >= 0) == bool(cut.token_volume):
            self._templates[cut.key] = _Template(spec, index)


def _has_quantities(status: PodStatus) -> bool:
    """Whether a status has anything that is to be checked. Most have not."""
    return (
        status.resources is not None
        or bool(status.allocated_resources)
        or any(map(_has_resources, status.container_statuses))
        or any(map(_has_resources, status.init_container_statuses))
    )


def _has_resources(container: ContainerStatus) -> bool:
    return container.resources is not None or bool(container.allocated_resources)


def _cut(spec: bytes) -> _Cut | None:
    """Cuts the values out; None if they are not there just once, as plain text."""
    head, found, rest = spec.partition(_NODE_NAME)
    node_name = b""
    if found:
        space, quote, rest = rest.partition(b'"')
        node_name, _, rest = rest.partition(b'"')
        if not quote or space.strip() or not _is_plain(node_name) or _NODE_NAME in rest:
            return None
    start = spec.find(_TOKEN_VOLUME)
    if start < 0:
        return _Cut((head, found, rest), node_name.decode(), "")
    quoted = spec[start : spec.find(b'"', start + 1) + 1]
    if not _is_plain(quoted):
        return None
    # With its quotes: another name may begin with it.
    head, rest = head.replace(quoted, b'""'), rest.replace(quoted, b'""')
    return _Cut((head, found, rest), node_name.decode(), quoted[1:-1].decode())


def _is_plain(value: bytes) -> bool:
    return b"\\" not in value and value.isascii()


def _filled(template: _Template, cut: _Cut) -> PodSpec:
    """The spec of a template with the values of one pod."""
    spec, index = template
    if index < 0:
        return replace(spec, node_name=cut.node_name)
    volumes = list(spec.volumes)
    volumes[index] = replace(volumes[index], name=cut.token_volume)
    return replace(spec, node_name=cut.node_name, volumes=tuple(volumes))


CONFIG_MAP: Final = "ConfigMap"
QUEUES_YAML: Final = "queues.yaml"
"""The key of capacity queues in a ConfigMap."""
FORMAT_VERSION: Final = 1
HEADER_BYTES: Final = 65536
"""The header is at the beginning of the file, within this many bytes."""

_HEADER: Final = re.compile(rb'\s*\{[^\[]{0,200}"snapshot"\s*:')
_KIND: Final = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"(\w*)"')
_KIND_BYTES: Final = 256
_NOT_LISTED: Final = "{plural} could not be listed: evaluated as if there were none"
_HIDDEN: Final = "there was a warning ({reason}) whose text was redacted"
_NEWER: Final = "the snapshot has format {found}; this version reads format {known}: update bayplan"

T = TypeVar("T")


class StoredWarning(msgspec.Struct, frozen=True, omit_defaults=True):
    """A warning of the time when the snapshot was taken: a kind that could not be listed."""

    message: str
    reason: Reason = Reason.MISSING_KIND
    object: str = ""


class Header(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a snapshot says about itself."""

    format_version: int = FORMAT_VERSION
    server_version: str = ""
    time: str = ""
    bayplan: str = ""
    """The version that took it."""
    kinds: tuple[str, ...] = ()
    """The kinds that are complete."""
    redacted: bool = False
    warnings: tuple[StoredWarning, ...] = ()


class _Group(msgspec.Struct, Generic[T], rename="camel"):
    api_version: str
    kind: str
    items: list[T]


class _File(msgspec.Struct, rename="camel"):
    snapshot: Header
    items: list[msgspec.Raw]


class _Kind(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str


def is_snapshot(data: bytes) -> bool:
    """Whether a file is a snapshot, by its beginning."""
    return _HEADER.match(data, 0, HEADER_BYTES) is not None


def is_snapshot_file(path: Path) -> bool:
    """The same for a file, of which only the beginning is read."""
    with path.open("rb") as file:
        start = file.read(HEADER_BYTES)
        if start.startswith(GZIP_MAGIC):
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as unpacked:
                try:
                    start = unpacked.read(HEADER_BYTES)
                except (OSError, EOFError, zlib.error):
                    return False
    return is_snapshot(start)


def encode_snapshot(objects: Iterable[Object], header: Header) -> bytes:
    """The content of a snapshot file: one line for each kind and each object."""
    groups: dict[type[Object], list[Object]] = {}
    for item in objects:
        groups.setdefault(type(item), []).append(item)
    lines = [
        b'{"apiVersion":"v1","kind":"List",\n"snapshot":' + msgspec.json.encode(header) + b',\n"items":[\n'
    ]
    for number, (record, items) in enumerate(groups.items()):
        kind = KINDS.of(record)
        start = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.name}List","items":[\n'
        content = b",\n".join(map(msgspec.json.encode, items))
        lines += [b"," if number else b"", start.encode(), content, b"\n]}\n"]
    lines.append(b"]}\n")
    return b"".join(lines)


def header_of(loaded: LoadedCluster, version: str, *, redacted: bool = False) -> Header:
    """The header for a cluster that was listed now."""
    return Header(
        server_version=loaded.server_version,
        time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        bayplan=version,
        kinds=tuple(sorted(loaded.listed)),
        redacted=redacted,
        warnings=tuple(_stored(loaded.warnings, redacted=redacted)),
    )


def _stored(warnings: Iterable[Warning], *, redacted: bool) -> Iterator[StoredWarning]:
    """The warnings for the header. Their texts may contain names of objects and of the user."""
    for one in warnings:
        if not redacted:
            yield StoredWarning(one.message, one.reason, one.object)
        elif one.reason is Reason.MISSING_KIND:
            yield StoredWarning(_NOT_LISTED.format(plural=one.object), one.reason, one.object)
        else:
            yield StoredWarning(_HIDDEN.format(reason=one.reason.value), one.reason)


def decode_snapshot(data: bytes, source: str) -> LoadedCluster | None:
    """The cluster in a snapshot file; None if it is not in the form in which bayplan writes snapshots.

    Then it was edited, and the reader of ordinary dumps reads it, or says what is wrong with it.

    Raises:
        DecodeError: it has a newer format.
    """
    try:
        file = msgspec.json.decode(data, type=_File)
        header = file.snapshot
        _check_format(header, source)
        objects = [item for raw in file.items for item in _group(raw)]
    except DecodeError as error:
        if error.source:
            raise
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError, KeyError):
        return None
    return from_header(header, objects, source) if are_stored(objects) else None


def read_header(document: Document) -> Header | None:
    """The header of a snapshot that was edited; None if it is not a snapshot.

    Raises:
        DecodeError: the header is malformed, or of a newer format.
    """
    content = document.content
    if not isinstance(content, dict) or content.get("kind") != "List" or "snapshot" not in content:
        return None
    try:
        header = msgspec.convert(content["snapshot"], Header)
    except msgspec.ValidationError as error:
        problem, field = problem_and_field(error)
        where = f"snapshot.{field}" if field else "snapshot"
        raise DecodeError(problem, source=document.source, line=document.line, field=where) from error
    _check_format(header, document.source)
    return header


def _check_format(header: Header, source: str) -> None:
    if header.format_version != FORMAT_VERSION:
        problem = _NEWER.format(found=header.format_version, known=FORMAT_VERSION)
        raise DecodeError(problem, source=source)


def from_header(header: Header, objects: Sequence[Object], source: str) -> LoadedCluster:
    """The cluster of a snapshot."""
    warnings = tuple(Warning(one.message, reason=one.reason, object=one.object) for one in header.warnings)
    return LoadedCluster(
        source,
        objects,
        source=source,
        origin=Origin.SNAPSHOT,
        listed=frozenset(header.kinds) & KINDS.names,
        server_version=header.server_version,
        release=_release(header.server_version),
        time=_time(header.time),
        warnings=warnings,
    )


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _release(version: str) -> Release:
    """The release of a cluster with this version (`v1.36.2`); the header has the warning about others."""
    major, _, rest = version.removeprefix("v").partition(".")
    return nearest_release(major, rest)[0] if version else DEFAULT_RELEASE


def _group(raw: msgspec.Raw) -> list[Object]:
    """The objects of one kind, checked."""
    name, api_version = _kind_of(raw)
    kind = KINDS.get(name, api_version.rpartition("/")[0])
    if kind is None or kind.api_version != api_version:
        raise KeyError(api_version)
    is_pod = kind.record is Pod
    item_type: Any = PodWithRawSpec if is_pod else kind.record
    group: _Group[Any] = msgspec.json.decode(raw, type=cast(Any, _Group)[item_type])
    if is_pod:
        return list(map(PodDecoder().decode, group.items))
    for item in group.items:
        check_decoded(item)
    return group.items


def _kind_of(raw: msgspec.Raw) -> tuple[str, str]:
    """Kind and API version of the items. They are at the beginning, and are found without reading the whole
    list."""
    found = _KIND.match(memoryview(raw)[:_KIND_BYTES])
    if found:
        return found[2].decode().removesuffix("List"), found[1].decode()
    head = msgspec.json.decode(raw, type=_Kind)
    return head.kind.removesuffix("List"), head.api_version


def are_stored(objects: Sequence[Object]) -> bool:
    """Whether each is an object of an API server (which has set the defaults) and occurs once."""
    keys = set()
    for item in objects:
        meta = item.metadata
        if not (meta.name and meta.uid and meta.resource_version):
            return False
        keys.add((type(item), meta.namespace, meta.name))
    return len(keys) == len(objects)


_START: Final = re.compile(
    rb'\s*\{\s*"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"([^"\\]*)"\s*,\s*"metadata"\s*:'
)
"""kubectl prints fields in the order of their names."""

_pod_decoder: Final = msgspec.json.Decoder(PodWithRawSpec)


class _Listing(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    items: list[msgspec.Raw]
    snapshot: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def decode_listing(data: bytes) -> list[Object] | None:
    """The objects of a List as a server stores them; None if it has to be read by the reader of files."""
    try:
        listing = msgspec.json.decode(data, type=_Listing)
        if (listing.api_version, listing.kind) != ("v1", "List") or listing.snapshot is not msgspec.UNSET:
            return None
        pods = PodDecoder(sets_defaults=True)
        objects = []
        for raw in listing.items:
            item = bytes(raw)
            start = _START.match(item)
            if start is None:
                return None
            api_version, name = start[1].decode(), start[2].decode()
            kind = KINDS.get(name, api_version.rpartition("/")[0])
            if kind is None or kind.api_version != api_version:
                if name == CONFIG_MAP and QUEUES_YAML.encode() in item:
                    return None
                continue
            objects.append(_pod(pods, kind, item) if kind.record is Pod else _object(kind, item))
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError):
        return None
    return objects if are_stored(objects) else None


def _pod(pods: PodDecoder, kind: Kind, item: bytes) -> Object:
    try:
        return pods.decode(_pod_decoder.decode(item))
    except msgspec.ValidationError:
        return _object(kind, item)


def _object(kind: Kind, item: bytes) -> Object:
    decoded = decode_json(kind, item)
    check_decoded(decoded)
    return defaulted(decoded)
