"""Whatever breaks, pods end up bound once or queued; `make faults SEEDS=N` plays more of these lives."""

from __future__ import annotations

import pytest

from tests.effort import LONG_RUN
from tests.faults.__main__ import main
from tests.faults.life import play


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="some seeds"),
        *(
            pytest.param(range(first, first + 8), marks=LONG_RUN, id=f"seeds {first} to {first + 7}")
            for first in range(8, 40, 8)
        ),
    ],
)
def test_nothing_is_lost(seeds: range) -> None:
    found = {seed: play(seed).problems for seed in seeds}
    assert {seed: problems for seed, problems in found.items() if problems} == {}


def test_lives_are_hard_enough() -> None:
    """Between them the seeds see crashes, faults and bindings; a quiet life would prove nothing."""
    reports = [play(seed) for seed in range(5)]
    assert sum(report.crashes for report in reports) > 0
    assert sum(report.faults.total() for report in reports) > 100
    assert sum(report.bindings for report in reports) > 20


def test_a_life_repeats_exactly() -> None:
    assert play(7).trace == play(7).trace


def test_one_seed_can_be_played_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    assert capsys.readouterr().out == "all is well\n"
