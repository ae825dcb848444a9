"""How thorough a run is: `make test` leaves out what is marked `long`, `make test-long` runs only that.

Property tests belong to both: `make test` tries some examples (`tests/effort.py`), `make test-long` all. They
have no deadline: examples take milliseconds, but much longer on a busy machine.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.effort import LONG, examples

settings.register_profile("bayplan", deadline=None, max_examples=examples(100))
settings.load_profile("bayplan")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that is run in the test's own process sets up logging for all of it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if LONG and isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("long")


def pytest_collection_finish() -> None:
    _leave_out_what_stays()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: some tests wait for processes that they started."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or nextitem.path != item.path:
        _leave_out_what_stays()


def _leave_out_what_stays() -> None:
    """Later searches for garbage leave out modules and collected tests: they take 0.3 s for each search."""
    gc.collect()
    gc.freeze()
