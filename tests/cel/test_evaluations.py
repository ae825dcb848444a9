"""Every recorded evaluation of Kubernetes' own CEL environment: result, error text, cost and estimate.

`conformance/README.md` has the format. One thing cannot be compared: Go visits the keys of a map in random
order, so what a fold over a map of the device costs depends on where it stops. There the cost only has to be
within the estimate.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bayplan.cel import COST_LIMIT, CompileError, EvaluationError, compile_selector, device_variables
from bayplan.cel.__main__ import answer
from bayplan.cel.costs import is_cheap
from bayplan.cel.parser import parse
from bayplan.cel.syntax import Source

CEL = Path(__file__).parents[2] / "conformance/cel"
RECORDED = CEL / "evaluations.jsonl.gz"
CORNER_CASES = CEL / "corner-cases.jsonl.gz"
FOLD_OVER_MAP = re.compile(r'device\.(attributes|capacity)(\["[^"]*"\])?\.(exists|all)\(')


def recorded(path: Path = RECORDED) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def differences(line: dict[str, Any], found: dict[str, Any]) -> list[str]:
    keys = ["want", "maxCost"] if FOLD_OVER_MAP.search(line["expression"]) else ["want", "maxCost", "cost"]
    return [
        f"{line['expression']}: {key} is {found[key]}, recorded {line[key]}"
        for key in keys
        if found[key] != line[key]
    ]


def test_every_recorded_evaluation_agrees() -> None:
    lines = recorded()
    assert len(lines) == 8024
    different = [text for line in lines for text in differences(line, answer(line))]
    assert different == []


def test_every_corner_case_agrees() -> None:
    """Errors and values on the edges of the language, found with `conformance/oracle`."""
    lines = recorded(CORNER_CASES)
    assert len(lines) > 150
    assert [text for line in lines for text in differences(line, answer(line))] == []


def test_costs_that_depend_on_the_order_of_a_map_stay_within_the_estimate() -> None:
    lines = [line for line in recorded() if FOLD_OVER_MAP.search(line["expression"])]
    assert len(lines) > 50
    assert [line["expression"] for line in lines if answer(line)["cost"] > line["maxCost"]] == []


def test_selectors_that_do_not_count_their_cost_decide_the_same() -> None:
    for line in recorded():
        device = line["device"]
        try:
            selector = compile_selector(line["expression"])
            variables = device_variables(
                line["driver"], device.get("attributes") or {}, device.get("capacity") or {}
            )
            found: dict[str, Any] = {"match": selector.matches(variables)}
        except CompileError as error:
            found = {"compileError": str(error)}
        except EvaluationError as error:
            found = {"error": str(error)}
        if "allowMultipleAllocations" not in device:
            assert found == line["want"], line["expression"]


def test_compiling_estimates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler does not; the API server estimates the cost of what is written."""

    def estimated(*args: object) -> int:
        raise AssertionError("estimated")

    monkeypatch.setattr("bayplan.cel.estimate.estimate", estimated)
    selector = compile_selector('device.driver == "d" && [1, 2].exists(x, x == 2)')
    assert selector.matches(device_variables("d", {}, {}))
    with pytest.raises(AssertionError, match="estimated"):
        selector.max_cost()


def test_expressions_whose_cost_is_not_counted_cannot_reach_the_limit() -> None:
    cheap, others = [], 0
    for expression in {line["expression"] for line in recorded()}:
        source = Source(expression)
        try:
            selector = compile_selector(expression)
        except CompileError:
            continue
        if is_cheap(parse(source)):
            cheap.append(selector.max_cost())
        else:
            others += 1
    assert len(cheap) > 100 < others
    assert max(cheap) < COST_LIMIT // 100


def test_an_evaluation_that_is_too_expensive_is_stopped() -> None:
    nested = "lists.range(200)"
    expression = f"{nested}.all(a, {nested}.all(b, {nested}.all(c, a + b + c >= 0)))"
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        compile_selector(expression).matches(device_variables("d", {}, {}))


def test_the_command_answers_line_by_line() -> None:
    lines = recorded()[:20]
    given = "\n".join(json.dumps(line) for line in lines)
    ran = subprocess.run(
        [sys.executable, "-m", "bayplan.cel"], input=given, capture_output=True, text=True, check=True
    )
    printed = [json.loads(text) for text in ran.stdout.splitlines()]
    assert printed == [{key: line[key] for key in ("want", "cost", "maxCost")} for line in lines]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"expression": "true"}'],
    ids=["not JSON", "not an object", "a field is missing"],
)
def test_the_command_rejects_what_is_no_evaluation(line: str) -> None:
    ran = subprocess.run([sys.executable, "-m", "bayplan.cel"], input=line, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "line 1" in ran.stderr
