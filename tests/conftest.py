"""Property tests have no deadline: examples take milliseconds, but much longer on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
