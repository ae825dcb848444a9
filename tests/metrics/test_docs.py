"""docs/metrics.md is true: it lists every metric of the scheduler as it is, and its code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bayplan.metrics.scheduler_families import SCHEDULER_SPECS

from .scrape import live_shapes

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_every_metric_is_listed_with_its_type_and_labels() -> None:
    name = r"((?:scheduler|bayplan|dynamic_resource_allocation)_\w+)"
    rows = re.findall(rf"^\| {name} \| (counter|gauge|histogram) \| ([\w, ]*)\|", PAGE, re.MULTILINE)
    listed = {name: (kind, tuple(filter(None, labels.strip().split(", ")))) for name, kind, labels in rows}
    assert listed == {spec.name: (spec.kind.value, spec.labels) for spec in SCHEDULER_SPECS}


@pytest.mark.parametrize("name", live_shapes())
def test_every_metric_of_a_live_kube_scheduler_is_explained(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)


def test_the_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/metrics.md", "exec"), {})
