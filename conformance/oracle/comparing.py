"""Asks Kubernetes' code and bayplan the same, and says where the answers differ."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bayplan.answers.explain.report import pod_allocations
from bayplan.answers.sources.files import read_scenario
from bayplan.api.releases import V1_36
from bayplan.cel.__main__ import answer
from conformance.differential.drawing import Raw
from conformance.oracle import wrong_types
from conformance.oracle.expressions import Expressions
from conformance.oracle.scenarios import Scenarios

_REPETITIONS: Final = 4
"""How often each selector is evaluated: Go visits maps in random order, and what depends on it does not
count."""
_SYNTAX: Final = "Syntax error"
_COMPARED: Final = ("pod", "preFilter", "filter", "allocations")


def selector_differences(oracle: Path, seeds: range) -> Iterator[str]:
    """Selectors for which result, error, cost or estimate differ."""
    yield from _evaluation_differences(
        oracle, {f"seed {seed}": Expressions(seed).evaluation() for seed in seeds}
    )


def wrong_type_differences(oracle: Path) -> Iterator[str]:
    """Calls with arguments of any type for which these differ."""
    device = Expressions(0).evaluation()
    lines = {call: {**device, "expression": call} for call in wrong_types.calls()}
    yield from _evaluation_differences(oracle, lines)


def _evaluation_differences(oracle: Path, named: Mapping[str, Raw]) -> Iterator[str]:
    lines = list(named.values())
    rounds = [_asked(oracle, "cel", lines) for _ in range(_REPETITIONS)]
    for name, line, expected in zip(named, lines, zip(*rounds, strict=True), strict=True):
        if "panic" in expected[0]["want"]:
            continue
        found = answer(line)
        if found in expected or any(each != expected[0] for each in expected):
            continue
        if not (_is_syntax_error(found) and _is_syntax_error(expected[0])):
            yield f"{name}: {line['expression']!r}: {found}, expected {expected[0]}"


def allocation_differences(oracle: Path, seeds: range) -> Iterator[str]:
    """Pods for which PreFilter, Filter or the devices of a node differ."""
    lines = [Scenarios(seed).scenario() for seed in seeds]
    for seed, line, expected in zip(seeds, lines, _asked(oracle, "allocations", lines), strict=True):
        if "timed out" in json.dumps(expected):
            continue
        for pod, one in zip(_allocations(line["scenario"]), expected, strict=True):
            found = {key: pod[key] for key in _COMPARED}
            if found != one:
                keys = [key for key in _COMPARED if found[key] != one[key]]
                yield f"seed {seed}, {one['pod']}: " + "; ".join(
                    f"{key} is {found[key]}, expected {one[key]}" for key in keys
                )


def _asked(oracle: Path, mode: str, lines: list[Raw]) -> list[Any]:
    given = "".join(f"{json.dumps(line)}\n" for line in lines)
    ran = subprocess.run([oracle, mode], input=given, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _is_syntax_error(found: Raw) -> bool:
    """The parser reports the first mistake in the words of upstream's, but does not recover as it does."""
    return _SYNTAX in found["want"].get("compileError", "")


def _allocations(scenario: Raw) -> Iterator[Raw]:
    """What bayplan answers, in the form of the oracle, which does not know mappings."""
    case = read_scenario(scenario, release=V1_36)
    core = case.core(cache=True)
    for pod in case.pending(core):
        found: Raw = json.loads(json.dumps(pod_allocations(core.frameworks[pod.spec.scheduler_name], pod)))
        del found["preFilter"]["nodeNames"]
        for result in found["allocations"].values():
            result.pop("mappings", None)
            if "requests" in result and not result["requests"]:
                del result["requests"]
        yield found
