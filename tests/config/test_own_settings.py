"""bayplan's own settings: the document BayplanConfiguration, and flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.config import (
    BayplanConfiguration,
    OwnFlags,
    completed,
    default_config,
    load_own_settings,
    own_wire,
    parse_config,
    to_yaml,
)
from bayplan.errors import ConfigError, DecodeError
from bayplan.framework.args import Duration
from bayplan.framework.points import TieBreak

SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 3\n"
OWN = "apiVersion: bayplan/v1\nkind: BayplanConfiguration\ntieBreak: FirstNode\n"
FIRST = BayplanConfiguration(tie_break=TieBreak.FIRST_NODE)


@pytest.mark.parametrize(
    ("text", "parallelism"),
    [
        pytest.param(f"{SCHEDULER}---\n{OWN}", 3, id="after kube-scheduler's"),
        pytest.param(f"{OWN}---\n{SCHEDULER}", 3, id="before it"),
        pytest.param(OWN, 16, id="alone"),
        pytest.param(f"{SCHEDULER}---\nkind: Other\n---\n{OWN}", 3, id="after another document"),
        pytest.param(
            '{"apiVersion": "bayplan/v1", "kind": "BayplanConfiguration", "tieBreak": "FirstNode"}',
            16,
            id="as JSON",
        ),
    ],
)
def test_the_document_is_found(text: str, parallelism: int) -> None:
    config = parse_config(text)
    assert config.bayplan == FIRST
    assert config.parallelism == parallelism


@pytest.mark.parametrize("rest", ["", "---\nkind: Other\n", "---\nb: ["])
def test_a_file_for_kube_scheduler_is_read_as_kube_scheduler_does(rest: str) -> None:
    """It reads the first document only, whatever follows."""
    assert parse_config(SCHEDULER + rest).bayplan == BayplanConfiguration()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OWN}---\n{OWN}", "f.yaml:5: a second BayplanConfiguration; there may be one"),
        (OWN.replace("v1", "v2"), "f.yaml:1: apiVersion: should be bayplan/v1"),
        (OWN.replace("kind: B", "kind: b"), "f.yaml:2: kind: should be BayplanConfiguration"),
        (OWN.replace("tieBreak", "tieBrake"), 'f.yaml:3: tieBrake: unknown field, did you mean "tieBreak"?'),
        (
            OWN.replace("FirstNode", "first"),
            'f.yaml:3: tieBreak: expected KubeScheduler or FirstNode, got the string "first"',
        ),
        (f"{OWN}slowCycleThreshold: 1\n", "slowCycleThreshold: expected a duration"),
        (f"{OWN}slowCycleThreshold: -1s\n", "slowCycleThreshold must not be negative: -1s"),
        (f"{OWN}---\nkind: KubeSchedulerConfig\n", "apiVersion: missing"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(DecodeError) as raised:
        parse_config(text, "f.yaml")
    assert message in str(raised.value)


def test_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN)
    assert load_own_settings(file) == FIRST
    file.write_text(SCHEDULER)
    with pytest.raises(DecodeError, match=r"expected a document with apiVersion bayplan/v1"):
        load_own_settings(file)


def test_flags_have_precedence() -> None:
    config = parse_config(f"{SCHEDULER}---\n{OWN}slowCycleThreshold: 3s\n")
    flags = OwnFlags(slow_cycle_threshold=Duration.of(2))
    assert flags.apply(config).bayplan == BayplanConfiguration(
        tie_break=TieBreak.FIRST_NODE, slow_cycle_threshold=Duration.of(2)
    )
    replaced = OwnFlags(BayplanConfiguration(), slow_cycle_threshold=Duration.of(2)).apply(config)
    assert replaced.bayplan.tie_break is TieBreak.KUBE_SCHEDULER
    with pytest.raises(ConfigError, match="must not be negative"):
        OwnFlags(slow_cycle_threshold=Duration.of(-2)).apply(config)


def test_a_written_configuration_is_read_as_the_same() -> None:
    config = parse_config(f"{SCHEDULER}---\n{OWN}slowCycleThreshold: 100ms\n")
    assert parse_config(to_yaml(completed(config), own_wire(config.bayplan))) == config
    assert own_wire(default_config().bayplan) is None
