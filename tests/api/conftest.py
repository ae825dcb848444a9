"""Property tests here are quick; on a busy machine a single example may still take its time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
