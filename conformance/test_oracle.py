"""Some of the inputs that `python -m conformance.oracle` looks for differences with."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.harness.programs import MissingError, obtain_oracle
from conformance.oracle.comparing import (
    allocation_differences,
    selector_differences,
    wrong_type_differences,
)


@pytest.fixture(scope="module")
def oracle() -> Path:
    try:
        return obtain_oracle()
    except MissingError as error:
        pytest.skip(str(error))


def test_selectors_are_evaluated_as_by_kubernetes(oracle: Path) -> None:
    assert list(selector_differences(oracle, range(1, 501))) == []


def test_arguments_of_any_type_are_answered_as_by_kubernetes(oracle: Path) -> None:
    assert list(wrong_type_differences(oracle)) == []


def test_devices_are_allocated_as_by_kubernetes(oracle: Path) -> None:
    assert list(allocation_differences(oracle, range(1, 201))) == []
