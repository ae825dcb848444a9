"""docs/metrics.md is true: it lists every metric of the scheduler as it is, and its code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bayplan.api.releases import RELEASES
from bayplan.metrics.families import GROUP_SPECS, PLACEMENT_SPECS, RELEASE_SPECS, SCHEDULER_SPECS

from .scrape import listed

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_every_metric_is_listed_with_its_type_and_labels() -> None:
    name = r"((?:scheduler|bayplan|yunikorn|volcano|dynamic_resource_allocation|informer)_\w+)"
    rows = re.findall(rf"^\| {name} \| (counter|gauge|histogram) \| ([\w, ]*)\|", PAGE, re.MULTILINE)
    named = {name: (kind, tuple(filter(None, labels.strip().split(", ")))) for name, kind, labels in rows}
    specs = (*SCHEDULER_SPECS, *RELEASE_SPECS, *GROUP_SPECS, *PLACEMENT_SPECS)
    assert named == {spec.name: (spec.kind.value, spec.labels) for spec in specs}


@pytest.mark.parametrize("name", sorted({name for release in RELEASES.values() for name in listed(release)}))
def test_every_metric_of_kube_scheduler_is_explained(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)


def test_the_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/metrics.md", "exec"), {})
