"""A decision with all its reasons, as one typed object.

It contains more than a scheduling cycle computes: every filter's result for every node, scores even if only
one node fits, and all preemption candidates. The code that decides is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayplan.answers.explain.permit import PermitResult, permit
from bayplan.api.pod import Pod
from bayplan.framework.outcome import Eviction
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.preemption.choice import ranked
from bayplan.preemption.evaluation import evaluate, eviction_on
from bayplan.preemption.plugin import PreemptionPlugin
from bayplan.runtime import calls
from bayplan.runtime.filtering import nominated_on
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import Found, NotFound, Search, run_through
from bayplan.scheduler.cycle import NO_NODES, diagnosis_message, run_post_filter
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.view import NodeColumns


@dataclass(frozen=True, slots=True)
class PluginScores:
    """One plugin's scores of the nodes that fit, by node name."""

    weight: int
    raw: dict[str, int]
    normalized: dict[str, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The victims that preemption would evict on one node."""

    victims: tuple[str, ...]
    """`namespace/name`, most important first. Pods of a group that is evicted as a whole may be elsewhere."""
    priorities: tuple[int, ...]
    """Of the victims."""
    pdb_violations: int


@dataclass(frozen=True, slots=True)
class Preemption:
    """What preemption would do for a pod that fits on no node."""

    eligible: bool
    message: str
    nominated_node: str
    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By node, in the order in which preemption prefers them."""


@dataclass(slots=True)
class Explanation:
    """Why a node is chosen for a pod, or why the pod is unschedulable."""

    pod: str
    nodes: tuple[str, ...] = ()
    """All nodes, in the order in which they are evaluated."""
    filters: dict[str, dict[str, Status]] = field(default_factory=dict)
    """Plugin → node → status: each filter on its own, for every node it rejects."""
    node_status: dict[str, Status] = field(default_factory=dict)
    """Node → status from the first plugin that rejects it."""
    nominated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Rejected node → the pods nominated to it that are counted in its status as if they were there."""
    fits_without_nominated: frozenset[str] = frozenset()
    """The nodes among these that would fit without the nominated pods."""
    feasible: tuple[str, ...] = ()
    scores: dict[str, PluginScores] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    """The nodes with the highest total."""
    chosen: str = ""
    """The node that the scheduler chooses: one of `best`, or the pod's nominated node if that fits."""
    fit_error: str = ""
    fit_error_full: str = ""
    """With the message from PostFilter: the text in the pod's condition and event."""
    preemption: Preemption | None = None
    error: str = ""
    """Why the pod could not be evaluated."""
    permit: PermitResult | None = None
    """What keeps the pod from being bound after a node was found: a gang that is not complete."""
    rejecting_plugins: frozenset[str] = frozenset()
    """If no node fits: the plugins by whose events the pod would be requeued."""
    failed_plugin: str = ""
    """The plugin that failed, if one did: the result is incomplete then."""
    failure: str = ""
    """What it did wrong."""
    traceback: str = ""
    """Of the exception that it raised, if any."""

    @property
    def has_candidates(self) -> bool:
        """Whether preemption would help on some node."""
        return self.preemption is not None and bool(self.preemption.candidates)


def explain(framework: Framework, pod: Pod) -> Explanation:
    """Evaluates the pod alone, on the cluster as it is."""
    cluster = framework.cluster
    result = Explanation(pod.key, tuple(cluster.nodes.name[row] for row in cluster.order))
    if not cluster.node_count:
        result.error = NO_NODES
        return result
    try:
        search = framework.begin(pod)
        search.explained = True
        result.filters = _each_filter(framework, pod)
        try:
            outcome = run_through(framework.search(search))
        finally:
            _node_statuses(framework, search, result)
        if isinstance(outcome, Found):
            result.chosen = outcome.node_name
            _scores(framework, search, result)
            result.permit = permit(framework, pod, result.chosen, search.state)
        else:
            _unschedulable(framework, outcome, result)
    except calls.AttemptError as error:
        result.error = str(error)
        _note_failure(framework, result, error.plugin, str(error), error.traceback)
    return result


def _note_failure(framework: Framework, result: Explanation, plugin: str, text: str, traceback: str) -> None:
    """Notes that a plugin failed. A deliberate error of a built-in plugin is an answer about the pod."""
    own = (one for one in framework.profile.all_plugins() if one.name == plugin)
    built_in = all(type(one).__module__.startswith("bayplan.plugins.") for one in own)
    if traceback or not built_in:
        result.failed_plugin, result.failure, result.traceback = plugin, text, traceback


def _each_filter(framework: Framework, pod: Pod) -> dict[str, dict[str, Status]]:
    """PreFilter and Filter of every plugin on its own."""
    found = {}
    nodes = NodeColumns(framework.cluster)
    with_pre_filter = {step.name for step in framework.profile.pre_filters}
    search = framework.begin_uncached(pod)
    for step in framework.profile.filters:
        search.state = CycleState()
        if step.name in with_pre_filter:
            state = search.results.state_of(step) if step.cached else search.state
            answer = calls.pre_filter(step, state, pod, nodes)
            if not isinstance(answer, NodeNames) and answer.code is not Code.SUCCESS:
                continue
        node_statuses = framework.filtering.alone(search, step)
        rejected = {
            framework.cluster.nodes.name[row]: status
            for row in framework.cluster.order
            if (status := node_statuses.status(int(row))) is not None
        }
        if rejected:
            found[step.name] = rejected
    return found


def _node_statuses(framework: Framework, search: Search, result: Explanation) -> None:
    """Fills in the status of each node and the feasible nodes, as far as the search got."""
    filtered, names = search.filtered, framework.cluster.nodes.name
    if filtered is None:
        return
    if filtered.absent_nodes_status.reasons:
        result.node_status = dict.fromkeys(result.nodes, filtered.absent_nodes_status)
    for row in filtered.evaluated:
        status = framework.node_statuses(search, filtered).status(int(row))
        result.node_status.pop(names[row], None)
        if status is not None:
            result.node_status[names[row]] = status
    result.feasible = tuple(names[row] for row in filtered.feasible.view.rows)
    _note_nominated(framework, search, result)


def _note_nominated(framework: Framework, search: Search, result: Explanation) -> None:
    """Notes the nominated pods that make a difference: the status of their node counts them.

    The status of a node is that with its nominated pods if these make the filters reject it, else that
    without them. framework.go: RunFilterPluginsWithNominatedPods
    """
    cluster, filtering = framework.cluster, framework.filtering
    fitting = set()
    # The results of other plugins do not depend on pods.
    reading_pods = {step.name for step in framework.profile.filters if step.usage or not step.cached}
    for row in cluster.nominated:
        node, changes = cluster.nodes.name[row], nominated_on(cluster, search.pod, row)
        status = result.node_status.get(node)
        if not changes or status is None or status.plugin not in reading_pods:
            continue
        with_nominated, without = (
            filtering.filter_as_given(search, Hypothesis.on_few_rows(cluster, [row], [pods])).passing[0]
            for pods in (changes, ())
        )
        if not with_nominated:
            slots = (slot for slot, _ in changes)
            result.nominated[node] = tuple(pod.key for slot in slots if (pod := cluster.pods.pod[slot]))
            if without:
                fitting.add(node)
    result.fits_without_nominated = frozenset(fitting)


def _scores(framework: Framework, search: Search, result: Explanation) -> None:
    total = np.zeros(len(result.feasible), dtype=np.int64)
    for step, raw, normalized in framework.score_table(search):
        total += step.weight * normalized
        result.scores[step.name] = PluginScores(
            step.weight,
            dict(zip(result.feasible, raw.tolist(), strict=True)),
            dict(zip(result.feasible, normalized.tolist(), strict=True)),
        )
    if not framework.profile.scores:
        total += 1
    result.total = dict(zip(result.feasible, total.tolist(), strict=True))
    highest = max(result.total.values())
    result.best = tuple(name for name, score in result.total.items() if score == highest)


def _unschedulable(framework: Framework, outcome: NotFound, result: Explanation) -> None:
    if outcome.diagnosis.node_statuses is None:
        result.node_status = dict.fromkeys(result.nodes, outcome.diagnosis.absent_nodes_status)
    result.fit_error = diagnosis_message(outcome.diagnosis)
    result.fit_error_full = result.fit_error
    result.rejecting_plugins = frozenset(
        {status.plugin for status in result.node_status.values() if status.plugin}
        | outcome.diagnosis.rejecting_plugins
    )
    if not framework.profile.post_filters:
        return
    answer = run_post_filter(framework, outcome)
    message = answer.status.message
    result.fit_error_full = diagnosis_message(outcome.diagnosis, message)
    if answer.status.code is Code.ERROR:
        _note_failure(framework, result, answer.status.plugin, message, answer.traceback)
    eligible, evictions = True, list[Eviction]()
    if answer.status.code is not Code.ERROR and evicts_by_priority(framework):
        evaluation = evaluate(outcome.search.pod, framework.filter_outcome(outcome))
        eligible = not evaluation.ineligible
        if evaluation.found is not None:
            rows = ranked(evaluation.found.table, evaluation.found.helped).tolist()
            evictions = [eviction_on(framework.cluster, evaluation.found, row) for row in rows]
    elif answer.eviction is not None:
        evictions = [answer.eviction, *(answer.alternatives() if answer.alternatives is not None else ())]
    candidates = dict[str, Candidate]()
    for one in evictions:
        victims = tuple(victim.key for victim in one.victims)
        priorities = tuple(victim.priority for victim in one.victims)
        candidates.setdefault(one.node_name, Candidate(victims, priorities, one.pdb_violations))
    nominated = answer.nomination.node_name if answer.nomination is not None else ""
    result.preemption = Preemption(eligible, message, nominated, candidates)


def evicts_by_priority(framework: Framework) -> bool:
    """Whether pods of lower priority are evicted, and no plugin has another rule."""
    plugins = [step.plugin for step in framework.profile.post_filters]
    rules = {type(plugin).may_evict for plugin in plugins if isinstance(plugin, PreemptionPlugin)}
    return rules == {PreemptionPlugin.may_evict}
