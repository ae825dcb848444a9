"""JSON patches and merge patches. A `Patch` is a function from an object to the object it should become.

A small patch can cause much work: 22 `copy` operations double a list 22 times. The limits are those of
kube-apiserver: 10,000 operations, and copies of 3 MiB in all.

Strategic merge patches, which know the types of Kubernetes, are in `strategic.py`; server-side apply in
`apply.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bayplan.api.merge_patch import merged
from bayplan.api.nesting import check_depth, copied
from bayplan.embedded.server.patching.identity import identity
from bayplan.embedded.server.sizes import MAX_NAME_CHARACTERS
from bayplan.embedded.server.statuses import StatusError, bad_request, too_large
from bayplan.errors import DecodeError

Content = dict[str, Any]
Patch = Callable[[Content], Content]

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
MAX_SHIFTED: Final = 50_000_000
"""Entries of lists that make room for others or close gaps, in all operations of a patch. Not a limit of
kube-apiserver: 10,000 insertions at the head of a list of a million entries would take it a minute, too."""

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}")


def merge_patch(patch: Content) -> Patch:
    """RFC 7396: fields of the patch are set, null removes a field, lists are replaced."""
    return lambda content: merged(content, patch)


def json_patch(operations: Any) -> Patch:
    """RFC 6902: a list of operations, all of which take effect, or none."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    if len(operations) > MAX_OPERATIONS:
        raise too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: every operation needs a path")

    def apply(content: Content) -> Content:
        result: Any = copied(content)
        work = _Work()
        try:
            for operation in operations:
                result = _applied(result, operation, work)
            check_depth(result)
        except (LookupError, TypeError, ValueError, RecursionError, DecodeError) as error:
            raise _unfit() from error
        if not isinstance(result, dict):
            raise _unfit()
        return result

    return apply


def _unfit() -> StatusError:
    message = "the server rejected our request due to an error in our request"
    return StatusError(message, 422, reason="Invalid", details={})


class _Work:
    """The cost of the operations of a patch so far.

    Raises:
        ValueError: it is too much.
    """

    def __init__(self) -> None:
        self._copied = 0
        self._shifted = 0

    def copy(self, part: Any) -> Any:
        text = msgspec.json.encode(part)
        self._copied += len(text)
        if self._copied > MAX_COPIED_BYTES:
            raise ValueError("the copies are too large")
        return msgspec.json.decode(text)

    def shift(self, entries: int) -> None:
        self._shifted += entries
        if self._shifted > MAX_SHIFTED:
            raise ValueError("lists are too long for so many changes")


def _applied(content: Any, operation: Content, work: _Work) -> Any:
    path = _steps(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(content, path, copied(operation["value"]), work)
        case "remove":
            return _remove(content, path, work)
        case "replace":
            _at(content, path)
            return _replace(content, path, copied(operation["value"]))
        case "move":
            source = _steps(operation["from"])
            moved = _at(content, source)
            return _add(_remove(content, source, work), path, moved, work)
        case "copy":
            return _add(content, path, work.copy(_at(content, _steps(operation["from"]))), work)
        case "test":
            if identity(_at(content, path)) != identity(operation.get("value")):
                raise ValueError("the test fails")
            return content
        case _:
            raise ValueError("no such operation")


def _steps(pointer: Any) -> list[str]:
    if pointer == "":
        return []
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise ValueError("a pointer begins with /")
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]
    if max(map(len, steps)) > MAX_NAME_CHARACTERS:
        raise ValueError("a name is too long")
    return steps


def _at(content: Any, path: list[str]) -> Any:
    for step in path:
        content = content[_index(step, len(content))] if isinstance(content, list) else content[step]
    return content


def _index(step: str, length: int) -> int:
    """An index below `length`. As in kube-apiserver, a negative one counts from the end, with -1 the last."""
    if _INDEX.fullmatch(step) is None:
        raise ValueError("not an index of a list")
    index = int(step)
    if not -length <= index < length:
        raise IndexError(step)
    return index % length


def _add(content: Any, path: list[str], part: Any, work: _Work) -> Any:
    if not path:
        return part
    parent = _at(content, path[:-1])
    if isinstance(parent, list):
        if path[-1] == "-":
            parent.append(part)
        else:
            index = _index(path[-1], len(parent) + 1)
            work.shift(len(parent) - index)
            parent.insert(index, part)
    else:
        parent[path[-1]] = part
    return content


def _replace(content: Any, path: list[str], part: Any) -> Any:
    if not path:
        return part
    parent = _at(content, path[:-1])
    parent[_index(path[-1], len(parent)) if isinstance(parent, list) else path[-1]] = part
    return content


def _remove(content: Any, path: list[str], work: _Work) -> Any:
    if not path:
        return None
    parent = _at(content, path[:-1])
    if isinstance(parent, list):
        index = _index(path[-1], len(parent))
        work.shift(len(parent) - index)
        del parent[index]
    else:
        del parent[path[-1]]
    return content
