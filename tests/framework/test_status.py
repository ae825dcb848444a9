"""Answers of plugins."""

from __future__ import annotations

import pytest

from bayplan.framework.status import (
    SKIP,
    SUCCESS,
    Code,
    Status,
    failure,
    unresolvable,
    unschedulable,
)


def test_codes_have_upstreams_numbers_and_names() -> None:
    assert {code.value: code.label for code in Code} == {
        0: "Success",
        1: "Error",
        2: "Unschedulable",
        3: "UnschedulableAndUnresolvable",
        4: "Wait",
        5: "Skip",
        6: "Pending",
    }


@pytest.mark.parametrize("code", Code)
def test_what_counts_as_a_rejection(code: Code) -> None:
    rejections = {Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING}
    assert Status(code).is_rejection is (code in rejections)
    assert Status(code).is_success is (code is Code.SUCCESS)


def test_shorthands() -> None:
    assert unschedulable("a", "b") == Status(Code.UNSCHEDULABLE, ("a", "b"))
    assert unresolvable("a") == Status(Code.UNRESOLVABLE, ("a",))
    assert failure("a") == Status(Code.ERROR, ("a",))
    assert (SUCCESS.code, SKIP.code) == (Code.SUCCESS, Code.SKIP)
    assert unschedulable("a", "b").message == "a, b"


def test_an_author_is_named_once() -> None:
    assert unschedulable("a").by("P") == Status(Code.UNSCHEDULABLE, ("a",), "P")
    assert unschedulable("a").by("P").by("Q").plugin == "P"
