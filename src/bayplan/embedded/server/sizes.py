"""How many values an object may have.

A value is a field, an entry of a list or of a map. kube-apiserver has no such limit; it has a core to spare
for each request. Here controllers, kubelets and the scheduler read the objects of built-in kinds in one event
loop, and each of them takes about a microsecond for a value. Nothing but their schemas is known of custom
resources, so they may have more.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.statuses import too_large

MAX_VALUES: Final = 15_000
"""Of an object, without its status and the names of its managers, and of its status. An EndpointSlice with
all of its 1,000 endpoints has 14,000."""
MAX_CUSTOM_VALUES: Final = 100_000
"""Of a custom resource, and of its definition."""
MAX_UNCOUNTED_BYTES: Final = 4_000
"""Objects whose JSON is no longer than this are not counted. The shortest entry of a list has three bytes,
and defaults make eight values of it at most."""

_CONTAINERS: Final = (dict, list)
_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"')


def check_values(resource: Resource, content: dict[str, Any], *, status: bool) -> None:
    """Checks the status of an object, or all the rest of it.

    Raises:
        StatusError: it has too many values; 413.
    """
    is_custom = resource.schema is not None or resource == kinds.CUSTOM_RESOURCE_DEFINITIONS
    most = MAX_CUSTOM_VALUES if is_custom else MAX_VALUES
    if status:
        counted = content.get("status")
    else:
        counted = dict(content)
        if resource.subresource("status") is not None:
            counted.pop("status", None)
        if isinstance(meta := counted.get("metadata"), dict) and "managedFields" in meta:
            counted["metadata"] = {name: part for name, part in meta.items() if name != "managedFields"}
    if _has_more_than(most, counted):
        raise too_large(f"more than {most} values in {'the status of ' if status else ''}a {resource.kind}")


def check_json(body: bytes) -> None:
    """Checks JSON before it is decoded, which is one call that nothing interrupts.

    Raises:
        StatusError: no object can have so many values; 413.
    """
    # Every value but the first is behind a comma or an opening bracket.
    if sum(map(body.count, b",[{")) <= MAX_CUSTOM_VALUES:
        return
    plain = _STRING.sub(b"", body)
    if sum(map(plain.count, b",[{")) > MAX_CUSTOM_VALUES:
        raise too_large(f"more than {MAX_CUSTOM_VALUES} values")


def _has_more_than(most: int, content: Any) -> bool:
    level, count = [content] if type(content) in _CONTAINERS else [], 1
    while level and count <= most:
        inner: list[Any] = []
        for container in level:
            count += len(container)
            parts = container.values() if type(container) is dict else container
            inner += [part for part in parts if type(part) in _CONTAINERS]
        level = inner
    return count > most
