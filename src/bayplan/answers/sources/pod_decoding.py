"""Decodes the pods of a server's list: of pods with the same template, the spec is decoded and checked once.

Pods of a Deployment have the same spec but for the node and the random name of the volume with their token.
With these two values cut out, their specs are the same bytes, so that one lookup replaces decoding and
checking. Pods whose specs differ in more are decoded one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from bayplan.api.check import check_decoded
from bayplan.api.defaults import defaulted
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import ContainerStatus, Pod, PodSpec, PodStatus

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
