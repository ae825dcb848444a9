"""Ids for repeated things, and lookups by id."""

from __future__ import annotations

import numpy as np

from bayplan.state.columns import ABSENT, Interner, Lookup, SharedIds


def test_equal_things_have_equal_ids_in_order_of_first_sight() -> None:
    names: Interner[str] = Interner()
    assert [names.intern(name) for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]
    assert (len(names), names.values) == (3, ["b", "a", "c"])


def test_finding_makes_nothing_new() -> None:
    names: Interner[str] = Interner()
    names.intern("a")
    assert (names.find("a"), names.find("b"), len(names)) == (0, ABSENT, 1)


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


class TestSharedIds:
    """One object for equal keys, for as long as it is referenced."""

    def test_equal_keys_share_an_object(self) -> None:
        things: SharedIds[str, Thing] = SharedIds()
        a, b = things.intern("a", Thing), things.intern("b", Thing)
        assert things.intern("a", Thing) is a
        assert (a.number, b.number, things[1], list(things)) == (0, 1, b, [a, b])

    def test_an_unreferenced_id_is_reused(self) -> None:
        dropped: list[tuple[int, str]] = []
        things: SharedIds[str, Thing] = SharedIds(lambda number, key: dropped.append((number, key)))
        a, b, c = (things.intern(key, Thing) for key in "abc")
        del b
        assert (things.find(1), list(things), dropped) == (None, [a, c], [])
        d = things.intern("d", Thing)
        assert (d.number, things[1], dropped, len(things)) == (1, d, [(1, "b")], 3)

    def test_a_key_that_comes_back_is_a_new_one(self) -> None:
        things: SharedIds[str, Thing] = SharedIds()
        things.intern("a", Thing)
        again = things.intern("a", Thing)
        assert (things[0], things.intern("a", Thing), len(things)) == (again, again, 1)


class TestLookup:
    """A function of the thing, evaluated once for each and then read by id."""

    def lengths(self) -> tuple[Interner[str], Lookup[str], list[str]]:
        names: Interner[str] = Interner()
        computed: list[str] = []

        def length(name: str) -> int:
            computed.append(name)
            return len(name)

        return names, Lookup(names, length, absent=-7), computed

    def test_for_a_column_and_for_one(self) -> None:
        names, lookup, _ = self.lengths()
        for name in ("a", "bb", "ccc"):
            names.intern(name)
        assert lookup(np.array([2, 0, ABSENT, 1], dtype=np.intp)).tolist() == [3, 1, -7, 2]
        assert (lookup(1), lookup(ABSENT)) == (2, -7)

    def test_each_value_is_computed_once(self) -> None:
        names, lookup, computed = self.lengths()
        names.intern("a")
        for _ in range(3):
            lookup(np.array([0, 0], dtype=np.intp))
            lookup(0)
        assert computed == ["a"]

    def test_values_of_later_things_are_computed_too(self) -> None:
        """Also where the id that means absent used to be the last entry of the table."""
        names, lookup, computed = self.lengths()
        names.intern("a")
        assert lookup(np.array([ABSENT, 0], dtype=np.intp)).tolist() == [-7, 1]
        names.intern("bb")
        assert lookup(np.array([ABSENT, 0, 1], dtype=np.intp)).tolist() == [-7, 1, 2]
        assert lookup(1) == 2
        assert computed == ["a", "bb"]

    def test_before_anything_was_seen(self) -> None:
        _, lookup, _ = self.lengths()
        assert lookup(np.array([ABSENT, ABSENT], dtype=np.intp)).tolist() == [-7, -7]

    def test_yes_and_no_are_numbers(self) -> None:
        names: Interner[str] = Interner()
        names.intern("a")
        answers = Lookup(names, lambda name: name == "a")(np.array([0], dtype=np.intp))
        assert answers.tolist() == [1]
