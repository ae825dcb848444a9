"""How deeply JSON may be nested."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.api.yaml_reader import MAX_DEPTH, decode_json
from bayplan.errors import DecodeError

VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\,:a') | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"\\a'), inner),
)


def nested(value: object, levels: int) -> str:
    return "[" * levels + json.dumps(value) + "]" * levels


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def test_bytes_that_are_not_utf8_are_no_json() -> None:
    with pytest.raises(msgspec.DecodeError, match="malformed"):
        decode_json(b'{"a": "\xff"}')


@given(VALUES)
def test_the_limit_is_exact(value: object) -> None:
    """Brackets inside strings do not count, whatever is around them."""
    levels = MAX_DEPTH - depth(value)
    assert decode_json(nested(value, levels).encode()) == json.loads(nested(value, levels))
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode_json(nested(value, levels + 1).encode())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 1_000_000, id="lists"),
        pytest.param('{"a":' * 1_000_000, id="mappings"),
        pytest.param("[" * 300 + "]" * 300, id="what the decoder itself accepts"),
    ],
)
def test_deep_texts(text: str) -> None:
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode_json(text.encode())
