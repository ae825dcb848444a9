"""The Helm chart and the monitoring files are up to date; conformance/test_chart.py renders the chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, OPTIONAL
from tools import chart, monitoring

SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((chart.CHART / "values.yaml").read_text())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(path, text, id=path.name)
        for path, text in {**chart.files(), **monitoring.files()}.items()
    ],
)
def test_generated_files_are_up_to_date(path: Path, text: str) -> None:
    """`python tools/chart.py` and `python tools/monitoring.py` write them."""
    assert path.read_text() == text


def test_a_manifest_without_the_line_of_a_value_is_an_error() -> None:
    with pytest.raises(SystemExit, match="replicas"):
        chart.with_values("kind: Deployment\n", [(r"^  replicas: 2$", "")])


def names(schema: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for name, item in schema.get("properties", {}).items():
        found |= {prefix + name} | names(item, f"{prefix}{name}.")
    return found


def documented(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for name, value in values.items():
        found.add(prefix + name)
        described = schema["properties"].get(name, {})
        if isinstance(value, dict) and "properties" in described:
            found |= documented(value, described, f"{prefix}{name}.")
    return found


def test_the_schema_describes_the_values() -> None:
    """`global` is helm's own."""
    assert names(SCHEMA) - {"global"} == documented(VALUES, SCHEMA)


def test_roles_of_all_plugins_can_be_chosen() -> None:
    offered = SCHEMA["properties"]["rbac"]["properties"]["plugins"]["items"]["enum"]
    assert offered == sorted(file.name.removesuffix("-rbac.yaml") for file in OPTIONAL.glob("*-rbac.yaml"))


def test_the_runbook_has_a_section_for_each_alert() -> None:
    headings = re.findall(r"^## (\S+)$", (DEPLOY.parent / monitoring.RUNBOOK).read_text(), re.MULTILINE)
    assert headings == [alert.name for alert in monitoring.ALERTS]
