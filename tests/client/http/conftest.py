"""Fixtures of several files."""

from __future__ import annotations

import pytest

from bayplan.client import informer, list_watch
from bayplan.scheduler import binding, volume_binder


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that try again soon."""
    monkeypatch.setattr(binding, "READ_BACK_SECONDS", 0.02)
    monkeypatch.setattr(volume_binder, "POLL_SECONDS", 0.02)
    for module in (informer, list_watch):
        monkeypatch.setattr(module, "FIRST_BACKOFF_SECONDS", 0.005)
        monkeypatch.setattr(module, "MAX_BACKOFF_SECONDS", 0.02)
