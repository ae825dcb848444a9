"""Kubernetes' own end-to-end tests, against `bayplan up` and nothing else.

    python -m conformance.e2e                  all specs of SIG Scheduling
    python -m conformance.e2e --suite api      the conformance specs of API machinery and of workloads
    python -m conformance.e2e --focus REGEX    those of the suite whose names match
    python -m conformance.e2e --suite api --list    what is left out, with the reasons
    python -m conformance.e2e --suite groups   gang scheduling and workload-aware preemption of v1.37
    python -m conformance.e2e --suite groups --on server    the same with `bayplan run` on kube-apiserver

A line is printed for each spec, and the exit status is 0 if all passed. Specs of features that a real
cluster does not have by default are left out, and those of `LEFT_OUT`. The suite of scheduling takes some 20
minutes: many wait a minute to see whether the cluster is healthy, one waits five to see that a pod stays
unscheduled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.harness.admin import Admin
from conformance.harness.control_plane import NOT_ADMITTED, ControlPlane
from conformance.harness.controllers import NAMESPACE_CONTROLLERS, start_controllers
from conformance.harness.kubelets import Kubelets, ready_node
from conformance.harness.process import Process, wait_until
from conformance.harness.programs import MissingError, Programs, obtain, obtain_e2e
from conformance.harness.schedulers import configuration, start_bayplan, wait_until_synced

SCHEDULING: Final = r"\[sig-scheduling\]"
API: Final = r"\[sig-(api-machinery|apps)\].*\[Conformance\]"
GROUPS: Final = r"\[FeatureGate:GenericWorkload\]"
SUITES: Final = {"scheduling": SCHEDULING, "api": API, "groups": GROUPS}
GATES: Final = "GenericWorkload=true"

_CONTAINER: Final = "needs a container that really runs: its exit code, its files or its network"
_IMAGE: Final = "needs an image that cannot be pulled: simulated containers start whatever their image is"
_WEBHOOK: Final = "starts a webhook in a pod, and the API server calls it"
_POLICY: Final = "admission policies are stored and not evaluated"
LEFT_OUT: Final = {
    r"AdmissionWebhook": _WEBHOOK,
    r"CustomResourceConversionWebhook": _WEBHOOK,
    r"CustomResourceFieldSelectors": _WEBHOOK,
    r"Aggregator Should be able to support the 1\.17 Sample API Server": "starts an API server in a pod",
    r"AdmissionPolicy .*(should mutate a|should validate against|should allow expressions)": _POLICY,
    r"should serve a basic image on each replica": _CONTAINER,
    r"Job .*(sometimes fail|backoffLimitPerIndex|FailIndex|maxFailedIndexes|exit code)": _CONTAINER,
    r"Job with successPolicy succeeded(Indexes|Count) rule": _CONTAINER,
    r"StatefulSet .*(halt if any stateful pod is unhealthy|Burst scaling|rolling updates)": _CONTAINER,
    r"Daemon set .*should rollback without unnecessary restarts": _IMAGE,
    r"Deployment .*should support proportional scaling": _IMAGE,
    r"CronJob .*(jobs concurrently|ForbidConcurrent|ReplaceConcurrent)": (
        "runs `sleep 300`: a simulated container runs as long as bayplan says, not as long as its command"
    ),
}
"""Specs of the suite `api` that cannot pass on simulated nodes, by what their names match."""
LEFT_OUT_OF_GROUPS: Final = {
    r"\[FeatureGate:WorkloadWithJob\]": (
        "the Job controller creates Workloads and PodGroups with an alpha gate; that of bayplan up does not"
    ),
    r"\[FeatureGate:DRAWorkloadResourceClaims\]": "starts a DRA driver in a pod, which a kubelet has to call",
}
"""The same for the suite `groups`."""
_NOT_SERVED: Final = r"\[Feature:OffByDefault\]"
"""Specs of features that a real cluster has only if they are switched on."""
NODES: Final = 3
START_SECONDS: Final = 60.0
RUN_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Spec:
    """A test of the suite, and how it ended."""

    name: str
    state: str
    """passed, failed, skipped, …: Ginkgo's words."""
    seconds: float
    message: str = ""


def left_out_of(suite: str) -> dict[str, str]:
    """The specs of a suite that do not run, and why."""
    return {"api": LEFT_OUT, "groups": LEFT_OUT_OF_GROUPS}.get(suite, {})


@contextmanager
def cluster(directory: Path, release: str, gates: str = "") -> Iterator[Path]:
    """`bayplan up` of this release as a process of its own. Gives its kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    command: list[str | Path] = [
        sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", str(NODES), "--kubeconfig", kubeconfig,
        "--emulated-version", release, *(("--feature-gates", gates) if gates else ()),
    ]  # fmt: skip
    with Process("bayplan up", command, directory / "up.log") as process:

        def is_up() -> bool:
            process.check()
            return kubeconfig.exists()

        wait_until(is_up, "bayplan up", seconds=START_SECONDS)
        yield kubeconfig


@contextmanager
def real_cluster(directory: Path, programs: Programs, gates: str) -> Iterator[Path]:
    """kube-apiserver with `bayplan run`, the controllers of namespaces and simulated kubelets."""
    gate_flag = f"--feature-gates={gates}"
    beta = "--runtime-config=scheduling.k8s.io/v1beta1=true"
    without = [name for name in NOT_ADMITTED if name != "Priority"]
    options = [gate_flag, beta, "--allow-privileged=true"]
    with ControlPlane(programs, directory, options=options, not_admitted=without) as plane:
        asyncio.run(_register_nodes(plane))
        flags = [gate_flag, f"--root-ca-file={plane.ca_file}"]
        with (
            start_controllers(plane, *NAMESPACE_CONTROLLERS, flags=flags),
            start_bayplan(plane, configuration(plane), flags=[gate_flag]) as scheduler,
            Kubelets(plane.access()),
        ):
            wait_until_synced(scheduler)
            yield plane.kubeconfig()


async def _register_nodes(plane: ControlPlane) -> None:
    async with Admin(plane.access()) as admin:
        for number in range(NODES):
            await admin.create(ready_node(f"n{number}"))


def run_specs(
    programs: Programs,
    directory: Path,
    focus: str = SCHEDULING,
    skip: str = "",
    *,
    gates: str = "",
    on_server: bool = False,
) -> list[Spec]:
    """Runs the specs whose names match `focus` and not `skip` on a new cluster; others are left out.

    With gates, specs of features that are off by default run, too.
    """
    tests = obtain_e2e(programs.release)
    left_out = "|".join(filter(None, ("" if gates else _NOT_SERVED, skip))) or "^$"
    report = directory / "report.json"
    made = (
        real_cluster(directory, programs, gates) if on_server else cluster(directory, programs.release, gates)
    )
    with made as kubeconfig, (directory / "e2e.log").open("wb") as log:
        command = [
            str(tests),
            f"--kubeconfig={kubeconfig}",
            "--provider=skeleton",
            f"--kubectl-path={programs.kubectl}",
            f"--ginkgo.focus={focus}",
            f"--ginkgo.skip={left_out}",
            f"--ginkgo.json-report={report}",
            "--ginkgo.no-color",
            "--ginkgo.v",
            "--disable-log-dump",
        ]
        subprocess.run(command, cwd=directory, stdout=log, stderr=log, check=False, timeout=RUN_SECONDS)
    if not report.exists():
        raise RuntimeError(f"e2e.test did not start:\n{(directory / 'e2e.log').read_text()[-4000:]}")
    return list(_specs(json.loads(report.read_text()), focus, left_out))


def _specs(reports: list[dict[str, object]], focus: str, left_out: str) -> Iterator[Spec]:
    """The specs that were meant, and whatever else failed: what prepares the suite is a spec, too."""
    for report in reports:
        specs = report["SpecReports"] or []
        assert isinstance(specs, list)
        for spec in specs:
            if spec["LeafNodeType"] != "It" and spec["State"] == "passed":
                continue
            name = " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
            is_meant = re.search(focus, name) and not re.search(left_out, name)
            if spec["LeafNodeType"] == "It" and not is_meant:
                continue
            failure = spec.get("Failure") or {}
            yield Spec(name, spec["State"], spec["RunTime"] / 1e9, failure.get("Message", ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--suite", choices=SUITES, default="scheduling")
    parser.add_argument("--focus", default="", help="a regular expression for names of specs of the suite")
    parser.add_argument("--list", action="store_true", help="print what is left out, with the reasons")
    parser.add_argument(
        "--on", choices=("up", "server"), default="up", help="bayplan up, or kube-apiserver with bayplan run"
    )
    parser.add_argument("--directory", type=Path, help="where to leave logs and the report")
    chosen = parser.parse_args()
    left_out = left_out_of(chosen.suite)
    is_groups = chosen.suite == "groups"
    if chosen.on == "server" and not is_groups:
        parser.error("--on server is for --suite groups")
    if chosen.list:
        for name, reason in left_out.items():
            print(f"{name}: {reason}")
        return 0
    focus = chosen.focus or SUITES[chosen.suite]
    try:
        programs = obtain("1.37") if is_groups else obtain()
    except MissingError as error:
        print(f"Kubernetes' e2e tests: SKIPPED, {error}")
        return 0
    with tempfile.TemporaryDirectory(prefix="bayplan-e2e-") as temporary:
        directory = chosen.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        specs = run_specs(
            programs,
            directory,
            focus,
            "|".join(left_out),
            gates=GATES if is_groups else "",
            on_server=chosen.on == "server",
        )
    for spec in specs:
        print(f"{spec.state:8} {spec.seconds:6.1f} s  {spec.name}")
        if spec.state not in ("passed", "skipped"):
            print(f"    {spec.message}")
    ran = [spec for spec in specs if spec.state != "skipped"]
    passed = sum(spec.state == "passed" for spec in ran)
    print(f"{passed} of {len(ran)} passed, {len(specs) - len(ran)} skipped")
    return 0 if ran and passed == len(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
