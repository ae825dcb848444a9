"""The manifests of deploy/, shown to the real API server: it would take every one of them unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.harness.control_plane import ControlPlane

DEPLOY = Path(__file__).parents[1] / "deploy"


@pytest.mark.parametrize(
    ("way", "path"),
    [
        pytest.param("-k", "second-scheduler", id="beside kube-scheduler"),
        pytest.param("-f", "second-scheduler", id="beside kube-scheduler, without kustomize"),
        pytest.param("-f", "replace", id="in its place"),
        pytest.param("-f", "optional/metrics-reader.yaml", id="readers of metrics"),
        pytest.param("-f", "optional/coscheduling-rbac.yaml", id="groups"),
    ],
)
def test_manifests_are_valid(plane: ControlPlane, way: str, path: str) -> None:
    """With `strict`, unknown fields and invalid objects are rejected."""
    output = plane.kubectl("apply", "--dry-run=server", "--validate=strict", way, str(DEPLOY / path))
    assert [line for line in output.splitlines() if not line.endswith("created (server dry run)")] == []
    assert output
