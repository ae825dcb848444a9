"""Recorded sessions of Volcano come out of the engine's functions, and depend on them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayplan.queues.volcano import accounts, drf, jobs, victims
from conformance.reference.queues import evaluate

RECORDED = Path(__file__).parents[2] / "conformance" / "queues"


def read(name: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDED / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def same(want: Any, got: Any) -> bool:
    """Equal, with numbers up to rounding; empty values are absent."""
    if isinstance(want, dict) and isinstance(got, dict):
        return all(same(want.get(key), got.get(key)) for key in {*want, *got})
    if isinstance(want, int | float) and isinstance(got, int | float):
        return isclose(want, got, rel_tol=1e-3, abs_tol=1e-3)
    return (want or None) == (got or None)


def differences(want: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    yield from (field for field in {*want, *got} if not same(want.get(field), got.get(field)))


SESSIONS = read("volcano-sessions")
KINDS = sorted({line["scenario"]["kind"] for line in SESSIONS})


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [line for line in SESSIONS if line["scenario"]["kind"] == kind]


@pytest.mark.parametrize("kind", KINDS)
def test_sessions(kind: str) -> None:
    """Every recorded session has the same allocations, victims, order, phases and accounts."""
    wrong = {
        line["scenario"]["name"]: list(differences(line["expect"], evaluate(line))) for line in of_kind(kind)
    }
    assert not {name: fields for name, fields in wrong.items() if fields}


@pytest.mark.parametrize("name", ["volcano-changed", "volcano-generated"])
def test_other_sessions(name: str) -> None:
    """The same for changed sessions, and for those with any actions, plugins and tiers."""
    wrong = {
        line["scenario"]["name"]: found
        for line in read(name)
        if (found := list(differences(line["expect"], evaluate(line))))
    }
    assert not wrong


def test_random_sessions() -> None:
    """Where Volcano's result depends on the order of a map, ours is one of the recorded ones."""
    for line in read("volcano-random"):
        got = evaluate(line)
        assert any(not list(differences(outcome, got)) for outcome in line["outcomes"]), line["scenario"][
            "name"
        ]


def everybody(found: victims.Candidates) -> victims.Mask:
    return np.ones(len(found), dtype=np.bool_)


def nobody(asking: victims.Asking, found: victims.Candidates, **_: Any) -> victims.Mask:
    return np.zeros(len(found), dtype=np.bool_)


@pytest.mark.parametrize(
    ("module", "name", "broken", "kind"),
    [
        pytest.param(accounts, "fill", lambda *_: None, "proportion", id="entitlement by weight"),
        pytest.param(accounts, "_open_hierarchy", lambda *_: None, "capacity-hierarchy", id="hierarchy"),
        pytest.param(accounts, "share", lambda *_: 0.0, "capacity", id="share"),
        pytest.param(accounts, "standing", lambda *_: (0.0, False), "capacity", id="order of queues"),
        pytest.param(accounts, "lacking", lambda *_: None, "capacity", id="room"),
        pytest.param(accounts, "overused", lambda *_: True, "proportion", id="overused"),
        pytest.param(accounts, "not_admissible", lambda *_: None, "enqueue", id="admission"),
        pytest.param(accounts, "may_reclaim", lambda *_, **__: False, "reclaim", id="may reclaim"),
        pytest.param(jobs, "standing", lambda *_: (), "gang", id="order of jobs"),
        pytest.param(drf, "job_share", lambda *_: 0.0, "drf", id="share of jobs"),
        pytest.param(drf, "compare", lambda *_: 0.0, "hdrf", id="hierarchical shares"),
        pytest.param(victims, "reclaimable", nobody, "reclaim-first-tier", id="victims"),
        pytest.param(victims, "spared_by_gang", everybody, "reclaim", id="gangs keep their minimum"),
        pytest.param(victims, "of_lower_priority", nobody, "preempt", id="victims by priority"),
        pytest.param(victims, "nearness", lambda *_: 0, "hierarchy-reclaim-first-tier", id="nearest first"),
    ],
)
def test_a_broken_function_changes_recorded_sessions(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, kind: str
) -> None:
    """The reference has no rules of its own for these: breaking the engine's function breaks its results."""
    monkeypatch.setattr(module, name, broken)
    fields = {"allocated", "pipelined", "evicted", "podGroups", "order"}
    assert any(set(differences(line["expect"], evaluate(line))) & fields for line in of_kind(kind))
