"""The three notations of an extension point."""

from __future__ import annotations

import pytest

from bayplan.framework.points import BUILD_ORDER, Point


@pytest.mark.parametrize("point", list(Point))
def test_notations(point: Point) -> None:
    assert point.config_key.lower() == point.value.lower()
    assert point.type_word == f"{point.value}Plugin"


def test_spelling() -> None:
    assert (Point.PRE_FILTER, Point.PRE_FILTER.config_key) == ("PreFilter", "preFilter")


def test_every_point_is_built() -> None:
    assert sorted(BUILD_ORDER) == sorted(Point)
