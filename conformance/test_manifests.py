"""The manifests of deploy/, shown to the real API server: it would take every one of them unchanged.

And the admission policy of examples/yunikorn, which only an API server can evaluate.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from conformance.harness.control_plane import ControlPlane
from conformance.harness.objects import pod

DEPLOY = Path(__file__).parents[1] / "deploy"
POLICY = Path(__file__).parents[1] / "examples" / "yunikorn" / "user-info-policy.yaml"
USER_INFO = "yunikorn.apache.org/user.info"


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


def test_pods_that_name_their_own_user_are_rejected(plane: ControlPlane) -> None:
    """The API server evaluates a new policy after a moment."""
    plane.kubectl("apply", "--validate=strict", "-f", str(POLICY))
    deadline = time.monotonic() + 60
    while not (rejected := created(plane, {USER_INFO: '{"user": "ann"}'})):
        assert time.monotonic() < deadline, "the policy is not evaluated"
        time.sleep(0.2)
    assert "only an admission controller may write yunikorn.apache.org/user.info" in rejected
    assert created(plane, {"other": "x"}) == ""
    assert created(plane, None) == ""


def created(plane: ControlPlane, annotations: dict[str, str] | None) -> str:
    """Creates a pod in a dry run. Returns why it is rejected; "" if it is not."""
    item = pod("p")
    if annotations is not None:
        item["metadata"]["annotations"] = annotations
    try:
        plane.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(item))
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""
