"""Hashable keys of values, so that lists are compared in linear time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def identity(value: Any) -> Hashable:
    """Equal for values that are the same JSON, and usable as a key. In Python, 1 and true are equal, too."""
    return value if isinstance(value, str) else _encode_sorted(value)
