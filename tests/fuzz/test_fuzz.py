"""A few seeds of each target, always the same. `make fuzz` runs others, for as long as it is told to."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fuzz.mutation import Mutator
from tests.fuzz.oracle import FindingError, judged
from tests.fuzz.running import Finding, Tally, make_input, run, run_seed, save
from tests.fuzz.targets import TARGETS, Target

SEEDS = {"commands": 12, "kubeconfigs": 60, "scheduling": 18, "embedded": 6, "extenders": 15}
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
        with judged():
            try:
                raise ValueError("inside")
            except ValueError:
                logging.getLogger("bayplan.x").exception("went on")

    with pytest.raises(FindingError, match="inside"):
        log_one()


def test_time_is_limited() -> None:
    def spend() -> None:
        with judged(max_cpu=0.0):
            sum(range(200_000))

    with pytest.raises(FindingError, match="of CPU"):
        spend()


def test_each_cause_is_told_once() -> None:
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
