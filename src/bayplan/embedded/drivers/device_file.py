"""The file of `bayplan up --devices`: which drivers there are, and which devices each node has.

    drivers:
    - driver: gpu.example.com
      nodeSelector: {accelerator: "true"}   # labels of the nodes with these devices; without it all nodes
      devices:
      - name: gpu-{i}                       # devices as in a ResourceSlice; {node} and {i} are filled in
        count: 8                            # {i} from 0 to 7
        attributes:
          model: {string: a100}
        capacity:
          memory: {value: 80Gi}
      sharedCounters: [...]                 # as in a ResourceSlice, with `count` too
    - driver: nic.example.com
      allNodes: true                        # one pool for the whole cluster, instead of one for each node
      devices: [...]
      binding: {afterSeconds: 5, result: Ready}   # when binding conditions come true; or result: Failed

docs/devices.md describes it for users.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bayplan.api.documents import parse_documents, read_file
from bayplan.api.meta import Content
from bayplan.api.names import label_key_problems, label_value_problems
from bayplan.embedded.server.schema.types import Type, TypeMismatchError, clean, named_type
from bayplan.embedded.server.statuses import FieldProblem
from bayplan.embedded.server.validation.device_slices import device_slice_problems
from bayplan.embedded.server.validation.devices import driver_problems
from bayplan.errors import DecodeError

MAX_COUNT: Final = 1024
"""The highest `count` of an entry."""
READY: Final = "Ready"
FAILED: Final = "Failed"
_DRIVER_FIELDS: Final = frozenset(
    {"driver", "nodeSelector", "allNodes", "devices", "sharedCounters", "binding"}
)
_NODE: Final = "{node}"
_NUMBER: Final = "{i}"
_SAMPLE_NODE: Final = "node"


@dataclass(frozen=True, slots=True)
class Driver:
    """One driver and its devices."""

    name: str
    devices: list[Content] = field(default_factory=list)
    """As in a ResourceSlice, with `count` and placeholders."""
    shared_counters: list[Content] = field(default_factory=list)
    node_selector: dict[str, str] = field(default_factory=dict)
    all_nodes: bool = False
    """Whether there is one pool for the whole cluster."""
    binding_seconds: float = 0.0
    """Delay until the binding conditions of an allocated device become true."""
    binding_result: str = READY

    def is_on(self, labels: dict[str, str]) -> bool:
        """Whether a node with these labels has the devices."""
        return all(labels.get(key) == text for key, text in self.node_selector.items())


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """All drivers of a file."""

    drivers: tuple[Driver, ...] = ()

    def driver(self, name: str) -> Driver | None:
        return next((driver for driver in self.drivers if driver.name == name), None)


def read_devices(path: Path) -> DeviceFile:
    """Reads a file of devices.

    Raises:
        DecodeError: it is not valid; the message names the field.
        OSError: it cannot be read.
    """
    return parse_devices(read_file(path), str(path))


def parse_devices(data: bytes, source: str) -> DeviceFile:
    """The same for the content of a file."""
    documents = list(parse_documents(data, source))
    if len(documents) != 1 or not isinstance(documents[0].content, dict):
        raise DecodeError("it must be one YAML document with `drivers`", source=source)
    content = documents[0].content
    try:
        return _Reader().file(content)
    except _FieldError as error:
        raise DecodeError(str(error), source=source) from None


class _FieldError(Exception):
    """A field is wrong; the message begins with its path."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class _Reader:
    """Reads and checks one file."""

    def file(self, content: Content) -> DeviceFile:
        _known(content, {"drivers"}, "")
        drivers = _list(content, "drivers", "")
        if not drivers:
            raise _FieldError("drivers", "Required value: at least one driver")
        read = tuple(self._driver(each, f"drivers[{i}]") for i, each in enumerate(drivers))
        names = Counter(driver.name for driver in read)
        for i, driver in enumerate(read):
            if names[driver.name] > 1:
                raise _FieldError(f"drivers[{i}].driver", f'Duplicate value: "{driver.name}"')
        return DeviceFile(read)

    def _driver(self, content: Content, path: str) -> Driver:
        _known(content, _DRIVER_FIELDS, path)
        name = content.get("driver", "")
        if not isinstance(name, str):
            raise _FieldError(f"{path}.driver", "must be a string")
        for problem in driver_problems(name, f"{path}.driver"):
            raise _FieldError(problem.field, problem.message)
        all_nodes = content.get("allNodes", False)
        if not isinstance(all_nodes, bool):
            raise _FieldError(f"{path}.allNodes", "must be true or false")
        if all_nodes and "nodeSelector" in content:
            raise _FieldError(f"{path}.nodeSelector", "must not be set together with allNodes")
        devices = self._entries(content, path, "devices", "Device", name)
        counters = self._entries(content, path, "sharedCounters", "CounterSet", name)
        self._unique(devices, f"{path}.devices")
        self._unique(counters, f"{path}.sharedCounters")
        seconds, result = self._binding(content.get("binding"), f"{path}.binding")
        return Driver(
            name,
            devices,
            counters,
            _labels(content.get("nodeSelector"), f"{path}.nodeSelector"),
            all_nodes,
            seconds,
            result,
        )

    def _entries(self, content: Content, path: str, name: str, of: str, driver: str) -> list[Content]:
        """Devices or counter sets, each checked with the rules of a ResourceSlice."""
        read = []
        for i, entry in enumerate(_list(content, name, path)):
            at = f"{path}.{name}[{i}]"
            if not isinstance(entry, dict):
                raise _FieldError(at, "must be an object")
            count = entry.get("count", 1)
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
                raise _FieldError(f"{at}.count", f"must be a number from 1 to {MAX_COUNT}")
            cleaned = _cleaned({key: part for key, part in entry.items() if key != "count"}, of, at)
            if count > 1 and _NUMBER not in cleaned.get("name", ""):
                raise _FieldError(f"{at}.name", f"must contain {_NUMBER}, because count is {count}")
            sample = filled(cleaned, _SAMPLE_NODE, 0)
            _check(driver, name, sample, path, at)
            read.append({**cleaned, "count": count})
        return read

    def _unique(self, entries: list[Content], path: str) -> None:
        names = Counter(item["name"] for item in expanded(entries, _SAMPLE_NODE))
        for name, count in names.items():
            if count > 1:
                raise _FieldError(path, f'Duplicate value: "{name}"')

    def _binding(self, content: Any, path: str) -> tuple[float, str]:
        if content is None:
            return 0.0, READY
        if not isinstance(content, dict):
            raise _FieldError(path, "must be an object")
        _known(content, {"afterSeconds", "result"}, path)
        seconds, result = content.get("afterSeconds", 0), content.get("result", READY)
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e9:
            raise _FieldError(f"{path}.afterSeconds", "must be a number of seconds")
        if result not in (READY, FAILED):
            raise _FieldError(f"{path}.result", f"must be {READY} or {FAILED}")
        return float(seconds), result


def expanded(entries: list[Content], node: str) -> list[Content]:
    """The entries of the file for one node, each repeated `count` times."""
    return [filled(entry, node, i) for entry in entries for i in range(entry["count"])]


def filled(entry: Content, node: str, number: int) -> Content:
    """One device of an entry."""
    values = {_NODE: node, _NUMBER: str(number)}
    result: Content = _filled({key: part for key, part in entry.items() if key != "count"}, values)
    return result


def _filled(content: Any, values: dict[str, str]) -> Any:
    if isinstance(content, dict):
        return {_filled(key, values): _filled(part, values) for key, part in content.items()}
    if isinstance(content, list):
        return [_filled(part, values) for part in content]
    if isinstance(content, str):
        for place, text in values.items():
            content = content.replace(place, text)
    return content


def _cleaned(entry: Content, of: str, path: str) -> Content:
    """An entry decoded as its API type."""
    kind: Type = named_type(of)
    try:
        cleaned, unknown = clean(entry, kind)
    except TypeMismatchError as error:
        raise _FieldError(f"{path}.{error.path}" if error.path else path, str(error)) from None
    if unknown:
        raise _FieldError(f"{path}.{unknown[0]}", "unknown field")
    result: Content = cleaned
    return result


def _check(driver: str, name: str, entry: Content, path: str, at: str) -> None:
    """Checks one device or counter set as the API server would."""
    pool = {"name": _SAMPLE_NODE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": _SAMPLE_NODE, "pool": pool, name: [entry]}
    for problem in device_slice_problems({"spec": spec}):
        raise _FieldError(_place(problem, name, path, at), problem.message)


def _place(problem: FieldProblem, name: str, path: str, at: str) -> str:
    """Where in the file a problem of a ResourceSlice is."""
    inside = f"spec.{name}[0]"
    if problem.field.startswith(inside):
        return at + problem.field.removeprefix(inside)
    return f"{path}.{problem.field.removeprefix('spec.')}"


def _known(content: Any, fields: set[str] | frozenset[str], path: str) -> None:
    if not isinstance(content, dict):
        raise _FieldError(path, "must be an object")
    for name in content:
        if name not in fields:
            raise _FieldError(f"{path}.{name}" if path else str(name), "unknown field")


def _list(content: Content, name: str, path: str) -> list[Any]:
    found = content.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise _FieldError(f"{path}.{name}" if path else name, "must be a list")
    return found


def _labels(content: Any, path: str) -> dict[str, str]:
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _FieldError(path, "must be labels of nodes")
    for key, text in content.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise _FieldError(f"{path}.{key}", 'must be a string, such as "true"')
        if problems := [*label_key_problems(key), *label_value_problems(text)]:
            raise _FieldError(f"{path}.{key}", problems[0])
    return dict(content)
