"""Every recorded run with pod groups comes out the same; `conformance/runs/groups/README.md` has the format.

What was bound and evicted, the condition of each waiting pod and of each group, at every point at which the
scheduler had nothing more to do.
"""

from __future__ import annotations

import pytest

from bayplan.api.releases import V1_37
from bayplan.cli.replay import first_difference
from bayplan.simulate.replay import replay

from .test_runs import RUNS, read_runs

FILES = {path.name.removesuffix(".jsonl.gz"): path for path in sorted((RUNS / "groups").glob("*.jsonl.gz"))}


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("name", FILES)
def test_runs_with_groups_come_out_the_same(name: str, cache: bool) -> None:
    found = {
        run["name"]: first_difference(run, replay(run, cache=cache, release=V1_37))
        for run in read_runs(FILES[name])
    }
    assert {name: difference for name, difference in found.items() if difference} == {}


def test_all_runs_with_groups_are_there() -> None:
    runs = [run for path in FILES.values() for run in read_runs(path)]
    steps = [step for run in runs for step in run["steps"] if step["op"] == "settle"]
    assert (len(FILES), len(runs), len(steps)) == (39, 150, 899)


def test_without_the_gate_the_members_are_single_pods() -> None:
    """The comparison can fail: nothing holds back a gang that does not fit."""
    run = read_runs(FILES["gang-nofit"])[0]
    assert first_difference(run, replay({**run, "featureGates": {}}, release=V1_37)) is not None
