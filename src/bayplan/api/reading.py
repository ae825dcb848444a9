"""Decodes objects that may be invalid in part.

An API server sends what it has stored. One invalid object must not stop a client that reads thousands of
others, and the resources it uses must not be given to other pods. So decoding never fails for an object with
a name: invalid fields are omitted, and the result says so.

- An invalid time counts as 1970. Nothing else is lost then, and the object is used.
- Anything else makes the object `Unreadable`, with a partial record: the valid fields.

An earlier readable version takes precedence (`client/informer.py`). Otherwise the resources that such an
object may use are not given to others (`stand_in`):

- A pod on a node whose spec could be read counts as that spec says.
- Any other pod on a node fills its node: it requests more of everything than any node offers, and is never
  evicted. Its unreadable part could be anything, so the node takes no pods until the pod is gone or readable.
- A PodDisruptionBudget whose spec could be read allows no disruption.
- Everything else is treated as absent: a node is not used, a pod without a node waits, a claim or volume is
  missing to the pods that need it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from bayplan.api.check import quantity_problems
from bayplan.api.meta import Object, Quantity
from bayplan.api.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from bayplan.api.quantity import CPU, EPHEMERAL_STORAGE, MAX_REQUEST, MEMORY
from bayplan.api.workloads import PodDisruptionBudget, PodDisruptionBudgetStatus

MAX_REPAIRS: Final = 100
"""An object with more unreadable fields is not of this kind."""
MAX_DIGITS: Final = 40
"""Longer integers are out of range for every field, and Python limits the length of integers it converts."""

EPOCH: Final = "1970-01-01T00:00:00Z"

_NULL_IN_MAP: Final[Mapping[str, str]] = {
    **dict.fromkeys(("allocatable", "allocatedResources", "capacity", "limits", "overhead", "requests"), "0"),
    **dict.fromkeys(("annotations", "labels", "matchLabels", "nodeSelector"), ""),
}
"""What a null in a map with user-defined keys counts as: a field that is null is absent, an entry is not."""

ObjectT = TypeVar("ObjectT", bound=Object)
ResultT = TypeVar("ResultT")

_TYPE_NAMES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_TYPE_MISMATCH: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_PLACE: Final = re.compile(r"(?:`key`|key) in `|`")
_STEP: Final = re.compile(r"[^.\[\]]+|\[\.\.\.\]")


class Unreadable(Object, frozen=True):
    """Replaces an object that could be decoded only in part. It has the object's metadata."""

    kind: str = ""
    fields: tuple[str, ...] = ()
    """The invalid fields: `spec.containers[0].resources`."""
    problem: str = ""
    """The error of the first of them."""
    partial: Object = Object()
    """The object without these fields."""
    is_usable: bool = False
    """Whether only times are invalid, so that the partial record can be used."""


def read_object(kind: type[ObjectT], body: bytes | msgspec.Raw) -> ObjectT | Unreadable:
    """The record of an object, or its valid part.

    A null is an absent field: Go writes `"drivers": null` for an empty list.

    Raises:
        msgspec.DecodeError: it is not JSON, or not a JSON object.
    """
    try:
        return decode_record(kind, body, partial(_read_partially, kind))
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error


def decode_record(
    kind: type[ObjectT],
    body: bytes | str | msgspec.Raw,
    invalid: Callable[[Any, msgspec.ValidationError], ResultT],
    *,
    in_lists: bool = True,
) -> ObjectT | ResultT:
    """The record of an object, or what `invalid` makes of it: it gets the plain value, without nulls.

    With `in_lists`, elements of lists that are null are absent; otherwise they are invalid.

    Raises:
        msgspec.DecodeError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return cast(ObjectT, _decoder(kind).decode(body))
    except msgspec.ValidationError:
        raw = parse_json(body.encode() if isinstance(body, str) else bytes(body))
        raw = without_nulls(raw, in_lists=in_lists)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        return invalid(raw, error)


def with_readable_quantities(item: ObjectT | Unreadable) -> ObjectT | Unreadable:
    """The object itself, if its quantities can be parsed: decoding leaves them as text.

    An object that decoding has found unreadable may have unreadable quantities as well. It is not usable
    then, even if decoding found nothing wrong but a time.
    """
    problems = quantity_problems(item.partial if isinstance(item, Unreadable) else item)
    if not problems:
        return item
    fields, problem = tuple(found.field for found in problems), problems[0].problem
    if isinstance(item, Unreadable):
        return msgspec.structs.replace(item, fields=(*fields, *item.fields), problem=problem, is_usable=False)
    return Unreadable(
        metadata=item.metadata,
        kind=type(item).__name__,
        fields=fields,
        problem=problem,
        partial=item,
    )


def readable(item: ObjectT | Unreadable) -> ObjectT:
    """The record, or its valid part."""
    return cast(ObjectT, item.partial) if isinstance(item, Unreadable) else item


def parse_json(body: bytes) -> Any:
    """JSON as plain values. A number out of every range becomes a text: then one field is invalid, not all.

    Raises:
        msgspec.DecodeError: it is not JSON.
    """
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError:
        return json.loads(body, parse_int=_integer, parse_float=_number)


def without_nulls(raw: Any, name: str = "", *, in_lists: bool = True) -> Any:
    """The same without fields that are null, which are absent in the API, and with text for keys that a YAML
    reader took for numbers. With `in_lists`, elements that are null are absent, too."""
    if isinstance(raw, list):
        return [without_nulls(item, in_lists=in_lists) for item in raw if item is not None or not in_lists]
    if not isinstance(raw, Mapping):
        return raw
    null = _NULL_IN_MAP.get(name)
    return {
        _key_text(key): null if content is None else without_nulls(content, _key_text(key), in_lists=in_lists)
        for key, content in raw.items()
        if content is not None or null is not None
    }


def _key_text(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def problem_and_field(error: msgspec.ValidationError) -> tuple[str, str]:
    """The parts of msgspec's error "Expected `int`, got `str` - at `$.spec.x[0]`"."""
    problem, _, place = str(error).partition(" - at ")
    return problem, _PLACE.sub("", place).removeprefix("$").removeprefix(".")


def mismatched_types(problem: str) -> tuple[str, str] | None:
    """Of msgspec's "Expected `int | null`, got `str`": the expected types in words, and the name of the
    other one. None for other errors."""
    found = _TYPE_MISMATCH.match(problem)
    if found is None:
        return None
    wanted = [type_in_words(name) for name in found[1].split(" | ") if name != "null"]
    if "a number" in wanted and "an integer" in wanted:
        wanted.remove("an integer")
    return " or ".join(wanted), found[2]


def type_in_words(name: str) -> str:
    """A type as users call it, by msgspec's name."""
    return _TYPE_NAMES.get(name, name)


def is_about_time(problem: str) -> bool:
    return "RFC3339" in problem or "datetime" in problem


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= MAX_DIGITS else text


def _number(text: str) -> float | str:
    number = float(text)
    return number if abs(number) < float("inf") else text


@cache
def _decoder(kind: type[Object]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _read_partially(kind: type[ObjectT], raw: Any, error: msgspec.ValidationError) -> Unreadable:
    problem, field = problem_and_field(error)
    if not isinstance(raw, dict) or not field:
        raise error
    fields, first, is_usable = [field], problem, is_about_time(problem)
    for _ in range(MAX_REPAIRS):
        _repair(raw, field, EPOCH if is_about_time(problem) else None)
        try:
            partial = msgspec.convert(raw, kind)
        except msgspec.ValidationError as another:
            problem, field = problem_and_field(another)
            if not field:
                raise
            fields.append(field)
            is_usable = is_usable and is_about_time(problem)
        else:
            return Unreadable(
                metadata=partial.metadata,
                kind=kind.__name__,
                fields=tuple(fields),
                problem=first,
                partial=partial,
                is_usable=is_usable,
            )
    raise error


def _repair(raw: Any, field: str, replacement: Any) -> None:
    """Replaces a field, or removes it. msgspec does not name the entry of a map (`[...]`): the whole map is
    removed."""
    holder: Any = None
    step: Any = None
    here = raw
    for name in _STEP.findall(field):
        if name == "[...]":
            replacement = None
            break
        holder, step = here, int(name) if isinstance(here, list) else name
        here = holder[step]
    if replacement is not None:
        holder[step] = replacement
    else:
        del holder[step]


HIGHEST_PRIORITY: Final = 2**31 - 1


def stand_in(unreadable: Unreadable) -> Object | None:
    """The substitute for the object, or None."""
    partial = unreadable.partial
    if unreadable.is_usable:
        return partial
    if isinstance(partial, Pod) and partial.spec.node_name:
        return _pod(unreadable, partial)
    if isinstance(partial, PodDisruptionBudget) and _has_whole_spec(unreadable):
        return replace(partial, status=PodDisruptionBudgetStatus())
    return None


def last_version(known: ObjectT, unreadable: Unreadable) -> ObjectT:
    """The last readable version; for a pod, with its current node and deletion time."""
    partial = unreadable.partial
    if not isinstance(known, Pod) or not isinstance(partial, Pod):
        return known
    spec, metadata = known.spec, known.metadata
    if partial.spec.node_name:
        spec = replace(spec, node_name=partial.spec.node_name)
    metadata = replace(
        metadata,
        resource_version=partial.metadata.resource_version or metadata.resource_version,
        deletion_timestamp=partial.metadata.deletion_timestamp or metadata.deletion_timestamp,
    )
    return replace(known, metadata=metadata, spec=spec)


def fills_node(unreadable: Unreadable) -> bool:
    """Whether the substitute keeps all other pods off its node."""
    pod = unreadable.partial
    return (
        isinstance(pod, Pod)
        and bool(pod.spec.node_name)
        and not unreadable.is_usable
        and not _has_whole_spec(unreadable)
    )


def _pod(unreadable: Unreadable, partial: Pod) -> Pod:
    metadata = partial.metadata
    if not metadata.uid:
        metadata = replace(metadata, uid=f"unreadable:{partial.key}")
    status = PodStatus(phase=partial.status.phase)
    if not fills_node(unreadable):
        return replace(partial, metadata=metadata, status=status)
    spec = partial.spec
    containers = (*spec.containers, *spec.init_containers)
    named = {name for container in containers for name in container.resources.requests}
    everything: dict[str, Quantity] = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE, *named), MAX_REQUEST)
    filler = Container(name="unreadable", resources=ResourceRequirements(requests=everything))
    return Pod(
        metadata=metadata,
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            priority=HIGHEST_PRIORITY,
            containers=(filler,),
        ),
        status=status,
    )


def _has_whole_spec(unreadable: Unreadable) -> bool:
    return not any(field.startswith("spec") for field in unreadable.fields)
