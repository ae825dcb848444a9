"""The state of plugins during a cycle, and beyond it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bayplan.framework.state import CycleState, NotInStateError, SignatureMemory


@dataclass
class Counter:
    """State that AddPod changes."""

    count: int = 0

    def clone(self) -> Counter:
        return Counter(self.count)


def test_what_was_written_can_be_read() -> None:
    state = CycleState()
    state.write("P", 1)
    state.write(("P", "more"), 2)
    assert (state.read("P"), state.read(("P", "more")), state.get("Q")) == (1, 2, None)


def test_reading_what_was_not_written_fails_with_upstreams_text() -> None:
    with pytest.raises(NotInStateError, match=r"^not found$"):
        CycleState().read("P")


def test_none_is_a_value() -> None:
    state = CycleState()
    state.write("P", None)
    assert state.read("P") is None


def test_a_copy_has_its_own_values_where_they_can_be_cloned_and_shares_the_rest() -> None:
    state = CycleState()
    shared = [1]
    state.write("counter", Counter())
    state.write("shared", shared)
    copy = state.clone()
    copy.read("counter").count += 1
    copy.write("new", 1)
    assert (state.read("counter").count, copy.read("counter").count) == (0, 1)
    assert copy.read("shared") is shared
    assert state.get("new") is None


def test_what_follows_from_the_pod_alone_is_made_once() -> None:
    memory = SignatureMemory()
    made = []

    def make() -> int:
        made.append(1)
        return 7

    for _ in range(3):
        assert CycleState.of(memory).memo("P", make) == 7
    assert len(made) == 1
    assert CycleState.of(memory).clone().signature is memory


def test_states_without_a_signature_share_nothing() -> None:
    one, other = CycleState(), CycleState()
    one.memo("P", lambda: 1)
    assert other.memo("P", lambda: 2) == 2
