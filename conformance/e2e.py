"""Kubernetes' own end-to-end tests of scheduling, against `bayplan up` and nothing else.

    python -m conformance.e2e                  all specs of SIG Scheduling
    python -m conformance.e2e --focus REGEX    those whose names match

A line is printed for each spec, and the exit status is 0 if all passed. Specs of features that a real
cluster does not have by default are left out. All of them take some 20 minutes: many wait a minute to see
whether the cluster is healthy, one waits five to see that a pod stays unscheduled.
"""

from __future__ import annotations

import argparse
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

from conformance.harness.process import Process, wait_until
from conformance.harness.programs import MissingError, Programs, obtain

SCHEDULING: Final = r"\[sig-scheduling\]"
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


@contextmanager
def cluster(directory: Path, release: str) -> Iterator[Path]:
    """`bayplan up` of this release as a process of its own. Gives its kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    command: list[str | Path] = [
        sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", str(NODES), "--kubeconfig", kubeconfig,
        "--emulated-version", release,
    ]  # fmt: skip
    with Process("bayplan up", command, directory / "up.log") as process:

        def is_up() -> bool:
            process.check()
            return kubeconfig.exists()

        wait_until(is_up, "bayplan up", seconds=START_SECONDS)
        yield kubeconfig


def run_specs(programs: Programs, directory: Path, focus: str = SCHEDULING, skip: str = "") -> list[Spec]:
    """Runs the specs whose names match `focus` and not `skip` on a new cluster; others are left out."""
    assert programs.e2e_test is not None, "only built for the default release"
    left_out = f"{_NOT_SERVED}|{skip}" if skip else _NOT_SERVED
    report = directory / "report.json"
    with cluster(directory, programs.release) as kubeconfig, (directory / "e2e.log").open("wb") as log:
        command = [
            str(programs.e2e_test),
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
    parser.add_argument("--focus", default=SCHEDULING, help="a regular expression for names of specs")
    parser.add_argument("--directory", type=Path, help="where to leave logs and the report")
    chosen = parser.parse_args()
    try:
        programs = obtain()
    except MissingError as error:
        print(f"Kubernetes' e2e tests: SKIPPED, {error}")
        return 0
    with tempfile.TemporaryDirectory(prefix="bayplan-e2e-") as temporary:
        directory = chosen.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        specs = run_specs(programs, directory, chosen.focus)
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
