"""Reads `kubectl get … -o json` of a server: every object straight into its record.

The reader of ordinary files (`api/documents.py`) makes plain values first, because it has to say which line
of which object is wrong, and that takes several times as long. Here anything unusual is left to it: an object
that is not from a server, one that occurs twice, one that is malformed.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bayplan.answers.sources.pod_decoding import PodDecoder, PodWithRawSpec
from bayplan.answers.sources.snapshot import are_stored
from bayplan.api.check import check_decoded
from bayplan.api.decode import decode_json
from bayplan.api.defaults import defaulted
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.errors import InputError

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
            name = start[2].decode()
            if name not in KINDS.names or KINDS[name].api_version != start[1].decode():
                continue
            objects.append(_pod(pods, item) if name == "Pod" else _object(name, item))
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError):
        return None
    return objects if are_stored(objects) else None


def _pod(pods: PodDecoder, item: bytes) -> Object:
    try:
        return pods.decode(_pod_decoder.decode(item))
    except msgspec.ValidationError:
        return _object("Pod", item)


def _object(kind: str, item: bytes) -> Object:
    decoded = decode_json(kind, item)
    check_decoded(decoded)
    return defaulted(decoded)
