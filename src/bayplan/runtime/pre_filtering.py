"""Asking the PreFilter plugins, which may rule nodes out by name, or end the search.

What kept plugins answered holds until objects that they read have changed (`Standing.settled`); plugins that
have nothing to do for pods of a shape (`Idle`) are not asked again before the cluster's rules change.
"""

from __future__ import annotations

import numpy as np

from bayplan.framework.outcome import Diagnosis
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import IDLE, Code, Status
from bayplan.runtime.profile import Profile
from bayplan.runtime.search import Search
from bayplan.runtime.timing import Caller
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.view import NodeColumns


class PreFiltering:
    """The PreFilter plugins of one profile at work on one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller
        self._nodes = NodeColumns(cluster)
        self._all = profile.pre_filters
        self._asked = tuple(plugin for plugin in self._all if plugin.reads is None)
        self._names = tuple(plugin.name for plugin in self._all)
        self._all_names = frozenset(self._names)

    def run(self, search: Search) -> Diagnosis | None:
        """Asks the plugins. A Diagnosis means that no node has to be looked at."""
        standing, pod = search.standing, search.pod
        plugins = self._asked if standing.settled else self._all
        remembered: Status | None = None
        search.node_set = None
        if not standing.settled:
            standing.follow_objects()
        idle = search.idle(self._cluster.rules_version).filters
        if idle:
            search.skipped |= idle
            search.pre_filtered |= idle
        for plugin in plugins:
            if plugin.name in idle:
                continue
            if plugin.reads is None:
                answer = self._caller.calls.pre_filter(plugin, search.state, pod, self._nodes)
                if isinstance(answer, Status) and answer.code is Code.SKIP:
                    search.skipped.add(plugin.name)
                    if answer is IDLE:
                        idle.add(plugin.name)
            else:
                answer = standing.pre_filter(plugin, self._nodes)
            if isinstance(answer, NodeNames):
                rejected = self._narrow(search, plugin.name, answer)
                if rejected is not None:
                    search.pre_filtered = self._up_to(plugin.name)
                    return rejected
            elif answer.code is Code.UNRESOLVABLE:
                search.pre_filtered = self._up_to(plugin.name)
                return self._rejected(answer, {answer.plugin})
            elif answer.code is Code.UNSCHEDULABLE:
                remembered = answer
        search.pre_filtered = self._all_names
        if remembered is not None:
            return self._rejected(remembered, {remembered.plugin, *search.node_set_by})
        if search.node_set is None:
            standing.settle()
        return None

    def _up_to(self, name: str) -> frozenset[str]:
        """Whoever had their turn when this one ended it, asked now or earlier for a pod like this one."""
        return frozenset(self._names[: self._names.index(name) + 1])

    def _narrow(self, search: Search, plugin: str, answer: NodeNames) -> Diagnosis | None:
        search.node_set_by.append(plugin)
        search.node_set = answer.names if search.node_set is None else search.node_set & answer.names
        if search.node_set:
            return None
        names = sorted(search.node_set_by)
        reason = (
            f"node(s) didn't satisfy plugin {names[0]}"
            if len(names) == 1
            else f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
        )
        return self._rejected(Status(Code.UNRESOLVABLE, (reason,)), set(names))

    def _rejected(self, status: Status, plugins: set[str]) -> Diagnosis:
        return Diagnosis(
            cluster=self._cluster,
            node_count=self._cluster.node_count,
            looked_at=np.zeros(0, dtype=np.intp),
            verdicts=None,
            absent=status,
            pre_filter_message=status.message,
            rejecting_plugins={plugin for plugin in plugins if plugin},
        )
