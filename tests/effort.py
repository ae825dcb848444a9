"""How much a test does: some of its work in `make test`, all of it in `make test-long`.

`@LONG_RUN` marks a test, or a row of a table, that only `make test-long` runs.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

LONG: Final = os.environ.get("BAYPLAN_LONG") == "1"
LONG_RUN: Final = pytest.mark.long

QUICK_SHARE: Final = 5
MIN_EXAMPLES: Final = 10


def examples(full: int, *, quick: int = 0) -> int:
    """The number of examples of a property test. `make test` tries a fifth, but at least ten, or `quick`."""
    return full if LONG else quick or min(full, max(MIN_EXAMPLES, full // QUICK_SHARE))
