"""What every test starts with."""

from __future__ import annotations

import pytest

from bayplan.runtime.failure_log import forget_plugin_errors


@pytest.fixture(autouse=True)
def _new_failure_log() -> None:
    """Tracebacks that another test has logged are logged again."""
    forget_plugin_errors()
