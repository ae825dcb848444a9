"""Fault runs with claims whose searches take long: probes are answered, and other pods are bound."""

from __future__ import annotations

import pytest

from bayplan.dra import budget
from tests.effort import LONG_RUN
from tests.faults.expensive import PREFIX, has_expensive_claims
from tests.faults.life import Report, play

SEEDS = (12, 24, 30)


def cut_off(report: Report) -> list[str]:
    """Attempts that ended before all nodes were searched."""
    return [line for line in report.trace if PREFIX in line and "timed out" in line]


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=LONG_RUN) for seed in SEEDS[1:])])
def test_lives_with_expensive_claims(seed: int) -> None:
    assert has_expensive_claims(seed)
    report = play(seed)
    assert report.problems == []
    assert report.bindings
    assert cut_off(report)


@LONG_RUN
def test_searches_without_a_limit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LIVE_ATTEMPT_SECONDS", 2.0)
    monkeypatch.setattr(budget, "MAX_DEBT_SECONDS", 1000.0)
    problems = [problem for seed in SEEDS[:2] for problem in play(seed).problems]
    assert any(problem.startswith("a probe was answered after") for problem in problems)
