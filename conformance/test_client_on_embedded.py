"""Runs the tests of bayplan's client on the embedded API server.

Left out are those about roles (the embedded server has one user), those about a server that is killed and
restarted (`tests/embedded/server/http/test_crash.py` has them), and two that show differences, which
docs/embedded.md lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.harness.embedded_plane import EmbeddedPlane
from conformance.test_writes import (
    test_a_binding_assigns_the_pod_and_marks_it_scheduled,
    test_a_binding_is_for_no_other_pod_of_the_same_name,
    test_a_claim_gets_its_node_and_keeps_all_else,
    test_a_rejected_binding_has_the_reason,
    test_a_victim_gets_its_own_grace_period,
    test_a_volume_is_bound_to_its_claim_and_keeps_all_else,
    test_an_event_and_its_series,
    test_an_event_that_is_gone_is_reported,
    test_deleting_what_is_gone_is_not_found,
)

__all__ = [
    "plane",
    "test_a_binding_assigns_the_pod_and_marks_it_scheduled",
    "test_a_binding_is_for_no_other_pod_of_the_same_name",
    "test_a_claim_gets_its_node_and_keeps_all_else",
    "test_a_rejected_binding_has_the_reason",
    "test_a_victim_gets_its_own_grace_period",
    "test_a_volume_is_bound_to_its_claim_and_keeps_all_else",
    "test_an_event_and_its_series",
    "test_an_event_that_is_gone_is_reported",
    "test_deleting_what_is_gone_is_not_found",
]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPlane]:
    directory: Path = tmp_path_factory.mktemp("plane")
    with EmbeddedPlane(directory) as plane:
        yield plane
