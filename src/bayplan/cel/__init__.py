"""CEL, the Common Expression Language, as Kubernetes offers it to device selectors.

    text ─► parser ─► syntax, macros expanded ─► checker ─► types and overloads ─┬─► planner ─► closures
                                                                                 └─► estimate ─► max. cost

A selector sees one variable, `device`: its driver, its attributes and capacities by domain, and whether it
may be allocated several times. A domain that the device does not have is an empty map, so that a selector can
test for its attributes without testing for the domain first. Only this module knows what a device is.
Results, error texts and costs equal those of upstream's implementation, which is what the tests compare.

The API server rejects selectors whose estimated cost is too high when they are written. kube-scheduler
estimates nothing: it stops an evaluation whose cost exceeds the limit.

https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bayplan.cel import types
from bayplan.cel.checker import check
from bayplan.cel.costs import is_cheap
from bayplan.cel.declarations import QUANTITY
from bayplan.cel.parser import MAX_DEPTH, parse
from bayplan.cel.planner import plan
from bayplan.cel.scalars import quantity, semver
from bayplan.cel.steps import METER, Meter, Step, Variables
from bayplan.cel.syntax import Expr, Source
from bayplan.cel.values import NONE, CompileError, DefaultMap, EvaluationError, Optional, Value, type_name

__all__ = [
    "COST_LIMIT",
    "CompileError",
    "DeviceSelector",
    "Evaluation",
    "EvaluationError",
    "compile_selector",
    "device_variables",
]

COST_LIMIT: Final = 1_000_000
"""The cost limit of one evaluation, in CEL's units."""
MAX_LENGTH: Final = 10 * 1024
"""The API server's limit, in bytes."""

_TOO_DEEP: Final = f"compilation failed: expression recursion limit exceeded: {MAX_DEPTH}"

_MAX_DOMAIN: Final = 63
_MAX_ID: Final = 32
_MAX_DRIVER: Final = 63
_MAX_ATTRIBUTE: Final = 64
_MAX_ENTRIES: Final = 32

_DEVICE: Final = types.object_type("kubernetes.DRADevice")
_FIELDS: Final = {
    _DEVICE.name: {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, QUANTITY)),
        "allowMultipleAllocations": types.BOOL,
    }
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result and cost of one evaluation."""

    matches: bool
    cost: int


class DeviceSelector:
    """A compiled selector. `matches` is fast; `evaluate` also counts the cost.

    Raises:
        CompileError: a constant part of it fails.
    """

    def __init__(self, expression: str, expr: Expr) -> None:
        self.expression = expression
        self._expr = expr
        is_limited = len(expression) <= MAX_LENGTH and is_cheap(expr)
        self._step = plan(expr) if is_limited else None
        """Evaluates without counting the cost; None if it might exceed the limit."""
        self._metered_step = None if is_limited else plan(expr, metered=True)

    @property
    def _metered(self) -> Step:
        if self._metered_step is None:
            self._metered_step = plan(self._expr, metered=True)
        return self._metered_step

    def max_cost(self) -> int:
        """The highest possible cost; UNBOUNDED if the sizes of its values have no limit. Slow.

        Raises:
            CompileError: the expression is nested too deeply.
        """
        # Imported here: only the API server estimates costs.
        from bayplan.cel.estimate import estimate

        try:
            return estimate(self._expr, _size_of)
        except RecursionError as error:
            raise CompileError(_TOO_DEEP) from error

    def matches(self, device: Variables) -> bool:
        """Whether the device is selected.

        Raises:
            EvaluationError: the selector fails for this device.
        """
        if self._step is None:
            return self.evaluate(device).matches
        return _as_bool(self._step(device))

    def evaluate(self, device: Variables) -> Evaluation:
        """The same with its cost; errors have it, too, as `cost`."""
        meter = Meter(COST_LIMIT)
        try:
            matches = _as_bool(self._metered({**device, METER: meter}))
        except EvaluationError as error:
            error.cost = meter.cost
            raise
        return Evaluation(matches, meter.cost)


def compile_selector(expression: str) -> DeviceSelector:
    """Compiles a selector.

    Raises:
        CompileError: it is not a valid selector.
    """
    source = Source(expression)
    try:
        expr = parse(source)
        result = check(source, expr, {"device": _DEVICE}, _FIELDS)
        if result not in (types.BOOL, types.ANY):
            raise CompileError(f"must evaluate to bool or the unknown type, not {result.runtime_name}")
        return DeviceSelector(expression, expr)
    except RecursionError as error:
        raise CompileError(_TOO_DEEP) from error


def device_variables(
    driver: str,
    attributes: Mapping[str, Mapping[str, Any]],
    capacity: Mapping[str, Mapping[str, Any]],
    allow_multiple_allocations: bool = False,
) -> Variables:
    """A device prepared for any number of selectors, from its fields as the API has them.

    Raises:
        EvaluationError: an attribute has no value of a type that selectors support.
    """
    attribute_maps = DefaultMap()
    for name, attribute in attributes.items():
        domain, identifier = _split(name, driver)
        attribute_maps.setdefault(domain, {})[identifier] = _attribute(name, attribute)
    capacity_maps = DefaultMap()
    for name, entry in capacity.items():
        domain, identifier = _split(name, driver)
        capacity_maps.setdefault(domain, {})[identifier] = quantity(str(entry["value"]))
    fields = {
        "driver": driver,
        "attributes": attribute_maps,
        "capacity": capacity_maps,
        "allowMultipleAllocations": allow_multiple_allocations,
    }
    return {"device": fields}


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _attribute(name: str, attribute: Mapping[str, Any]) -> Value:
    match attribute:
        case {"int": int() as number}:
            return number
        case {"bool": bool() as flag}:
            return flag
        case {"string": str() as text}:
            return text
        case {"version": str() as version}:
            try:
                return semver(version)
            except EvaluationError as error:
                raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from error
    raise EvaluationError(f"attribute {name}: unsupported attribute value")


_NO_BOOL: Final = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "type": "type conversion not supported for 'type'",
    "kubernetes.NamedFormat": "type conversion error from 'Format' to 'bool'",
}


def _as_bool(value: Value) -> bool:
    """The result of a selector; an optional one is what it contains."""
    name = type_name(value)
    inner = value
    while type(inner) is Optional and inner.has_value:
        inner = inner.value
    if type(inner) is bool:
        return inner
    kind = type_name(inner)
    problem = _NO_BOOL.get(kind, f"type conversion error from '{kind.rpartition('.')[2]}' to 'bool'")
    if inner == NONE:
        problem = "optional.none() dereference"
    raise EvaluationError(f"CEL result of type {name} could not be converted to bool: {problem}")


def _size_of(path: tuple[str, ...]) -> int | None:
    """The greatest size of a part of `device`: the API's limits for names, values and numbers of entries."""
    match path:
        case ("device",) | ("device", "capacity", _, "@values" | "@items"):
            return 0
        case ("device", "driver"):
            return _MAX_DRIVER
        case ("device", "allowMultipleAllocations"):
            return 1
        case ("device", "attributes" | "capacity"):
            return _MAX_ENTRIES
        case ("device", "attributes" | "capacity", "@keys"):
            return _MAX_DOMAIN
        case ("device", "attributes" | "capacity", "@values" | "@items"):
            return _MAX_ENTRIES
        case ("device", "attributes" | "capacity", "@values" | "@items", "@keys"):
            return _MAX_ID
        case ("device", "attributes", "@values" | "@items", _):
            return _MAX_ATTRIBUTE
    return None
