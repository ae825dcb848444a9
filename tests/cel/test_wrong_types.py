"""Every function with arguments of every type: each call has a result or a clear error."""

from __future__ import annotations

import pytest

from bayplan.cel.__main__ import answer
from conformance.oracle import wrong_types

_DEVICE = {"driver": "gpu.example.com", "device": {"name": "gpu-0"}}


@pytest.mark.parametrize("part", range(8))
def test_calls_with_wrong_types_are_answered(part: int) -> None:
    calls = list(wrong_types.calls())[part::8]
    wanted = [answer({**_DEVICE, "expression": call})["want"] for call in calls]
    assert len(calls) > 500
    assert any("error" in each for each in wanted)
    assert any("compileError" in each for each in wanted)
    assert any("match" in each for each in wanted)
