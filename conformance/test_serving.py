"""The same questions to the servers of kube-scheduler and of bayplan, both with delegated access.

The API server authenticates and authorizes users for both.
"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.harness.control_plane import ADMIN, KUBE_SCHEDULER, NOBODY, ControlPlane, token_of
from conformance.harness.process import Process, free_ports, wait_until
from conformance.test_command_line import OWN
from tests.metrics.scrape import Shape, levels, shapes, values

Response = tuple[int, str]


@dataclass(frozen=True)
class Served:
    """A scheduler with its server."""

    port: int

    def request(
        self, path: str, user: str = "", accept: str = "", method: str = "GET", body: str = ""
    ) -> Response:
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        headers = {"Accept": accept} if accept else {}
        if user:
            headers["Authorization"] = f"Bearer {token_of(user)}"
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", body.encode() or None, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, context=trusting) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def both(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """kube-scheduler and bayplan, each leading with a lease of its own."""
    directory = tmp_path_factory.mktemp("serving")
    programs: dict[str, list[str | Path]] = {
        "kube-scheduler": [plane.programs.kube_scheduler],
        "bayplan": [sys.executable, "-m", "bayplan.cli.main", "run"],
    }
    kubeconfig = plane.kubeconfig(KUBE_SCHEDULER)
    processes: list[Process] = []
    found = [Served(port) for port in free_ports(2)]
    try:
        for (name, command), served in zip(programs.items(), found, strict=True):
            flags = [
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--leader-elect-resource-name=serving-{name}",
                "--bind-address=127.0.0.1",
                f"--secure-port={served.port}",
            ]
            process = Process(name, [*command, *flags], directory / f"{name}.log")
            processes.append(process)
            wait_until(partial(is_ready, process, served), f"{name} is ready")
        yield found[0], found[1]
    finally:
        for process in processes:
            process.stop()


def is_ready(process: Process, served: Served) -> bool:
    process.check()
    try:
        return served.request("/readyz")[0] == 200
    except OSError:
        return False


EQUAL: list[tuple[str, dict[str, Any]]] = [
    ("/healthz", {}),
    ("/livez", {}),
    ("/readyz", {}),
    ("/healthz?verbose", {}),
    ("/livez?verbose", {}),
    ("/readyz?verbose", {}),
    ("/readyz?exclude=shutdown&verbose", {}),
    ("/readyz?exclude=nonsense&verbose", {}),
    ("/readyz/sched-handler-sync", {"user": ADMIN}),
    ("/readyz/sched-handler-sync", {}),
    ("/healthz/ping", {"user": ADMIN}),
    ("/livez/ping", {"user": ADMIN}),
    ("/metrics", {}),
    ("/metrics", {"user": NOBODY}),
    ("/metrics", {"user": "not known"}),
    ("/healthz", {"user": "not known"}),
    ("/configz", {"user": NOBODY}),
    ("/", {"user": ADMIN}),
    ("/nothing", {"user": ADMIN}),
    ("/nothing", {}),
    ("/flagz", {"user": ADMIN, "accept": "text/html"}),
    ("/statusz", {"user": ADMIN, "accept": "text/html"}),
    ("/debug/flags/v", {"user": ADMIN}),
    ("/debug/flags/v", {"user": ADMIN, "method": "PUT", "body": "3"}),
    ("/debug/flags/v", {"user": ADMIN, "method": "PUT", "body": "much"}),
]


@pytest.mark.parametrize(
    ("path", "how"), EQUAL, ids=lambda value: value if isinstance(value, str) else " ".join(value.values())
)
def test_both_answer_the_same(both: tuple[Served, Served], path: str, how: dict[str, Any]) -> None:
    theirs, ours = (served.request(path, **how) for served in both)
    assert ours == theirs


ONLY_THERE = (
    "go_",
    "apiserver_",
    "authentication_token_cache_",
    "authenticated_user_requests",
    "authentication_attempts",
    "authentication_duration_seconds",
    "authorization_",
    "aggregator_",
    "cardinality_enforcement_",
    "disabled_metrics_total",
    "hidden_metrics_total",
    "registered_metrics_total",
)


ONLY_HERE = (
    "bayplan_",
    "scheduler_batch_",
    "scheduler_get_node_hint_duration_seconds",
    "scheduler_goroutines",
    "scheduler_store_schedule_results_duration_seconds",
)
"""Our own, and those that are shown from the start and not from the first pod on."""


def described(text: str, left_out: tuple[str, ...]) -> dict[str, tuple[Shape, str]]:
    """Types, labels, buckets and stability levels of all metrics but these."""
    stability = levels(text)
    return {
        name: (shape, stability[name])
        for name, shape in shapes(text).items()
        if not name.startswith(left_out)
    }


def test_both_have_the_same_metrics(both: tuple[Served, Served]) -> None:
    theirs, ours = (served.request("/metrics", ADMIN)[1] for served in both)
    # Work queues are shown there for certificates and a ConfigMap; there are none here.
    assert described(ours, ONLY_HERE) == described(theirs, (*ONLY_THERE, "workqueue_"))


def test_both_watch_the_same_resources(both: tuple[Served, Served]) -> None:
    """From v1.37 on each informer has metrics."""
    theirs, ours = (
        values(served.request("/metrics", ADMIN)[1], "informer_store_resource_version").keys()
        for served in both
    )
    assert ours == theirs


def test_both_show_the_same_configuration(both: tuple[Served, Served]) -> None:
    theirs, ours = (json.loads(served.request("/configz", ADMIN)[1])["componentconfig"] for served in both)
    for config in (theirs, ours):
        config["leaderElection"].pop("resourceName")
    assert ours == theirs


def test_both_have_the_same_flags_with_the_same_values(both: tuple[Served, Served]) -> None:
    accept = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"
    theirs, ours = (json.loads(served.request("/flagz", ADMIN, accept)[1]) for served in both)
    for name in OWN:
        ours["flags"].pop(name)
    differing = {"secure-port", "leader-elect-resource-name"}
    flags = {
        name: (theirs["flags"].get(name), ours["flags"].get(name))
        for name in {*theirs["flags"], *ours["flags"]} - differing
    }
    assert {name: pair for name, pair in flags.items() if pair[0] != pair[1]} == {}


def test_both_reset_their_metrics(both: tuple[Served, Served]) -> None:
    """The last test: kube-scheduler has no series after it."""
    theirs, ours = (served.request("/metrics", ADMIN, method="DELETE") for served in both)
    assert ours == theirs
