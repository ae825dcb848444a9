"""What the configuration states about the built-in plugins is what their classes have."""

from __future__ import annotations

import pytest

from bayplan.api.releases import V1_36, V1_37
from bayplan.config import builtin_catalog
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.profile import points_of

OF_GROUPS = {Point.PLACEMENT_GENERATE, Point.PLACEMENT_SCORE, Point.POD_GROUP_POST_FILTER}
"""Only pod groups get there, which are not built yet."""


@pytest.mark.parametrize("plugin", BUILTIN_PLUGINS)
def test_points_and_arguments(plugin: type[Plugin]) -> None:
    """A class has the extension points of the newest release; earlier ones may have fewer."""
    newest, previous = builtin_catalog(V1_37), builtin_catalog(V1_36)
    assert points_of(plugin) == newest.points(plugin.name) - OF_GROUPS
    assert points_of(plugin) >= previous.points(plugin.name) - OF_GROUPS
    assert plugin.args_type in (None, newest.args_type(plugin.name))


def test_all_are_there() -> None:
    assert [len(builtin_catalog(release).names) for release in (V1_36, V1_37)] == [23, 24]
    assert builtin_catalog().args_type("NoSuchPlugin") is None
