"""A control plane for each file of tests: nothing that one file leaves behind is seen by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import DEFAULT_RELEASE, RELEASES, MissingError, Programs, obtain

OF_DEFAULT_RELEASE: Final = frozenset(
    {
        "test_e2e.py",
        "test_fields.py",
        "test_kills.py",
        "test_live_runs.py",
        "test_oracle.py",
        "test_race.py",
    }
)
"""Files that need programs or records of the default release, or that no release changes."""
SLOW_FILES: Final = (
    "test_race.py",
    "test_deschedule.py",
    "test_e2e.py",
    "test_kills.py",
    "test_live_runs.py",
    "test_side_by_side.py",
    "test_differential.py",
)
"""Files that take minutes. They run first: a worker that began with one at the end would be alone with it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--release", choices=RELEASES, default=DEFAULT_RELEASE, help="the Kubernetes release of the programs"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    if config.getoption("--release") == DEFAULT_RELEASE:
        return
    skipped = pytest.mark.skip(reason=f"only with Kubernetes {DEFAULT_RELEASE}")
    for item in items:
        if item.path.name in OF_DEFAULT_RELEASE:
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Programs:
    try:
        return obtain(request.config.getoption("--release"))
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory: Path = tmp_path_factory.mktemp("plane")
    with ControlPlane(programs, directory, audit=True) as plane:
        yield plane
