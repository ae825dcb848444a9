"""Every recorded configuration comes to what kube-scheduler made of it (see conformance/configs)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bayplan.config import completed, parse_config, to_yaml
from bayplan.errors import ConfigError, DecodeError

CASES = Path(__file__).parents[2] / "conformance" / "configs" / "configs.jsonl.gz"


@cache
def recorded() -> tuple[dict[str, Any], ...]:
    with gzip.open(CASES, "rt", encoding="utf-8") as lines:
        return tuple(map(json.loads, lines))


def of_stage(stage: str | None) -> Iterator[dict[str, Any]]:
    return (case for case in recorded() if case.get("stage") == stage)


def test_all_cases_are_there() -> None:
    assert len(recorded()) == 332


def test_a_good_configuration_comes_to_the_same() -> None:
    """All fields are equal, and what we write is read back as the same."""
    different = []
    for case in of_stage(None):
        result = completed(parse_config(case["config"]))
        again = completed(parse_config(to_yaml(result)))
        if result != case["result"] or again != result:
            different.append(case["name"])
    assert different == []


@pytest.mark.parametrize("stage", ["validate", "build"])
def test_a_bad_configuration_gets_the_same_error(stage: str) -> None:
    """To the letter: people search for these sentences."""
    different = {}
    for case in of_stage(stage):
        config = parse_config(case["config"])
        with pytest.raises(ConfigError) as caught:
            completed(config)
        if str(caught.value) != case["error"]:
            different[case["name"]] = str(caught.value)
    assert different == {}


def test_a_file_of_the_wrong_form_is_rejected_with_line_and_field() -> None:
    """The words are ours, but the field is the one that upstream complains about."""
    unclear = {}
    for case in of_stage("decode"):
        with pytest.raises(DecodeError) as caught:
            parse_config(case["config"], "bad.yaml")
        error = caught.value
        assert error.line is not None
        line = case["config"].splitlines()[error.line - 1]
        field = "apiVersion" if "no kind" in case["error"] else error.field
        if not line.startswith(f"{field}:") or (field not in case["error"] and field != "apiVersion"):
            unclear[case["name"]] = str(error)
    assert unclear == {}
