"""What is shown of a URL has no password in it."""

from __future__ import annotations

import pytest

from bayplan.net.http_logs import shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example:8443/path?x=1", "https://a.example:8443/path?x=1"),
        ("http://me:secret@a.example/path", "http://me:***@a.example/path"),
        ("http://me:se:cr@et@[::1]:80/", "http://me:***@[::1]:80/"),
        ("http://me@a.example/", "http://me@a.example/"),
        ("http://:secret@a.example", "http://:***@a.example"),
        ("http://[broken", "http://[broken"),
        ("", ""),
    ],
)
def test_shown_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown
