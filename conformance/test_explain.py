"""`bayplan explain pod --scheduler`: a real API server authorizes users of the queue."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from conformance.harness.control_plane import ADMIN, KUBE_SCHEDULER, NOBODY, ControlPlane
from conformance.harness.objects import node, pod
from conformance.harness.process import Process, free_ports, wait_until
from conformance.test_serving import Served, is_ready

READER = Path(__file__).parents[1] / "deploy/optional/reader.yaml"
HUGE = pod("huge", cpu="999")


def explain(plane: ControlPlane, user: str, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "bayplan.cli.main", "explain", "pod", "huge"]
    command += ["--kubeconfig", str(plane.kubeconfig(user)), *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return ended.returncode, ended.stdout + ended.stderr


def is_unschedulable(plane: ControlPlane) -> bool:
    path = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}"
    return plane.kubectl("get", "pod", "huge", "-o", path) == "Unschedulable"


def test_the_queue_of_a_running_scheduler(plane: ControlPlane, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    kubeconfig, certificates = plane.kubeconfig(KUBE_SCHEDULER), tmp_path / "certificates"
    command = [sys.executable, "-m", "bayplan.cli.main", "run", f"--kubeconfig={kubeconfig}"]
    command += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
    command += ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={certificates}"]
    command += ["--leader-elect=false"]
    scheduler = ["--scheduler", f"https://127.0.0.1:{port}"]
    trusting = [*scheduler, "--scheduler-ca", str(certificates / "kube-scheduler.crt")]
    for item in (node("small"), HUGE):
        plane.kubectl("create", "-f", "-", given=json.dumps(item))
    try:
        with Process("bayplan", command, tmp_path / "bayplan.log") as process:
            wait_until(partial(is_ready, process, Served(port)), "bayplan is ready")
            wait_until(partial(is_unschedulable, plane), "the pod is unschedulable")

            status, shown = explain(plane, ADMIN, *trusting)
            assert status == 0, shown
            assert "queue: unschedulable, after 1 attempt, because of " in shown

            status, shown = explain(plane, ADMIN)
            assert status == 0, shown
            assert "queue: the position in the scheduler's queue cannot be seen from outside" in shown

            # May list everything, but not see the queue.
            plane.kubectl("create", "clusterrole", "lists", "--verb=list", "--resource=*.*")
            plane.kubectl("create", "clusterrolebinding", "lists", "--clusterrole=lists", f"--user={NOBODY}")
            wait_until(lambda: explain(plane, NOBODY)[0] == 0, "the role is in effect")
            status, shown = explain(plane, NOBODY, *trusting)
            assert status == 2, shown
            assert 'User "nobody" cannot get path "/queue"' in shown
            assert "Allow the user to get the non-resource URL /queue" in shown

            plane.kubectl("apply", "-f", str(READER))
            plane.kubectl(
                "create", "clusterrolebinding", "reads", "--clusterrole=bayplan-reader", f"--user={NOBODY}"
            )
            wait_until(lambda: explain(plane, NOBODY, *trusting)[0] == 0, "the user may see the queue")

            status, shown = explain(plane, ADMIN, *scheduler)
            assert status == 2, shown
            assert "--scheduler-ca" in shown
    finally:
        plane.kubectl("delete", "pod/huge", "--wait=false", "--force")
        plane.kubectl("delete", "node/small")
        plane.kubectl("delete", "clusterrolebinding", "lists", "reads", "--ignore-not-found")
        plane.kubectl("delete", "clusterrole", "lists", "bayplan-reader", "--ignore-not-found")
