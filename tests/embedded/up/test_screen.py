"""What a terminal shows of a cluster, and what a file gets instead."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bayplan.embedded.server.kinds import PODS
from bayplan.embedded.up.cluster import Census, LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcome, Outcomes, Row, Section, State
from bayplan.embedded.up.screen import PlainLines, Screen, fitted, hints, in_a_line, in_numbers, rows


@pytest.mark.parametrize(
    ("census", "text"),
    [
        pytest.param(Census(), "0 nodes · pods: none", id="nothing"),
        pytest.param(Census(nodes=1, ready_nodes=1, running=2), "1 node · pods: 2 running", id="one node"),
        pytest.param(
            Census(nodes=1200, ready_nodes=1199, pending=3, terminating=1, finished=4000),
            "1,200 nodes (1,199 ready) · pods: 3 pending, 1 terminating, 4,000 finished",
            id="everything",
        ),
    ],
)
def test_a_cluster_in_numbers(census: Census, text: str) -> None:
    assert in_numbers(census) == text


# Lines for files and pipes

FULL = Outcome("a/b", "uid", State.UNSCHEDULABLE, "", "0/3 nodes are available", 1000.0)


def test_an_outcome_in_a_line() -> None:
    clock, *words = in_a_line(FULL).split()
    assert len(clock.split(":")) == 3
    assert words == ["unschedulable", "a/b", "–", "0/3", "nodes", "are", "available"]


def _lines(*outcomes: Outcome) -> list[str]:
    plain = PlainLines()
    for outcome in outcomes:
        plain.add(outcome)
    return plain.take()


def test_a_pod_that_is_tried_again_and_again_gets_one_line() -> None:
    assert len(_lines(*(replace(FULL, time=1000.0 + i) for i in range(100)))) == 1


def test_a_gang_that_never_gets_together_gets_two() -> None:
    held, rejected = replace(FULL, state=State.WAITING), replace(FULL, state=State.REJECTED)
    assert len(_lines(*[held, rejected] * 50)) == 2


def test_a_new_reason_gets_a_line_but_not_at_any_rate() -> None:
    changing = [replace(FULL, reason=f"reason {i}", time=1000.0 + i) for i in range(100)]
    assert len(_lines(*changing)) == 10


# The page


def _section(state: State, count: int, reason: str = "because") -> Section:
    return Section(state, count, [Row(1000.0, f"default/p{i}", "n", reason) for i in range(count)])


@pytest.mark.parametrize("height", range(40))
@pytest.mark.parametrize("width", [20, 80])
@pytest.mark.parametrize("reason", ["because", "a long story " * 30], ids=["short", "long"])
def test_sections_fit_into_the_room_that_there_is(width: int, height: int, reason: str) -> None:
    sections = [
        _section(State.BOUND, 30),
        _section(State.WAITING, 2),
        _section(State.UNSCHEDULABLE, 30, reason),
    ]
    assert sum(rows(line, width) for line in fitted(sections, width, height)) <= max(height, 0)


def test_no_state_is_hidden_by_another() -> None:
    """A flood of unschedulable pods leaves room for the bound ones, and the other way round."""
    sections = [
        _section(State.BOUND, 100),
        _section(State.REJECTED, 1),
        _section(State.UNSCHEDULABLE, 100),
    ]
    text = [line.plain for line in fitted(sections, 80, 20)]
    titles = [line for line in text if not line.startswith(" ")]
    assert titles == [
        "Bound: 100 pods",
        "Rejected after a node was found: 1 pod",
        "Unschedulable: 100 pods",
    ]
    assert "  … and 97 more" in text
    assert len(text) == 20


def test_a_reason_is_shown_whole() -> None:
    reason = "0/5000 nodes are available: " + ", ".join(f"{i} Insufficient thing-{i}" for i in range(40))
    (_, line) = fitted([_section(State.UNSCHEDULABLE, 1, reason)], 80, 40)
    assert line.plain.endswith(reason)


def _pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "web", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def test_the_live_view() -> None:
    async def scenario() -> tuple[str, list[str]]:
        outcomes = Outcomes()
        async with LocalCluster(LocalSettings(nodes=2), outcomes) as cluster:
            cluster.server.api.create(PODS, _pod("web", "1"), "default")
            cluster.server.api.create(PODS, _pod("huge", "64"), "default")
            await cluster.idle()
            console = Console(width=100, height=30, file=StringIO())
            screen = Screen(console, cluster, outcomes, "./bayplan.kubeconfig")
            return "\n".join(line.plain for line in screen.view(100, 30)), screen.summary()

    text, summary = asyncio.run(scenario())
    assert "2 nodes · pods: 1 running, 1 pending · 1 scheduled, 1 failed attempts" in text
    assert "default/web  n01  best of 2 feasible nodes" in text
    assert "default/huge  0/2 nodes are available: 2 Insufficient cpu. preemption" in text
    assert "kubectl --kubeconfig ./bayplan.kubeconfig get pods -A -o wide" in text
    assert "explain pod default/huge --kubeconfig ./bayplan.kubeconfig" in text
    assert summary[0] == "Unschedulable: 1 pod"
    assert summary[-1] == "● 2 nodes · pods: 1 running, 1 pending"


@pytest.mark.parametrize(
    ("program", "path", "command"),
    [
        pytest.param(".venv/bin/bayplan", ".venv/bin", "bayplan", id="on the PATH"),
        pytest.param(".venv/bin/bayplan", "/nowhere", ".venv/bin/bayplan", id="below this directory"),
        pytest.param(".venv/bin/bayplan", "other", ".venv/bin/bayplan", id="another one is on the PATH"),
        pytest.param("/opt/a b/bayplan", "/nowhere", "'/opt/a b/bayplan'", id="elsewhere"),
        pytest.param("x/main.py", "/nowhere", f"{sys.executable} -m bayplan.cli.main", id="as a module"),
    ],
)
def test_hints_name_the_program_so_that_a_shell_finds_it(
    program: str, path: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in (".venv/bin", "other"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "bayplan").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / path))
    monkeypatch.setattr("sys.argv", [str(tmp_path / program), "up"])

    async def scenario() -> list[str]:
        async with LocalCluster(LocalSettings(nodes=1), Outcomes()) as cluster:
            return hints(cluster, "./bayplan.kubeconfig")

    assert (
        asyncio.run(scenario())[1].strip() == f"{command} explain node n01 --kubeconfig ./bayplan.kubeconfig"
    )
