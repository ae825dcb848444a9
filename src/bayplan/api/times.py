"""Times in objects that are not decoded into records."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def seconds_of(moment: Any) -> float | None:
    """Seconds since the epoch; None if it is not a time of the API, which always has an offset."""
    if not isinstance(moment, str):
        return None
    try:
        time = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()


def seconds_or_1970(moment: Any) -> float:
    """The same for stored objects, which may have an unreadable time (`reading.py`)."""
    return seconds_of(moment) or 0.0
