"""Runs the PreFilter plugins, which may restrict the search to some nodes, or end it.

The results of cached plugins are valid until objects that they depend on change
(`SignatureResults.is_pre_filtered`); plugins that returned SKIP_FOR_SIGNATURE do not run again before objects
or (anti-)affinity terms change (`SkippedPlugins`).
"""

from __future__ import annotations

import numpy as np

from bayplan.framework.outcome import Diagnosis
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import SKIP_FOR_SIGNATURE, Code, Status
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.search import Search
from bayplan.runtime.timing import Caller
from bayplan.state.cluster import Cluster
from bayplan.state.view import NodeColumns


class PreFiltering:
    """The PreFilter plugins of one profile on one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller
        self._nodes = NodeColumns(cluster)
        self._all = profile.pre_filters
        self._uncached = tuple(step for step in self._all if not step.cached)
        self._names = tuple(step.name for step in self._all)
        self._all_names = frozenset(self._names)

    def run(self, search: Search) -> Diagnosis | None:
        """Runs the plugins. A Diagnosis means that no node has to be evaluated."""
        results, pod = search.results, search.pod
        pre_filtered = results.is_pre_filtered
        steps = self._uncached if pre_filtered else self._all
        remembered: Status | None = None
        search.pre_filter_nodes = None
        if not pre_filtered:
            results.check_objects()
        search.signature.skipped.update()
        skipped = search.signature.skipped.filters
        skipped_filters = search.skipped_filters = set(skipped)
        for step in steps:
            if step.name in skipped:
                continue
            if not step.cached:
                known = search.pre_filter_answers.get(step.name)
                if known is None:
                    known = self._caller.calls.pre_filter(step, search.state, pod, self._nodes)
                answer = known
                if isinstance(answer, Status) and answer.code is Code.SKIP:
                    skipped_filters.add(step.name)
                    if answer is SKIP_FOR_SIGNATURE:
                        skipped.add(step.name)
            else:
                answer = results.pre_filter(step, self._nodes)
            if isinstance(answer, NodeNames):
                rejected = self._narrow(search, step.name, answer)
                if rejected is not None:
                    search.pre_filtered = self._up_to(step.name)
                    return rejected
            elif answer.code is Code.UNRESOLVABLE:
                search.pre_filtered = self._up_to(step.name)
                return self._rejected(answer, {answer.plugin})
            elif answer.code is Code.UNSCHEDULABLE:
                remembered = answer
        search.pre_filtered = self._all_names
        if remembered is not None:
            return self._rejected(remembered, {remembered.plugin, *search.pre_filter_plugins})
        if not pre_filtered and search.pre_filter_nodes is None:
            results.mark_pre_filtered()
        return None

    def not_skipped(self, search: Search) -> tuple[Step, ...]:
        """The uncached plugins whose PreFilter runs for every pod of the signature."""
        return tuple(step for step in self._uncached if step.name not in search.signature.skipped.filters)

    def _up_to(self, name: str) -> frozenset[str]:
        """The plugins that ran when this one ended the search, now or earlier for an identical pod."""
        return frozenset(self._names[: self._names.index(name) + 1])

    def _narrow(self, search: Search, plugin: str, answer: NodeNames) -> Diagnosis | None:
        search.pre_filter_plugins.append(plugin)
        search.pre_filter_nodes = (
            answer.names if search.pre_filter_nodes is None else search.pre_filter_nodes & answer.names
        )
        if search.pre_filter_nodes:
            return None
        names = sorted(search.pre_filter_plugins)
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
            evaluated=np.zeros(0, dtype=np.intp),
            node_statuses=None,
            absent_nodes_status=status,
            pre_filter_message=status.message,
            rejecting_plugins={plugin for plugin in plugins if plugin},
        )
