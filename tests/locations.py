"""Where in a file a plugin failed depends on the test; texts are compared without it."""

from __future__ import annotations

import re

_LOCATION = re.compile(r" \([\w.]+\.py(:\d+)?(, in [\w<>]+)?\)")


def without_location(text: str) -> str:
    assert _LOCATION.search(text), f"no file and line in {text!r}"
    return _LOCATION.sub("", text)
