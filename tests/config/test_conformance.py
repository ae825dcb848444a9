"""Every recorded configuration comes to what kube-scheduler made of it (see conformance/configs)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.config import completed, parse_config, to_yaml
from bayplan.errors import ConfigError, DecodeError

CONFIGS = Path(__file__).parents[2] / "conformance" / "configs"
FILES = {
    V1_36.version: ("configs.jsonl.gz",),
    V1_37.version: ("configs-1.37.jsonl.gz", "configs-1.37-new.jsonl.gz"),
}
each_release = pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)


@cache
def recorded(version: str) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    for name in FILES[version]:
        with gzip.open(CONFIGS / name, "rt", encoding="utf-8") as lines:
            found.extend(map(json.loads, lines))
    return tuple(found)


def of_stage(release: Release, stage: str | None) -> Iterator[dict[str, Any]]:
    return (case for case in recorded(release.version) if case.get("stage") == stage)


def test_all_cases_are_there() -> None:
    assert [len(recorded(version)) for version in FILES] == [332, 332 + 56]


@each_release
def test_a_good_configuration_comes_to_the_same(release: Release) -> None:
    """All fields are equal, and what is written is read back as the same."""
    different = []
    for case in of_stage(release, None):
        result = completed(parse_config(case["config"], release=release))
        again = completed(parse_config(to_yaml(result), release=release))
        if result != case["result"] or again != result:
            different.append(case["name"])
    assert different == []


@each_release
@pytest.mark.parametrize("stage", ["validate", "build"])
def test_a_bad_configuration_gets_the_same_error(release: Release, stage: str) -> None:
    """To the letter: users search for these messages."""
    different = {}
    for case in of_stage(release, stage):
        config = parse_config(case["config"], release=release)
        with pytest.raises(ConfigError) as caught:
            completed(config)
        if str(caught.value) != case["error"]:
            different[case["name"]] = str(caught.value)
    assert different == {}


@each_release
def test_a_file_of_the_wrong_form_is_rejected_with_line_and_field(release: Release) -> None:
    """The wording differs, but the field is the one that upstream names."""
    unclear = {}
    for case in of_stage(release, "decode"):
        with pytest.raises(DecodeError) as caught:
            parse_config(case["config"], "bad.yaml", release=release)
        error = caught.value
        assert error.line is not None
        line = case["config"].splitlines()[error.line - 1]
        field = "apiVersion" if "no kind" in case["error"] else (error.field or "").rpartition(".")[2]
        if f"{field}:" not in line or (field not in case["error"] and field != "apiVersion"):
            unclear[case["name"]] = str(error)
    assert unclear == {}
