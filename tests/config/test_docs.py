"""docs/configuration.md is true: its example can be built, and it leaves no plugin or argument out."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.config import build_profiles, parse_config
from bayplan.config.defaults import default_plugins
from bayplan.framework.args import PluginArgs
from bayplan.framework.builtin_args import BUILTIN_ARGS

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_example_can_be_built() -> None:
    example, *_ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [plan.scheduler_name for plan in build_profiles(parse_config(example))] == [
        "default-scheduler",
        "pack",
    ]


def test_the_page_lists_the_default_plugins_in_order() -> None:
    listed = ", ".join(plugin.name for plugin in default_plugins(DEFAULT_RELEASE).enabled)
    assert listed in PAGE.replace("\n", " ")


@pytest.mark.parametrize(("name", "args_type"), sorted(BUILTIN_ARGS.items()))
def test_all_arguments_are_listed(name: str, args_type: type[PluginArgs]) -> None:
    (row,) = re.findall(rf"^\| {name} \|.*$", PAGE, re.MULTILINE)
    documented = {field.encode_name for field in msgspec.structs.fields(args_type)} - {"shape"}
    assert {key for key in documented if key not in row} == set()
