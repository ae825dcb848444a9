"""A few of the scenarios in which `make differential` searches for differences."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bayplan.cli.replay import first_difference
from bayplan.simulate.replay import replay
from conformance.differential.__main__ import OPTIONS, new_kinds, recorded
from conformance.differential.group_playing import compare
from conformance.differential.groups import GroupScenario
from conformance.differential.scenarios import Scenario
from conformance.group_recorder import RELEASE, control_plane
from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import Programs


@pytest.fixture(scope="module")
def plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), options=OPTIONS) as plane:
        yield plane


@pytest.mark.parametrize("seed", range(1, 4), ids="seed {}".format)
def test_both_schedulers_do_the_same(plane: ControlPlane, seed: int) -> None:
    run = asyncio.run(recorded(plane, Scenario(seed, steps=60, devices=False).make()))
    assert first_difference(run, replay(run)) is None


@pytest.mark.parametrize("seed", range(1, 4), ids="seed {}".format)
def test_both_schedulers_allocate_the_same_devices(plane: ControlPlane, seed: int) -> None:
    scenario = Scenario(seed, steps=80, devices=True, new_kinds=new_kinds(plane))
    run = asyncio.run(recorded(plane, scenario.make()))
    assert any("allocations" in step for step in run["steps"])
    assert first_difference(run, replay(run)) is None


@pytest.fixture(scope="module")
def group_plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if programs.release != RELEASE:
        pytest.skip(f"pod groups are those of Kubernetes {RELEASE}")
    with control_plane(tmp_path_factory.mktemp("groups")) as plane:
        yield plane


@pytest.mark.parametrize("seed", range(1, 4), ids="seed {}".format)
def test_both_schedulers_do_the_same_with_groups(group_plane: ControlPlane, seed: int) -> None:
    found = compare(group_plane, GroupScenario(seed).make())
    assert found.difference is None or found.unsteady is not None
