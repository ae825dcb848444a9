"""One clock: what is stale, and when everything is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan import clock as module
from bayplan.api.meta import ObjectMeta
from bayplan.api.workloads import Service
from bayplan.clock import Changes, Freshness

SOURCE = Path(module.__file__).parent

LOGS = {*vars(Changes()), "changes", "changed", "rows"}
"""What logs are called."""


def follower(changes: Changes) -> Freshness:
    """A value that depends on the topology, and on the usage and the nodes of rows; up to date."""
    freshness = changes.freshness((changes.topology,), (changes.usage, changes.nodes))
    freshness.mark_current()
    return freshness


def test_a_value_that_was_never_computed_is_stale() -> None:
    changes = Changes()
    for freshness in (
        changes.freshness(),
        changes.freshness((changes.order,)),
        changes.freshness((), (changes.usage,)),
    ):
        assert freshness.stale_rows() is None
        assert not freshness.is_current


def test_rows_that_changed_are_stale_until_the_value_is_current() -> None:
    changes = Changes()
    freshness = follower(changes)
    changes.usage.record(3)
    changes.nodes.record(5)
    changes.usage.record(3)
    assert freshness.stale_rows() == [3, 3, 5]
    assert freshness.stale_rows() == [3, 3, 5]
    freshness.mark_current()
    assert list(freshness.stale_rows() or ()) == []
    assert freshness.is_current


def test_other_topics_change_nothing() -> None:
    changes = Changes()
    freshness = follower(changes)
    changes.nominations.record(1)
    changes.images.change()
    changes.kind(Service).record((None, None))
    assert freshness.is_current


def test_a_value_that_is_found_current_depends_on_later_changes_only() -> None:
    changes = Changes()
    freshness = follower(changes)
    changes.images.change()
    assert freshness.is_current
    assert freshness.is_now
    changes.usage.record(3)
    assert freshness.stale_rows() == [3]


def test_a_topic_of_the_whole_cluster_makes_everything_stale() -> None:
    changes = Changes()
    freshness = follower(changes)
    changes.usage.record(3)
    changes.topology.change()
    assert freshness.stale_rows() is None


def test_a_value_whose_update_failed_is_still_stale() -> None:
    changes = Changes()
    freshness = follower(changes)
    changes.usage.record(3)
    with pytest.raises(ZeroDivisionError), freshness as stale:
        raise ZeroDivisionError
    assert stale == [3]
    with freshness as stale:
        assert stale == [3]
    assert freshness.is_current


def test_objects_are_recorded_until_the_value_is_current() -> None:
    changes, service = Changes(), Service(metadata=ObjectMeta(name="s"))
    log = changes.kind(Service)
    log.record((None, service))
    freshness = changes.freshness(objects=(log,))
    assert freshness.recorded(log) is None
    with freshness:
        pass
    assert freshness.recorded(log) == ()
    log.record((service, None))
    assert not freshness.is_current
    assert freshness.stale_rows() == ()
    assert freshness.recorded(log) == [(service, None)]


def test_only_the_clock_compares_times() -> None:
    """Everything else has a `Freshness`, so that one place decides what is stale."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.attr}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "clock.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and _is_time(node)
    ]
    assert found == []


def test_the_table_of_cached_values_is_complete() -> None:
    """ARCHITECTURE.md names every class that has a `Freshness`, and the file that defines it."""
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    section = page.split("## What is cached, for whom, and what makes it stale")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ") and "`" in line]
    missing = [
        f"{path.name}: {item.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "clock.py" and "answers" not in path.parts
        for item in ast.parse(path.read_text()).body
        if isinstance(item, ast.ClassDef)
        and any(isinstance(node, ast.Call) and _makes_freshness(node.func) for node in ast.walk(item))
        and not any(re.search(rf"`{item.name}\b", row) for row in rows)
    ]
    assert missing == []
    for row in rows:
        named = re.match(r" `(\w+)[^`]*`: [^(]*\(`([\w/]+\.py)`", row)
        if named is not None:
            assert f"class {named[1]}" in (SOURCE / named[2]).read_text()


def _makes_freshness(function: ast.expr) -> bool:
    return getattr(function, "attr", getattr(function, "id", "")) in ("freshness", "Freshness")


def _is_time(node: ast.Attribute) -> bool:
    """Whether an expression reads a time: of a topic, of a log, of a value, or of the clock itself."""
    of = node.value.attr if isinstance(node.value, ast.Attribute) else ""
    return (
        node.attr in ("changed_at", "topics_changed_at")
        or (node.attr == "since" and of in LOGS)
        or (node.attr == "now" and of == "clock")
        or (node.attr == "_time" and of.endswith("freshness"))
    )


def test_beyond_the_history_everything_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORY", 8)
    changes = Changes()
    old = follower(changes)
    for row in range(4):
        changes.usage.record(row)
    young = follower(changes)
    for row in range(4, 9):
        changes.usage.record(row)
    assert old.stale_rows() is None
    assert young.stale_rows() is None
    changes.usage.record(9)
    recent = follower(changes)
    changes.usage.record(10)
    assert recent.stale_rows() == [10]


@given(steps=st.lists(st.integers(0, 9) | st.sampled_from(["read", "look", "trim", "other"]), max_size=60))
def test_no_row_is_missed(steps: list[int | str]) -> None:
    """A reader of the log gets the last change of every row, however often the log is trimmed and the value
    is found to be current."""
    changes, table, copy = Changes(), [0] * 10, [0] * 10
    freshness = changes.freshness((), (changes.usage,))
    for number, step in enumerate([*steps, "read"], start=1):
        if isinstance(step, int):
            table[step] = number
            changes.usage.record(step)
        elif step == "trim":
            changes.usage.trim()
        elif step == "other":
            changes.nodes.record(0)
            changes.order.change()
        elif step == "look":
            assert not freshness.is_current or copy == table
        else:
            rows = freshness.stale_rows()
            for row in range(10) if rows is None else rows:
                copy[row] = table[row]
            freshness.mark_current()
            assert copy == table
