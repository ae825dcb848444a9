"""A control plane for each file of tests: nothing that one file leaves behind is seen by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import MissingError, Programs, obtain


@pytest.fixture(scope="session")
def programs() -> Programs:
    try:
        return obtain()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory: Path = tmp_path_factory.mktemp("plane")
    with ControlPlane(programs, directory, audit=True) as plane:
        yield plane
