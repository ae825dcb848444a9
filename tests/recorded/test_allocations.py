"""Every recorded allocation of kube-scheduler v1.36, device by device (format: `conformance/README.md`)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.explain.report import pod_allocations
from bayplan.answers.sources.files import read_scenario
from bayplan.api.releases import V1_36
from tests.commands import bayplan
from tests.effort import LONG_RUN, QUICK_SHARE

RECORDED = Path(__file__).parents[2] / "conformance/devices/allocations.jsonl.gz"


def recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        yield from map(json.loads, lines)


def differences(line: dict[str, Any], found: list[dict[str, Any]]) -> Iterator[str]:
    """What is different for each pod, or ""."""
    for answer, expected in zip(found, line["expect"], strict=True):
        wrong = {key: answer.get(key) for key in expected if answer.get(key) != expected[key]}
        yield f"{line['scenario']['name']}, {expected['pod']}: {wrong}, recorded {expected}" if wrong else ""


def allocate_and_compare(lines: Iterable[dict[str, Any]]) -> list[str]:
    """What is different for each pod of these lines, or ""."""
    found: list[str] = []
    for line in lines:
        case = read_scenario(line["scenario"], release=V1_36)
        core = case.core(cache=True)
        answers = [
            pod_allocations(core.frameworks[pod.spec.scheduler_name], pod) for pod in case.pending(core)
        ]
        found += differences(line, json.loads(json.dumps(answers)))
    return found


@LONG_RUN
@pytest.mark.parametrize(("source", "pods"), [("vec", 147), ("gen", 255), ("st", 798)])
def test_every_recorded_allocation_agrees(source: str, pods: int) -> None:
    found = allocate_and_compare(line for line in recorded() if line["source"] == source)
    assert [text for text in found if text] == []
    assert len(found) == pods


def test_some_recorded_allocations_agree() -> None:
    found = allocate_and_compare(islice(recorded(), 0, None, QUICK_SHARE))
    assert [text for text in found if text] == []
    assert len(found) > 100


def test_the_command_line_prints_a_list_for_each_scenario(tmp_path: Path) -> None:
    lines = list(islice(recorded(), 3))
    path = tmp_path / "scenarios.jsonl.gz"
    path.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode()))
    options = ["--allocations", "--emulated-version", V1_36.version]
    ended = bayplan("decide", str(path), *options)
    assert (ended.status, ended.stderr) == (0, "")
    printed = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(printed) == len(lines)
    found = [
        text for line, answers in zip(lines, printed, strict=True) for text in differences(line, answers)
    ]
    assert [text for text in found if text] == []
