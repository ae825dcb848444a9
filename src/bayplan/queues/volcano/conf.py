"""volcano-scheduler.conf: actions, and plugins in tiers.

The file needs no changes. Parts that this scheduler does not use are collected in `ignored`, by their names
in the file: node scores, for example, come from kube-scheduler's plugins, not from `binpack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from bayplan.queues.volcano.accounts import Entitlement

DEFAULT_CONF: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""What Volcano uses without a file."""

ACTIONS: Final = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
OTHER_ACTIONS: Final = ("gangpreempt", "gangreclaim", "shuffle")
PLUGINS: Final = ("priority", "gang", "conformance", "overcommit", "drf", "proportion", "capacity")
REPLACED: Final = {
    "predicates": "kube-scheduler's filters",
    "nodeorder": "kube-scheduler's scores",
    "binpack": "the scoring strategy of NodeResourcesFit",
}
"""Plugins whose work is done by something else here."""
_SWITCHES: Final = frozenset(
    {
        *("enableJobOrder", "enableHierarchy", "enableJobReady", "enableJobPipelined", "enableTaskOrder"),
        *("enablePreemptable", "enableReclaimable", "enablePreemptive", "enableQueueOrder"),
        *("enabledClusterOrder", "enablePredicate", "enableBestNode", "enableNodeOrder", "enableTargetJob"),
        *("enableReservedNodes", "enableJobEnqueued", "enabledVictim", "enableJobStarving"),
        *("enabledOverused", "enabledAllocatable", "enabledHyperNodeOrder", "enabledSubJobReady"),
        *("enabledSubJobPipelined", "enabledSubJobOrder", "enabledHyperNodeGradient"),
    }
)
_ARGUMENTS: Final = {
    ("overcommit", "overcommit-factor"): ((int, float), "a number"),
    ("capacity", "ancestorReclaimLevel"): ((int,), "an integer"),
}
"""By plugin and argument: the types that Volcano accepts. It warns of others, and uses the default."""
MIN_OVERCOMMIT: Final = 1.0
DEFAULT_OVERCOMMIT: Final = 1.2


class ConfError(Exception):
    """A volcano-scheduler.conf that Volcano rejects."""


@dataclass(frozen=True, slots=True)
class PluginOption:
    name: str
    switches: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def enabled(self, switch: str) -> bool:
        """Everything is enabled by default, except the hierarchy."""
        return self.switches.get(switch, switch != "enableHierarchy")


@dataclass(frozen=True, slots=True)
class Conf:
    """Actions in order, and plugins in tiers."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginOption, ...], ...]
    ignored: tuple[str, ...] = ()
    """What is not understood, each with its place in the file."""

    def plugin(self, name: str) -> PluginOption | None:
        return next((each for tier in self.tiers for each in tier if each.name == name), None)

    def has(self, name: str, switch: str = "") -> bool:
        found = self.plugin(name)
        return found is not None and (not switch or found.enabled(switch))

    @property
    def entitlement(self) -> Entitlement:
        for tier in self.tiers:
            for each in tier:
                if each.name in (Entitlement.PROPORTION.value, Entitlement.CAPACITY.value):
                    return Entitlement(each.name)
        return Entitlement.NONE

    @property
    def hierarchy(self) -> bool:
        """Whether queues form a tree by `spec.parent`."""
        return self.has("capacity", "enableHierarchy")

    @property
    def hierarchical_drf(self) -> bool:
        return self.has("drf", "enableHierarchy")

    @property
    def reclaim_levels(self) -> int:
        found = self.plugin("capacity")
        return 0 if found is None else max(0, found.arguments.get("ancestorReclaimLevel", 0))

    @property
    def overcommit(self) -> float | None:
        """The factor of the plugin overcommit; None without it."""
        found = self.plugin("overcommit")
        if found is None or not found.enabled("enableJobEnqueued"):
            return None
        factor = float(found.arguments.get("overcommit-factor", DEFAULT_OVERCOMMIT))
        return factor if factor >= MIN_OVERCOMMIT else DEFAULT_OVERCOMMIT


def load(text: str) -> Conf:
    """Reads a volcano-scheduler.conf.

    Raises:
        ConfError: Volcano rejects it.
    """
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfError(f"yaml: {error}") from error
    if not isinstance(content, dict):
        raise ConfError("yaml: the file is not a mapping")
    ignored = [str(key) for key in content if key not in ("actions", "tiers")]
    actions = []
    for name in str(content.get("actions") or "").split(","):
        action = name.strip()
        if action not in (*ACTIONS, *OTHER_ACTIONS):
            raise ConfError(f"failed to find Action {name}")
        actions.append(action)
        if action in OTHER_ACTIONS:
            ignored.append(f"action {action}")
    tiers = []
    for tier in _list(content.get("tiers"), "tiers"):
        options = [_option(each, ignored) for each in _list(_mapping(tier).get("plugins"), "plugins")]
        names = {each.name for each in options}
        hierarchy = any(each.name == "drf" and each.enabled("enableHierarchy") for each in options)
        if hierarchy and "proportion" in names:
            raise ConfError("proportion and drf with hierarchy enabled conflicts")
        tiers.append(tuple(options))
    conf = Conf(tuple(actions), tuple(tiers), tuple(ignored))
    if conf.has("proportion") and conf.has("capacity"):
        raise ConfError("proportion and capacity are alternatives: use one of them")
    return conf


def _option(entry: Any, ignored: list[str]) -> PluginOption:
    content = _mapping(entry)
    name = str(content.get("name", ""))
    if name not in PLUGINS:
        instead = REPLACED.get(name)
        ignored.append(f"plugin {name}" + (f" (its work is done by {instead})" if instead else ""))
    switches, arguments = {}, {}
    for key, value in content.items():
        if key in _SWITCHES:
            if not isinstance(value, bool):
                raise ConfError(f"plugin {name}: {key} is not true or false")
            switches[key] = value
        elif key == "arguments":
            arguments = dict(_mapping(value or {}))
        elif key != "name":
            ignored.append(f"plugin {name}: {key}")
    if name == "overcommit":
        ignored.append("plugin overcommit (jobs are admitted by the capability of their queue)")
    if name == "drf" and switches.get("enableHierarchy"):
        ignored.append("plugin drf: enableHierarchy (queues are ordered without their hierarchy annotations)")
    for key in list(arguments) if name in PLUGINS else ():
        types, kind = _ARGUMENTS.get((name, key), ((), ""))
        if isinstance(arguments[key], bool) or not isinstance(arguments[key], types):
            note = f" (it is not {kind})" if kind else ""
            ignored.append(f"plugin {name}: argument {key}{note}")
            del arguments[key]
    return PluginOption(name, switches, arguments)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfError("yaml: a mapping is expected in tiers")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfError(f"yaml: {name} is not a list")
    return value
