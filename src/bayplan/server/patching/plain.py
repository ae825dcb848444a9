"""JSON patches and merge patches. A `Patch` is a function from an object to the object it should become.

Strategic merge patches, which know the types of Kubernetes, are in `strategic.py`; server-side apply in
`apply.py`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, Final

from bayplan.api.merge_patch import merged
from bayplan.server.statuses import RefusalError, bad_request

Content = dict[str, Any]
Patch = Callable[[Content], Content]

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}")


def merge_patch(patch: Content) -> Patch:
    """RFC 7396: what the patch says is set, null removes, lists are replaced."""
    return lambda content: merged(content, patch)


def json_patch(operations: Any) -> Patch:
    """RFC 6902: a list of operations, all of which take effect, or none."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: every operation needs a path")

    def apply(content: Content) -> Content:
        result: Any = copy.deepcopy(content)
        for operation in operations:
            try:
                result = _applied(result, operation)
            except (LookupError, TypeError, ValueError) as error:
                raise _unfit() from error
        if not isinstance(result, dict):
            raise _unfit()
        return result

    return apply


def _unfit() -> RefusalError:
    message = "the server rejected our request due to an error in our request"
    return RefusalError(message, 422, reason="Invalid", details={})


def _applied(content: Any, operation: Content) -> Any:
    path = _steps(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(content, path, copy.deepcopy(operation["value"]))
        case "remove":
            return _remove(content, path)
        case "replace":
            _at(content, path)
            return _replace(content, path, copy.deepcopy(operation["value"]))
        case "move":
            source = _steps(operation["from"])
            moved = _at(content, source)
            return _add(_remove(content, source), path, moved)
        case "copy":
            return _add(content, path, copy.deepcopy(_at(content, _steps(operation["from"]))))
        case "test":
            if _at(content, path) != operation.get("value"):
                raise ValueError("the test fails")
            return content
        case _:
            raise ValueError("no such operation")


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError("a pointer begins with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


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


def _add(content: Any, path: list[str], part: Any) -> Any:
    if not path:
        return part
    parent = _at(content, path[:-1])
    if isinstance(parent, list):
        if path[-1] == "-":
            parent.append(part)
        else:
            parent.insert(_index(path[-1], len(parent) + 1), part)
    else:
        parent[path[-1]] = part
    return content


def _replace(content: Any, path: list[str], part: Any) -> Any:
    if not path:
        return part
    parent = _at(content, path[:-1])
    parent[_index(path[-1], len(parent)) if isinstance(parent, list) else path[-1]] = part
    return content


def _remove(content: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent = _at(content, path[:-1])
    del parent[_index(path[-1], len(parent)) if isinstance(parent, list) else path[-1]]
    return content
