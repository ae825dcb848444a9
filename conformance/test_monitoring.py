"""Rules and dashboard, read by Prometheus' own parsers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from conformance.harness.programs import obtain_promrules
from tests.deploy.manifests import DEPLOY

MONITORING = DEPLOY / "monitoring"


@pytest.fixture(scope="module")
def promrules() -> Path:
    return obtain_promrules()


def problems(promrules: Path, *files: Path, given: str | None = None) -> str:
    ended = subprocess.run([promrules, *files], input=given, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == (not ended.stdout), ended.stderr
    return ended.stdout


def test_the_rules_are_valid(promrules: Path) -> None:
    assert problems(promrules, MONITORING / "rules.yaml") == ""


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("for: 2m", "for: two minutes", "not a valid duration string"),
        ("max(", "max((", "parse error"),
        ("{{ $labels.profile }}", "{{ $labels.profile }", 'unexpected "}" in operand'),
    ],
)
def test_a_mistake_in_a_rule_is_found(
    promrules: Path, tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    text = (MONITORING / "rules.yaml").read_text()
    assert right in text
    (tmp_path / "rules.yaml").write_text(text.replace(right, wrong, 1))
    assert said in problems(promrules, tmp_path / "rules.yaml")


def test_the_expressions_of_the_dashboard_are_valid(promrules: Path) -> None:
    """Variables of Grafana are within strings, where Prometheus does not look at them."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    expressions = [one["expr"] for panel in panels for one in panel.get("targets", ())]
    assert expressions
    assert problems(promrules, given="\n".join(expressions)) == ""
    assert "parse error" in problems(promrules, given=expressions[0][:-1])
