"""`python -m bayplan.cel`: evaluates selectors from standard input, one JSON object per line.

A line has `expression`, `driver` and `device` (as in a ResourceSlice). The result has `want`
(`match`, `error` or `compileError`), the `cost` of the evaluation, and `maxCost`, the highest possible cost.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Final

import msgspec

from bayplan.cel import CompileError, DeviceSelector, EvaluationError, compile_selector, device_variables

UNKNOWN_COST: Final = 2**63
"""The cost of an expression that does not compile."""


def answer(line: dict[str, Any]) -> dict[str, Any]:
    """The result for one line."""
    selector = _compiled(line["expression"])
    if isinstance(selector, str):
        return {"want": {"compileError": selector}, "cost": 0, "maxCost": UNKNOWN_COST}
    device = line["device"]
    try:
        variables = device_variables(
            line["driver"],
            device.get("attributes") or {},
            device.get("capacity") or {},
            bool(device.get("allowMultipleAllocations")),
        )
        found = selector.evaluate(variables)
    except EvaluationError as error:
        return {"want": {"error": str(error)}, "cost": error.cost, "maxCost": selector.max_cost()}
    return {"want": {"match": found.matches}, "cost": found.cost, "maxCost": selector.max_cost()}


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> DeviceSelector | str:
    try:
        return compile_selector(expression)
    except CompileError as error:
        return str(error)


def main() -> int:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            parsed = msgspec.json.decode(line, type=dict[str, Any])
            result = answer(parsed)
        except (msgspec.DecodeError, KeyError) as error:
            print(
                f"line {number}: {error!r}: expected an object with expression, driver and device",
                file=sys.stderr,
            )
            return 2
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
