"""The maximum depth of values, and a JSON decoder that enforces it.

Values are processed recursively: by decoders in C, by validation and patches in Python. Values nested too
deeply are therefore rejected when they are decoded. kube-apiserver's limit is 10,000 levels; nothing in
Kubernetes has more than about 60, and Python's stack is limited to 1,000 calls.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bayplan.errors import DecodeError

MAX_DEPTH: Final = 200
TOO_DEEP: Final = f"lists and mappings are nested too deeply (more than {MAX_DEPTH} levels)"

_CONTAINERS: Final = (dict, list)


def check_depth(value: Any) -> None:
    """Checks a value level by level, without recursion.

    Raises:
        DecodeError: there are more than `MAX_DEPTH` levels.
    """
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        level = [
            part
            for container in level
            for part in (container.values() if type(container) is dict else container)
            if type(part) in _CONTAINERS
        ]
        if not level:
            return
    raise DecodeError(TOO_DEEP)


def decode_json(data: bytes) -> Any:
    """Decodes a JSON text. The decoder itself stops long before the C stack ends.

    Raises:
        DecodeError: it is nested too deeply.
        msgspec.DecodeError: it is not JSON.
    """
    try:
        value = msgspec.json.decode(data)
    except RecursionError as error:
        raise DecodeError(TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from error
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        check_depth(value)
    return value


def copied(value: Any) -> Any:
    """A copy of lists and mappings that shares neither with the original."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [copied(part) for part in value]
    return value
