"""What every API object has: metadata; and the base classes of the records.

Records have only the fields that scheduling reads, with their values as on the wire (quantities stay text:
`quantity.py` parses them). They are frozen: an object is replaced, never changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

import msgspec

DEFAULT_NAMESPACE: Final = "default"
"""The default namespace of namespaced kinds."""

Content = dict[str, Any]
"""An object, or a part of one, as the plain values of its JSON, with all of its fields."""

Quantity = str | int | float
"""A quantity as on the wire; see `bayplan.api.quantity`."""

ResourceList = dict[str, Quantity]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers of the API. One that is out of range cannot be decoded, and never reaches a column."""

Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time of the API: RFC 3339, always with an offset."""


_MAX_VERSION_DIGITS: Final = 20


def version_number(resource_version: str) -> int | None:
    """A resourceVersion as a number; None if it is not a number of at most 64 bits, and so has no order."""
    is_number = resource_version.isdecimal() and len(resource_version) <= _MAX_VERSION_DIGITS
    return int(resource_version) if is_number else None


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base class of all records: frozen, camelCase on the wire, defaults omitted when written.

    Frozen records form no cycles, so the garbage collector need not visit them (`gc=False`): with tens of
    thousands of pods that is nearly half the cost of keeping them.
    """


class OwnerReference(Record, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool | None = None


class ObjectMeta(Record, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Object(Record, frozen=True):
    """An API object: `metadata` and shortcuts for its most used fields."""

    is_per_pod: ClassVar[bool] = False
    """Whether objects of this kind come, change and go with single pods. What identical pods share does not
    depend on them, or it would be stale for every pod."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for objects without a namespace."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class LabelSelectorRequirement(Record, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True):
    """A selector as written; `bayplan.api.selectors` compiles it. Absent (None) matches nothing, `{}` all."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelectorTerm(Record, frozen=True):
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Record, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class ObjectReference(Record, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class Condition(Record, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    last_probe_time: Time | None = None
    observed_generation: Int64 = 0


OWN_API_VERSION: Final = "bayplan/v1"
