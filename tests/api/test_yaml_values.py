"""Unquoted words mean what they mean to Go's reader, as seen with `kubectl annotate --local -o json`."""

from __future__ import annotations

import pytest

from bayplan.api.yaml_reader import resolve_plain


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("1_000", 1000),
        ("0x1F", 31),
        ("017", 15),
        ("0o17", 15),
        ("0b101", 5),
        ("08", 8),
        ("1.0", 1),
        ("1e3", 1000),
        ("1e30", 1e30),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.5e3", 1500),
        ("1e21", 1e21),
        ("-0x1F", -31),
        ("yes", True),
        ("y", True),
        ("N", False),
        ("Off", False),
        ("~", None),
        ("", None),
        ("2020-01-01", "2020-01-01"),
        ("12:30", "12:30"),
        ("1.2.3", "1.2.3"),
        ("10s", "10s"),
        ("-", "-"),
    ],
)
def test_plain_words(word: str, meaning: object) -> None:
    assert resolve_plain(word) == meaning
    assert type(resolve_plain(word)) is type(meaning)
