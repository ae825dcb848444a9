"""Schedulers as processes, each given the same configuration: kube-scheduler, and bayplan in its place."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.process import Process, wait_until

Config = dict[str, Any]
Start = Callable[..., Process]

HANDLERS_SYNCED: Final = "Handlers synced"
"""The message of both at level 3 when they have synced and start scheduling."""
LOGS_SYNCED: Final = "server=3,process=3"
"""The level only for the files that log it, in both programs: a log of everything would distort the
results."""


def configuration(plane: ControlPlane, *, user: str = KUBE_SCHEDULER, qps: int = 5000, **more: Any) -> Config:
    """A KubeSchedulerConfiguration for this control plane, without leader election unless `more` sets it."""
    connection = {"kubeconfig": str(plane.kubeconfig(user)), "qps": qps, "burst": qps}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": {"leaderElect": False},
        **more,
    }


def start_kube_scheduler(
    plane: ControlPlane,
    config: Config,
    *,
    flags: Sequence[str] = (),
    name: str = "kube-scheduler",
    environment: Mapping[str, str] | None = None,
) -> Process:
    return _start(plane, name, [plane.programs.kube_scheduler], config, flags, environment)


def start_bayplan(
    plane: ControlPlane, config: Config, *, flags: Sequence[str] = (), name: str = "bayplan"
) -> Process:
    """As the release of the control plane, unless the flags set another."""
    if not any(flag.startswith("--emulated-version") for flag in flags):
        flags = [*flags, f"--emulated-version={plane.programs.release}"]
    return _start(plane, name, [sys.executable, "-m", "bayplan.cli.main", "run"], config, flags)


SCHEDULERS: Final[dict[str, Start]] = {"kube-scheduler": start_kube_scheduler, "bayplan": start_bayplan}


def _start(
    plane: ControlPlane,
    name: str,
    command: Sequence[str | Path],
    config: Config,
    flags: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Process:
    file = plane.directory / f"{name}.config.json"
    file.write_text(json.dumps(config))
    log = plane.directory / f"{name}.log"
    log.unlink(missing_ok=True)
    given = [flag.partition("=")[0] for flag in flags]
    usual = [
        flag
        for flag in ("--secure-port=0", f"--vmodule={LOGS_SYNCED}")
        if flag.partition("=")[0] not in given
    ]
    return Process(name, [*command, "--config", file, *usual, *flags], log, environment)


def serving_flags(plane: ControlPlane, port: int, user: str = KUBE_SCHEDULER) -> list[str]:
    """Flags of both for serving metrics and probes on loopback, with authorization by the API server."""
    kubeconfig = plane.kubeconfig(user)
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def wait_until_synced(scheduler: Process) -> None:
    """Waits until it has listed everything; objects created later arrive in the order of their creation."""

    def synced() -> bool:
        scheduler.check()
        return HANDLERS_SYNCED in scheduler.log.read_text(errors="replace")

    wait_until(synced, f"{scheduler.name} has synced")
