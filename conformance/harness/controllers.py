"""The real kube-controller-manager with the few controllers that a test needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conformance.harness.control_plane import ControlPlane
from conformance.harness.process import Process

CLAIM_CONTROLLER: Final = "resourceclaim-controller"
"""Creates ResourceClaims from templates, and frees those of pods that ended."""
TAINT_CONTROLLER: Final = "device-taint-eviction-controller"
"""Evicts pods from tainted devices, and writes the status of DeviceTaintRules."""


NAMESPACE_CONTROLLERS: Final = (
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "namespace-controller",
    "podgroup-protection-controller",
)
"""What every namespace has, and what it takes to delete one."""


def start_controllers(plane: ControlPlane, *names: str, flags: Sequence[str] = ()) -> Process:
    """Starts just these controllers, with the rights of the administrator."""
    kubeconfig, program = plane.kubeconfig(), plane.programs.kube_controller_manager
    command: list[str | Path] = [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(names)}",
        "--leader-elect=false",
        "--secure-port=0",
        *flags,
    ]
    return Process("kube-controller-manager", command, plane.directory / "kube-controller-manager.log")
