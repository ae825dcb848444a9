"""A few seeds of each target, always the same. `make fuzz` runs others, for a given time."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bayplan.client.transport import Headers, Request
from tests.fuzz.mutation import Mutator
from tests.fuzz.oracle import FindingError, checked
from tests.fuzz.running import REPOSITORY, Finding, Tally, make_input, run, run_seed, save
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.targets.api_server import FakeServer
from tests.fuzz.targets.embedded import is_server_error

SEEDS = {"commands": 12, "kubeconfigs": 60, "scheduling": 25, "embedded": 6, "extenders": 15}
"""As many as take a second or two."""


@pytest.mark.parametrize("name", TARGETS)
def test_no_seed_finds_anything(name: str) -> None:
    for seed in range(SEEDS[name]):
        try:
            run_seed(TARGETS[name], seed, max_cpu=None)
        except FindingError as error:
            pytest.fail(f"python -m tests.fuzz --targets {name} --seed {seed}: {error}")


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_makes_the_same_input_again(name: str) -> None:
    """And that input survives being saved."""
    target = TARGETS[name]
    for seed in range(5):
        made = make_input(target, seed)
        assert made == make_input(target, seed)
        saved = msgspec.json.encode(Finding(name, seed, "s", "m", msgspec.to_builtins(made)))
        read = msgspec.json.decode(saved, type=Finding)
        assert msgspec.convert(read.input, target.input_type) == made


def test_mutation_changes_documents() -> None:
    document = {"a": [1, {"b": "c"}], "d": "2026-01-01T08:00:00Z"}
    changed = [Mutator(random.Random(seed)).document(document) for seed in range(50)]
    assert sum(one != document for one in changed) > 40


class _Broken:
    """A target in which everything goes wrong that can."""

    name = "broken"
    input_type = Finding

    def make(self, rng: random.Random) -> Any:
        return rng.random()

    def run(self, given: Any) -> None:
        raise KeyError("x")


def test_an_exception_is_a_finding() -> None:
    target: Target = _Broken()
    with pytest.raises(FindingError, match="KeyError"):
        run_seed(target, 1, max_cpu=None)


def test_a_traceback_in_the_log_is_a_finding() -> None:
    def log_one() -> None:
        with checked():
            try:
                raise ValueError("inside")
            except ValueError:
                logging.getLogger("bayplan.x").exception("went on")

    with pytest.raises(FindingError, match="inside"):
        log_one()


def test_time_is_limited() -> None:
    def spend() -> None:
        with checked(max_cpu=0.0):
            sum(range(200_000))

    with pytest.raises(FindingError, match="of CPU"):
        spend()


def test_a_worker_that_never_ends_an_input_is_ended_by_its_use_of_cpu() -> None:
    program = """
from tests.fuzz import running

class Spin:
    name = "spin"
    def make(self, rng): return None
    def run(self, given):
        while True: pass

running.HANG_CPU_SECONDS = 0.05
running.work(Spin(), 0, 1.0)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGPROF, b"0\n")


def test_each_cause_is_reported_once() -> None:
    tally = Tally()
    assert [tally.add(Finding("a", seed, "cause", "m")) for seed in (1, 2)] == [True, False]
    assert tally.repeated["a", "cause"] == 2


def test_workers_run_and_findings_are_saved(tmp_path: Path) -> None:
    tally = run(["kubeconfigs"], 2.0, 0, tmp_path, processes=1)
    assert (tally.inputs["kubeconfigs"] > 0, tally.findings) == (True, [])
    file = save(Finding("kubeconfigs", 7, "s", "m"), tmp_path)
    saved = msgspec.json.decode(file.read_bytes(), type=Finding)
    kind = TARGETS["kubeconfigs"].input_type
    assert msgspec.convert(saved.input, kind) == make_input(TARGETS["kubeconfigs"], 7)


def _bind_twice(*, changed_between: bool) -> list[str]:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "5"}}}

    def pod(version: str) -> bytes:
        metadata = {"name": "p", "namespace": "x", "uid": "u", "resourceVersion": version}
        return json.dumps({"metadata": metadata, "spec": {}}).encode()

    binding = Request("POST", "/api/v1/namespaces/x/pods/p/binding", b'{"target": {"name": "n"}}')

    async def bind_twice() -> list[int]:
        server.put("/api/v1/nodes", "n", json.dumps(node).encode())
        server.put("/api/v1/pods", "x/p", pod("1"))
        first = await server.send(binding, Headers(), 1.0)
        if changed_between:
            server.put("/api/v1/pods", "x/p", pod("100"), "MODIFIED")
        second = await server.send(binding, Headers(), 1.0)
        return [first.status, second.status]

    server = FakeServer(streams=True)
    assert asyncio.run(bind_twice()) == [201, 201 if changed_between else 409]
    return server.problems


def test_a_second_binding_is_a_finding() -> None:
    assert _bind_twice(changed_between=False) == ["x/p is bound twice: the first binding was acknowledged"]


def test_a_pod_that_lost_its_node_may_be_bound_again() -> None:
    assert _bind_twice(changed_between=True) == []


@pytest.mark.parametrize(
    ("version", "problems"), [("1668", []), ("1900", ["x/p is bound to n, which does not exist"])]
)
def test_a_node_is_deleted_by_a_version_that_a_server_could_have(version: str, problems: list[str]) -> None:
    def node(version: str) -> bytes:
        metadata = {"name": "n", "resourceVersion": version}
        return json.dumps({"metadata": metadata, "status": {"allocatable": {"pods": "5"}}}).encode()

    server = FakeServer(streams=True)
    server.put("/api/v1/nodes", "n", node("1856"))
    server.put("/api/v1/nodes", "n", node(version), "DELETED")
    server.put("/api/v1/pods", "x/p", b'{"metadata": {"name": "p", "namespace": "x"}}')
    binding = Request("POST", "/api/v1/namespaces/x/pods/p/binding", b'{"target": {"name": "n"}}')
    assert asyncio.run(server.send(binding, Headers(), 1.0)).status == 201
    assert server.problems == problems


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (500, b'{"message": "target.name: Required value", "code": 500}', False),
        (500, b'{"message": "target.name: Required value", "reason": "InternalError"}', True),
        (500, b'{"message": "KeyError", "code": 500}', True),
        (500, b"no JSON", True),
        (503, b'{"message": "target.name: Required value"}', True),
        (504, b"", False),
        (422, b"", False),
    ],
)
def test_failures_of_the_server_are_findings(status: int, body: bytes, expected: bool) -> None:
    assert is_server_error(status, body) is expected


def test_a_pod_whose_spec_has_become_unreadable_can_be_bound() -> None:
    """The scheduler uses the last version that it could read."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "5"}}}
    server = FakeServer(streams=True)
    server.put("/api/v1/nodes", "n", json.dumps(node).encode())
    server.put("/api/v1/pods", "x/p", b'{"metadata": {"name": "p", "namespace": "x"}, "spec": "w0"}')
    binding = Request("POST", "/api/v1/namespaces/x/pods/p/binding", b'{"target": {"name": "n"}}')
    assert asyncio.run(server.send(binding, Headers(), 1.0)).status == 201
    assert server.problems == []


def test_room_is_checked_for_a_pod_with_an_unreadable_time() -> None:
    """The scheduler uses such a pod, so its binding is checked like any other."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "5"}}}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    pod = {"metadata": {"name": "p", "creationTimestamp": "soon"}, "spec": {"containers": containers}}
    server = FakeServer(streams=True)
    server.put("/api/v1/nodes", "n", json.dumps(node).encode())
    server.put("/api/v1/pods", "x/p", json.dumps(pod).encode())
    binding = Request("POST", "/api/v1/namespaces/x/pods/p/binding", b'{"target": {"name": "n"}}')
    assert asyncio.run(server.send(binding, Headers(), 1.0)).status == 201
    assert server.problems == ["x/p overcommits n: cpu 2000 of 1000"]


@pytest.mark.parametrize(
    ("version", "problems"), [("", []), ("2", []), ("7", ["x/p overcommits n: cpu 2000 of 1000"])]
)
def test_room_is_evaluated_by_versions_that_a_server_could_have(version: str, problems: list[str]) -> None:
    """Clients ignore changes without a version or with an older one, so they are not the expected state."""

    def pod(cpu: str, version: str) -> bytes:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        metadata = {"name": "p", "namespace": "x", "resourceVersion": version}
        return json.dumps({"metadata": metadata, "spec": {"containers": containers}}).encode()

    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "5"}}}
    server = FakeServer(streams=True)
    server.put("/api/v1/nodes", "n", json.dumps(node).encode())
    server.put("/api/v1/pods", "x/p", pod("1", "3"))
    server.put("/api/v1/pods", "x/p", pod("2", version), "MODIFIED")
    binding = Request("POST", "/api/v1/namespaces/x/pods/p/binding", b'{"target": {"name": "n"}}')
    assert asyncio.run(server.send(binding, Headers(), 1.0)).status == 201
    assert server.problems == problems
