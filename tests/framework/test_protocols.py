"""The protocols of the extension points: mypy holds plugins that derive from them to the contract."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from mypy import api

from bayplan.errors import PluginError
from bayplan.framework import plugin_api, shortcuts
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.runtime.profile import Profile
from bayplan.testing.calling import make_plugin

HEADER = """
import numpy as np
from collections.abc import Callable, Collection, Iterable
from numpy.typing import NDArray
from bayplan import plugin as api
from bayplan.plugin import _internal as internal
from bayplan.plugin import (
    CycleState,
    FilterOutcome,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodeNames,
    Plugin,
    Pod,
    PostFilterResult,
    Reject,
    Status,
    Wait,
)
from bayplan.plugin._internal import RowMask

handle: api.Handle
"""
STATE_POD = "self, state: CycleState, pod: Pod"
ROWS = f"{STATE_POD}, nodes: NodeColumns"
NODE = f"{STATE_POD}, node_name: str"

POINTS = {
    "PreEnqueuePlugin": {"pre_enqueue": ("self, pod: Pod", "Status | None")},
    "WaitingKeysPlugin": {"waiting_keys": ("self, pod: Pod", "Collection[str]")},
    "QueueSortPlugin": {"sort_key": ("self, pod: Pod, timestamp: float", "tuple[int, float]")},
    "PreFilterPlugin": {"pre_filter": (ROWS, "Status | NodeNames | None")},
    "AddRemovePodPlugin": {
        "add_pod": (f"{STATE_POD}, added: Pod, node: NodeInfo", "Status | None"),
        "remove_pod": (f"{STATE_POD}, removed: Pod, node: NodeInfo", "Status | None"),
    },
    "FilterPlugin": {"filter": (ROWS, "Iterable[Reject]")},
    "RejectedRowsPlugin": {"rejected_rows": (ROWS, "RowMask | None")},
    "NodesAffectedByPodsPlugin": {"nodes_affected_by_pods": (ROWS, "NDArray[np.bool_]")},
    "PostFilterPlugin": {"post_filter": (f"{STATE_POD}, outcome: FilterOutcome", "PostFilterResult")},
    "PreScorePlugin": {"pre_score": (ROWS, "Status | None")},
    "ScorePlugin": {"score": (ROWS, "IntColumn")},
    "RowFilterPlugin": {"row_filter": (ROWS, "Callable[[int], bool] | None")},
    "RowScorePlugin": {"row_score": (ROWS, "Callable[[int], int] | None")},
    "NormalizePlugin": {"normalize": (f"{ROWS}, scores: IntColumn", "IntColumn")},
    "DomainScorePlugin": {"scores_by_domain": (ROWS, "tuple[str, IntColumn] | None")},
    "UniformScorePlugin": {"has_uniform_score": (STATE_POD, "bool")},
    "ReservePlugin": {"reserve": (NODE, "Status | None"), "unreserve": (NODE, "None")},
    "PermitPlugin": {"permit": (NODE, "Status | Wait | None")},
    "PreBindPlugin": {
        "pre_bind_pre_flight": (NODE, "Status | None"),
        "async pre_bind": (NODE, "Status | None"),
    },
    "BindPlugin": {"async bind": (NODE, "Status | None")},
    "PostBindPlugin": {"post_bind": (NODE, "None")},
}
"""For each protocol its methods: parameters and result as the contract has them."""

PROTOCOLS = {
    name: value
    for name, value in (vars(plugin_api) | vars(shortcuts)).items()
    if name.endswith("Plugin") and getattr(value, "_is_protocol", False)
}


def method(name: str, parameters: str, result: str) -> str:
    keyword, _, bare = name.rpartition(" ")
    return f"    {keyword} def {bare}({parameters}) -> {result}:\n        raise NotImplementedError\n"


def plugin_with(protocol: str, name: str, methods: dict[str, tuple[str, str]]) -> str:
    body = "".join(method(*(key, *value)) for key, value in methods.items())
    module = "internal" if hasattr(shortcuts, protocol) else "api"
    return f"\nclass {name}(Plugin, {module}.{protocol}):\n{body}\n{name}(None, handle)\n".replace(
        "     def", "    def"
    )


def test_every_protocol_is_tried() -> None:
    assert set(POINTS) == set(PROTOCOLS)


def test_mypy_finds_every_method_with_a_wrong_signature(tmp_path: Path) -> None:
    """A parameter too few, a result of another type; and it accepts the right ones."""
    text, wrong = HEADER, set()
    for protocol, methods in POINTS.items():
        text += plugin_with(protocol, f"Right{protocol}", methods)
        for name, (parameters, _) in methods.items():
            bare = name.split()[-1].title()
            fewer = parameters.rpartition(",")[0]
            text += plugin_with(protocol, f"Fewer{bare}", methods | {name: (fewer, methods[name][1])})
            text += plugin_with(protocol, f"Other{bare}", methods | {name: (parameters, "complex")})
            wrong |= {f"Fewer{bare}", f"Other{bare}"}
    module = tmp_path / "plugins.py"
    module.write_text(text)
    found, _, code = api.run([str(module), f"--config-file={Path(__file__).parents[2] / 'pyproject.toml'}"])
    assert code == 1
    lines, blamed = text.splitlines(), set()
    for error in found.splitlines():
        if ": error:" in error and module.name in error:
            assert "[override]" in error, error
            above = lines[: int(error.split(":")[1])]
            blamed.add(
                next(line for line in reversed(above) if line.startswith("class ")).split()[1].split("(")[0]
            )
    assert blamed == wrong


@pytest.mark.parametrize("plugin", [*BUILTIN_PLUGINS, Coscheduling], ids=lambda plugin: plugin.name)
def test_built_in_plugins_derive_from_the_protocols_they_implement(plugin: type[Plugin]) -> None:
    """So mypy checks them."""
    implemented = {name for name, protocol in PROTOCOLS.items() if issubclass(plugin, protocol)}
    assert implemented == {base.__name__ for base in inspect.getmro(plugin)} & set(PROTOCOLS)


def test_a_plugin_with_half_a_point_is_reported_when_the_profile_is_built() -> None:
    class Half(Plugin):
        def reserve(self, state: object, pod: object, node_name: str) -> None:
            return None

        async def pre_bind(self, state: object, pod: object, node_name: str) -> None:
            return None

    with pytest.raises(PluginError, match="plugin Half: Reserve also requires the method unreserve"):
        Profile("default-scheduler", {Point.RESERVE: [make_plugin(Half)]}, {})
    with pytest.raises(PluginError, match="PreBind also requires the method pre_bind_pre_flight"):
        Profile("default-scheduler", {Point.PRE_BIND: [make_plugin(Half)]}, {})
