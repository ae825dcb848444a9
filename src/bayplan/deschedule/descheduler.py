"""A policy as running plugins, and one cycle of it.

    Descheduler.cycle ─► nodes of the cycle ─► deschedule plugins of all profiles ─► balance plugins
                                                    └── cycle.evict ─► PodEvictor ─► send

The cycle is a plain function of a `ClusterTable`. With `send` = the API server (or a model) it is
descheduler's; with `send` = the planner it makes a plan of moves (`planner.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bayplan.api.selector_text import parse_selector
from bayplan.api.selectors import Selector
from bayplan.deschedule.args import DefaultEvictorArgs
from bayplan.deschedule.default_evictor import DefaultEvictor
from bayplan.deschedule.eviction import PodEvictor
from bayplan.deschedule.node_fit import NodeFit
from bayplan.deschedule.plugin import Cycle, Strategy, StrategyError, Usage
from bayplan.deschedule.policy import BUILTIN_ARGS, DEFAULT_EVICTOR, Policy, Profile
from bayplan.deschedule.strategies import STRATEGIES
from bayplan.deschedule.table import Bools, ClusterTable
from bayplan.errors import ConfigError, SelectorError
from bayplan.framework.args import PluginArgs

DESCHEDULE: Final = "deschedule"
BALANCE: Final = "balance"
MIN_NODES: Final = 2

Around = Callable[[Strategy, Cycle, Callable[[Cycle], None]], None]


@dataclass(frozen=True, slots=True)
class BuiltProfile:
    """A profile with its plugins, in the order in which they run."""

    name: str
    evictor: DefaultEvictor
    deschedule: tuple[Strategy, ...]
    balance: tuple[Strategy, ...]


@dataclass(slots=True)
class CycleResult:
    """The result of a cycle."""

    skipped: bool = False
    """There were too few nodes."""
    errors: list[str] = field(default_factory=list)
    classes: dict[str, dict[str, str]] = field(default_factory=dict)


def args_types(strategies: Mapping[str, type[Strategy]]) -> dict[str, type[PluginArgs]]:
    """What `parse_policy` needs to know of strategies, with those of others."""
    found = dict(BUILTIN_ARGS)
    for name, one in strategies.items():
        kind = one.args_type
        found[name] = kind if kind is not None and issubclass(kind, PluginArgs) else PluginArgs
    return found


class Descheduler:
    """A policy, ready to run.

    Raises:
        ConfigError: a plugin does not exist, or cannot be built; the text is descheduler's.
    """

    def __init__(self, policy: Policy, strategies: Mapping[str, type[Strategy]] = STRATEGIES) -> None:
        self.policy = policy
        self._strategies = strategies
        try:
            self.node_selector: Selector = parse_selector(policy.node_selector)
        except SelectorError as error:
            raise ConfigError(error.problem) from None
        self.profiles = tuple(map(self._build, policy.profiles))

    def _build(self, profile: Profile) -> BuiltProfile:
        prefix = f'unable to create "{profile.name}" profile: '
        for point, method, known in (
            ("deschedule", "deschedule", {}),
            ("balance", "balance", {}),
            ("filter", "filter", {DEFAULT_EVICTOR}),
            ("preevictionfilter", "pre_eviction_filter", {DEFAULT_EVICTOR}),
        ):
            names = getattr(profile.plugins, point).enabled or ()
            missing = [
                name
                for name in names
                if name not in known and not hasattr(self._strategies.get(name), method)
            ]
            if missing:
                listed = " ".join(f"{name}:{{}}" for name in sorted(set(missing)))
                shown = "preEvictionFilter" if point == "preevictionfilter" else point
                raise ConfigError(
                    f'{prefix}profile "{profile.name}" configures {shown} extension point of non-existing '
                    f"plugins: map[{listed}]"
                )
        evictor_args = profile.args_of(DEFAULT_EVICTOR)
        assert isinstance(evictor_args, DefaultEvictorArgs)
        try:
            evictor = DefaultEvictor(evictor_args)
        except SelectorError as error:
            text = f'unable to initialize "{DEFAULT_EVICTOR}" plugin: {error.problem}'
            raise ConfigError(f"{prefix}unable to build {DEFAULT_EVICTOR} plugin: {text}") from None
        built: dict[str, Strategy] = {}

        def of(names: Sequence[str] | None) -> tuple[Strategy, ...]:
            for name in names or ():
                if name not in built:
                    built[name] = self._build_plugin(profile, name, prefix)
            return tuple(built[name] for name in names or ())

        return BuiltProfile(
            profile.name,
            evictor,
            of(profile.plugins.deschedule.enabled),
            of(profile.plugins.balance.enabled),
        )

    def _build_plugin(self, profile: Profile, name: str, prefix: str) -> Strategy:
        prefix = f"{prefix}unable to build {name} plugin: "
        args = profile.args_of(name)
        if args is None:
            raise ConfigError(f'{prefix}unable to find "{name}" plugin config')
        try:
            return self._strategies[name](args)
        except StrategyError as error:
            raise ConfigError(f'{prefix}unable to initialize "{name}" plugin: {error}') from None

    def rows(self, table: ClusterTable) -> Bools:
        """The nodes of a cycle: ready, and selected by the policy."""
        if self.node_selector.is_empty:
            return table.is_ready
        selected = [self.node_selector.matches(node.labels) for node in table.nodes]
        return table.is_ready & np.array(selected, np.bool_)

    def cycle(
        self,
        table: ClusterTable,
        evictor: PodEvictor,
        *,
        now: float,
        usage: Usage | None = None,
        around: Around | None = None,
        node_fit: NodeFit | None = None,
        on_duration: Callable[[str, str, float], None] | None = None,
    ) -> CycleResult:
        """Runs all plugins on the table.

        Args:
            usage: measured usage, if the policy has a source of it.
            around: runs a plugin in another way.
            node_fit: what estimates whether pods fit; None: upstream's rules.
            on_duration: gets strategy, profile and seconds.
        """
        result = CycleResult()
        rows = self.rows(table)
        if np.count_nonzero(rows) < MIN_NODES:
            result.skipped = True
            return result
        node_fit = NodeFit(table) if node_fit is None else node_fit
        for point in (DESCHEDULE, BALANCE):
            for profile in self.profiles:
                checks = profile.evictor.on(table, node_fit, now)
                errors = []
                for strategy, run in _plugins(profile, point):
                    cycle = Cycle(
                        table,
                        rows,
                        now,
                        node_fit,
                        checks,
                        evictor,
                        profile.name,
                        strategy.name,
                        usage,
                        result.classes,
                    )
                    started = time.perf_counter()
                    try:
                        if around is None:
                            run(cycle)
                        else:
                            around(strategy, cycle, run)
                    except StrategyError as error:
                        errors.append(f'plugin "{strategy.name}" finished with error: {error}')
                    if on_duration is not None:
                        on_duration(strategy.name, profile.name, time.perf_counter() - started)
                if errors:
                    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
                    result.errors.append(f"{point} {profile.name}: {text}")
        return result


def _plugins(profile: BuiltProfile, point: str) -> Iterator[tuple[Strategy, Callable[[Cycle], None]]]:
    for strategy in profile.deschedule if point == DESCHEDULE else profile.balance:
        run: Callable[[Cycle], None] = getattr(strategy, point)
        yield strategy, run
