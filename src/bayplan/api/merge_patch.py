"""Merge patches (RFC 7396): values are set, null removes, lists are replaced.

A client sends its changes as such a patch, and a server applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(content: Any, patch: Any) -> Any:
    """Applies the patch to a value."""
    if not isinstance(patch, dict):
        return patch
    result = dict(content) if isinstance(content, dict) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), part)
    return result


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch from one value to another; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, part in after.items():
        if name not in before:
            patch[name] = part
        elif part != before[name]:
            both = isinstance(part, dict) and isinstance(before[name], dict)
            patch[name] = difference(before[name], part) if both else part
    return patch
