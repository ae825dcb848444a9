"""What the configuration believes about the built-in plugins is what their classes are."""

from __future__ import annotations

import pytest

from bayplan.config import builtin_catalog
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.profile import points_of

PLACEMENT = {Point.PLACEMENT_GENERATE, Point.PLACEMENT_SCORE}
"""Only pod groups get there, which are not built yet."""


@pytest.mark.parametrize("plugin", BUILTIN_PLUGINS)
def test_points_and_arguments(plugin: type[Plugin]) -> None:
    assert points_of(plugin) == builtin_catalog().points(plugin.name) - PLACEMENT
    assert plugin.args_type in (None, builtin_catalog().args_type(plugin.name))


def test_all_23_are_there() -> None:
    assert len(builtin_catalog().names) == 23
    assert builtin_catalog().args_type("NoSuchPlugin") is None
