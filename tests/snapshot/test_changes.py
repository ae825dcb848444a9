"""The log of changed rows: what a reader gets, and when it has to start over."""

from __future__ import annotations

import pytest

from bayplan.snapshot.changes import KEEP, ChangeLog


def log_of(*rows: int) -> ChangeLog:
    log = ChangeLog()
    for row in rows:
        log.append(row)
    return log


def test_a_reader_gets_what_changed_after_it_looked() -> None:
    log = log_of(1, 2)
    cursor = log.end
    log.append(3)
    log.append(3)
    assert log.since(cursor) == [3, 3]
    assert log.since(log.end) == []
    assert log.since(0) == [1, 2, 3, 3]


def test_a_reader_that_never_looked_starts_over() -> None:
    assert log_of(1).since(-1) is None


def test_short_logs_are_kept_whole() -> None:
    log = log_of(*range(2 * KEEP))
    log.trim(rows=10)
    assert log.since(0) is not None


def test_of_a_long_log_the_older_half_goes() -> None:
    log = log_of(*range(2 * KEEP + 2))
    end = log.end
    log.trim(rows=10)
    assert log.end == end
    assert log.since(0) is None
    assert log.since(KEEP) is None
    rest = log.since(KEEP + 1)
    assert rest is not None
    assert (rest[0], rest[-1]) == (KEEP + 1, 2 * KEEP + 1)


def test_a_larger_table_has_a_longer_log() -> None:
    """Starting over costs as much as there are rows; before that, reading the log is cheaper."""
    log = log_of(*range(2 * KEEP + 2))
    log.trim(rows=5 * KEEP)
    assert log.since(0) is not None


@pytest.mark.parametrize("rounds", [1, 5])
def test_cursors_stay_good_however_often_it_is_trimmed(rounds: int) -> None:
    log = ChangeLog()
    for _ in range(rounds):
        for row in range(2 * KEEP + 1):
            log.append(row)
        cursor = log.end
        log.append(7)
        log.trim(rows=1)
        assert log.since(cursor) == [7]
