"""The same command lines for kube-scheduler and bayplan: the same last line and exit status."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from bayplan.process.flags import FLAGS
from conformance.harness.programs import Programs

NOWHERE = "--master=http://127.0.0.1:1"
OWN = frozenset(
    {
        "bayplan-config",
        "deschedule",
        "plugin",
        "record",
        "slow-cycle-threshold",
        "tie-break",
        "tracing-config-file",
    }
)

LINES = [
    ["--foo"],
    ["-x"],
    ["--config"],
    ["-v"],
    ["--=x"],
    ["---x"],
    ["--leader-elect=maybe"],
    ["--leader-elect", "false"],
    ["x", "y"],
    ["--secure-port=http"],
    ["--secure-port=70000", NOWHERE],
    ["--secure-port=-1", NOWHERE],
    ["--kube-api-burst=3000000000"],
    ["-v=much"],
    ["--kube-api-qps=fast"],
    ["--leader-elect-retry-period=soon"],
    ["--leader-elect-retry-period=2"],
    ["--bind-address=here"],
    ["--vmodule=queue"],
    ["--vmodule=a=b"],
    ["--logging-format=xml"],
    ["--logging-format=json", "--vmodule=a=1"],
    ["--log-json-split-stream"],
    ["--log-text-info-buffer-size=5"],
    ["--feature-gates=Foo=true"],
    ["--feature-gates=Foo"],
    ["--feature-gates=SchedulerPopFromBackoffQ=maybe"],
    ["--feature-gates=SchedulerQueueingHints=false"],
    ["--feature-gates=kube:SchedulerPopFromBackoffQ=true,OpportunisticBatching=true"],
    ["--kubeconfig=/nowhere"],
    [],
    ["--version"],
    ["--show-hidden-metrics-for-version=1.20", NOWHERE],
    ["--leader-elect-resource-lock=foo", NOWHERE, "--secure-port=0"],
    ["--kube-api-burst=0", NOWHERE, "--secure-port=0"],
    ["--tls-min-version=foo", NOWHERE],
    ["--tls-cipher-suites=foo", NOWHERE],
    ["--tls-sni-cert-key=a"],
    ["--tls-curve-preferences=foo"],
    ["--log-flush-frequency=x"],
    ["--authorization-kubeconfig=/nowhere", NOWHERE],
]


def printed(program: list[str], arguments: list[str]) -> tuple[int, str]:
    """Exit status and last line of a program, without time and file of log lines."""
    ended = subprocess.run(
        [*program, *arguments], capture_output=True, text=True, check=False, timeout=60, env={}
    )
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    last = re.sub(r"^([IWE])\d{4} .*?\] ", r"\1 ", lines[-1])
    return ended.returncode, last.replace('"bayplan run"', '"kube-scheduler"')


BAYPLAN = [sys.executable, "-m", "bayplan.cli.main", "run"]


@pytest.mark.parametrize("arguments", LINES, ids=lambda arguments: " ".join(arguments) or "nothing")
def test_both_print_the_same(arguments: list[str], programs: Programs) -> None:
    """bayplan gets the release as a flag: otherwise it would wait for the API server's version."""
    bayplan = [*BAYPLAN, f"--emulated-version={programs.release}"]
    assert printed(bayplan, arguments) == printed([str(programs.kube_scheduler)], arguments)


def test_both_have_the_same_flags(programs: Programs) -> None:
    ended = subprocess.run([programs.kube_scheduler, "--help"], capture_output=True, text=True, check=True)
    # A flag is at the beginning of its line, or after its shorthand.
    theirs = set(re.findall(r"^ +(?:-[a-z], )?--([a-z0-9-]+)", ended.stdout, re.MULTILINE))
    assert set(FLAGS) - OWN == theirs
