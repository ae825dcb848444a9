"""The harness itself: it starts what go.mod names, distinguishes users, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conformance.harness.control_plane import KUBE_SCHEDULER, NOBODY, ControlPlane
from conformance.harness.programs import Programs, kubernetes_version


def test_the_programs_are_of_the_pinned_version(plane: ControlPlane) -> None:
    version = plane.kubectl("version").splitlines()
    expected = kubernetes_version(plane.programs.release)
    assert [line for line in version if "Kustomize" not in line] == [
        f"Client Version: {expected}",
        f"Server Version: {expected}",
    ]


@pytest.mark.parametrize(
    ("user", "verb", "kind", "may"),
    [
        pytest.param(KUBE_SCHEDULER, "list", "nodes", "yes", id="kube-scheduler may read nodes"),
        pytest.param(KUBE_SCHEDULER, "create", "nodes", "no", id="kube-scheduler may not make nodes"),
        pytest.param(NOBODY, "list", "nodes", "no", id="a user without roles may do nothing"),
    ],
)
def test_roles_hold(plane: ControlPlane, user: str, verb: str, kind: str, may: str) -> None:
    kubeconfig = str(plane.kubeconfig(user))
    command = [str(plane.programs.kubectl), "--kubeconfig", kubeconfig, "auth", "can-i", verb, kind]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    assert output.stdout.strip() == may


def test_a_rejected_request_is_written_down(plane: ControlPlane) -> None:
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
        plane.kubectl("get", "pods", user=NOBODY)
    assert any("get" not in line and "cannot list" in line for line in plane.forbidden(NOBODY))


def test_nothing_is_left_running(programs: Programs, tmp_path: Path) -> None:
    with ControlPlane(programs, tmp_path) as plane:
        running = [process.pid for process in (plane.etcd, plane.apiserver) if process is not None]
    assert [pid for pid in running if os.path.exists(f"/proc/{pid}")] == []
