"""Checks for every plugin, ours and yours: call `check_plugin(MyPlugin)` in a test.

    leaves the cluster as it was          its input is read-only
    answers the same when called again    no hidden state, no clock, no randomness of its own
    answers a few rows as it does all     the given rows may be all, a few, or hypothetical ones
    keeps scores between 0 and 100        after normalizing, which leaves equal ones equal
    registers events that exist           and its hints return True or False
    depends on what it declares           cached results (`Dependencies`) depend on nothing else
    computes plain numbers as columns     if it declares `elementwise`
    declares the nodes affected by pods   elsewhere Filter ignores which pods are there

Checks run on sample clusters (`bayplan.testing.samples`). A plugin that reads something which those do not
have needs samples of its own: otherwise nothing of it is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.framework.events import Action, ClusterEventWithHint, Resource
from bayplan.framework.group_api import GROUP_POINTS
from bayplan.framework.outcome import Reasons
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.state import SignatureMemory
from bayplan.framework.status import SKIP_FOR_SIGNATURE, SUCCESS, Code, Status
from bayplan.runtime import calls
from bayplan.runtime.profile import points_of
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.pods import PodSigner
from bayplan.state.view import NodeColumns, OneNode
from bayplan.testing.calling import (
    Answers,
    MakePlugin,
    PluginCheckError,
    PreparedPlugin,
    ask,
    fingerprint,
    maker,
    require,
    same,
)
from bayplan.testing.samples import Samples, make_samples

SEEDS: Final = (1, 2, 3)
_DECIDING: Final = frozenset((Point.PRE_ENQUEUE, Point.PRE_FILTER, Point.FILTER, Point.SCORE))
"""The points whose results checks compare."""


Check = Callable[[MakePlugin, Samples], bool]
"""Returns whether there was something to check: a plugin without Score has no scores to keep in range.

Raises:
    PluginCheckError: the plugin failed it.
"""


def check_plugin(plugin: type[Plugin], args: Any = None, *, samples: Iterable[Samples] | None = None) -> None:
    """Runs all checks. `args` are the plugin's arguments, if it takes any.

    Raises:
        PluginCheckError: the plugin failed one of them.
    """
    for sample in [make_samples(seed) for seed in SEEDS] if samples is None else samples:
        for check in PLUGIN_CHECKS:
            check(maker(plugin, args), sample)


# Checks


def check_takes_part(make: MakePlugin, samples: Samples) -> bool:
    """It has a name, and a method of at least one extension point."""
    plugin = make(samples.cluster())
    if not plugin.name:
        raise PluginCheckError(f"{type(plugin).__name__} has no name")
    if not points_of(type(plugin)) and not isinstance(plugin, GROUP_POINTS):
        raise PluginCheckError(f"plugin {plugin.name} implements no extension point")
    return True


def check_leaves_the_cluster_as_it_was(make: MakePlugin, samples: Samples) -> bool:
    """Columns are read-only, and everything else (objects, lists, logs) is not changed, either."""
    cluster = samples.cluster()
    plugin = make(cluster)
    before = fingerprint(cluster)
    for pod in samples.pods:
        encoded = msgspec.msgpack.encode(pod)
        PreparedPlugin(plugin, pod, cluster).answers()
        require(fingerprint(cluster) == before, plugin, pod, "the cluster was changed")
        require(msgspec.msgpack.encode(pod) == encoded, plugin, pod, "the pod was changed")
    return True


def check_answers_the_same_again(make: MakePlugin, samples: Samples) -> bool:
    """The same results when called twice, after other pods, and on another cluster with the same objects."""
    cluster, equal = samples.cluster(), samples.cluster()
    plugin = make(cluster)
    first = [PreparedPlugin(plugin, pod, cluster).answers() for pod in samples.pods]
    for pod, answers in reversed(list(zip(samples.pods, first, strict=True))):
        same(plugin, pod, answers, PreparedPlugin(plugin, pod, cluster).answers(), "called twice")
        same(plugin, pod, answers, ask(make, pod, equal), "called on a cluster with the same objects")
    return not _DECIDING.isdisjoint(points_of(type(plugin)))


def check_keeps_scores_in_range(make: MakePlugin, samples: Samples) -> bool:
    """Scores after normalizing, also with one node only."""
    cluster = samples.cluster()
    plugin = make(cluster)
    scored = False
    for pod in samples.pods:
        prepared = PreparedPlugin(plugin, pod, cluster)
        if not prepared.scores:
            continue
        for rows in (cluster.order, cluster.order[:1]):
            view = NodeColumns(cluster, rows)
            if calls.pre_score(prepared.step, prepared.state, pod, view).code is Code.SKIP:
                continue
            scores = calls.score_rows(prepared.step, prepared.state, pod, view)
            scored = True
            calls.normalized(prepared.step, prepared.state, pod, view, scores)
    return scored


def check_leaves_equal_scores_equal(make: MakePlugin, samples: Samples) -> bool:
    """If all raw scores of a cached plugin are equal, it is not called to normalize them."""
    cluster = samples.cluster()
    plugin = make(cluster)
    if plugin.depends_on is None or not hasattr(plugin, "normalize"):
        return False
    scored = False
    for pod in samples.pods:
        prepared = PreparedPlugin(plugin, pod, cluster)
        for score in sorted({0, 7, *prepared.raw(prepared.there)}) if prepared.scores else ():
            scored = True
            equal = np.full(len(prepared.there), score, dtype=np.int64)
            found = calls.normalized(prepared.step, prepared.state, pod, prepared.there, equal).tolist()
            require(
                len(set(found)) == 1,
                plugin,
                pod,
                f"NormalizeScore made {found} of scores that are all {score}",
            )
    return scored


def check_scores_by_domain_as_by_row(make: MakePlugin, samples: Samples) -> bool:
    """The shortcut by domain gives the same scores."""
    cluster = samples.cluster()
    plugin = make(cluster)
    found_some = False
    for pod in samples.pods if hasattr(plugin, "scores_by_domain") else ():
        prepared = PreparedPlugin(plugin, pod, cluster)
        short = prepared.scores and calls.scores_by_domain(prepared.step, prepared.state, pod, prepared.there)
        if short:
            found_some = True
            expected = list(prepared.answers().normalized.values())
            found = prepared.there.by_domain(short.topology_key, short.table).tolist()
            same(plugin, pod, expected, found, "scores by domain")
    return found_some


def check_finds_rejected_rows_as_filter(make: MakePlugin, samples: Samples) -> bool:
    """The shortcut for the rows that Filter rejects agrees with it, also after pods were added."""
    cluster = samples.cluster()
    plugin = make(cluster)
    found_some = False
    for pod in samples.pods if hasattr(plugin, "rejected_rows") else ():
        memory = SignatureMemory()
        for number, other in enumerate((None, *samples.pods)):
            if other is not None:
                cluster.add_pod(_copy(other, f"{pod.uid}-{number}"), _node_name(cluster, number))
            prepared = PreparedPlugin(plugin, pod, cluster, memory)
            if not prepared.filters:
                continue
            rows = calls.rejected_rows(prepared.step, prepared.state, pod, prepared.everything)
            if rows is not None:
                found_some = True
                there = prepared.there
                expected = [status is not None for status in prepared.statuses(there)]
                same(plugin, pod, expected, rows.mask.take(there.rows).tolist(), "rejected rows")
    return found_some


def _copy(pod: Pod, uid: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))


def _node_name(cluster: Cluster, number: int) -> str:
    return cluster.nodes.name[int(cluster.order[number % cluster.node_count])]


def check_stays_idle(make: MakePlugin, samples: Samples) -> bool:
    """SKIP_FOR_SIGNATURE is an answer for all pods of the signature, whatever other pods come."""
    cluster = samples.cluster()
    plugin = make(cluster)
    was_idle = False
    for pod in samples.pods:
        before = PreparedPlugin(plugin, pod, cluster)
        changes = cluster.changes
        rules = changes.freshness((changes.objects, changes.terms))
        rules.mark_current()
        if before.pre_filter is not SKIP_FOR_SIGNATURE:
            continue
        was_idle = True
        for number, other in enumerate(samples.pods):
            uid = f"{other.uid}-beside-{number}"
            cluster.add_pod(_copy(other, uid), _node_name(cluster, 0))
            after = PreparedPlugin(plugin, pod, cluster).pre_filter
            require(
                after is SKIP_FOR_SIGNATURE or not rules.is_current,
                plugin,
                pod,
                f"PreFilter gave SKIP_FOR_SIGNATURE, and {after} when pod {other.key} had come",
            )
            cluster.remove_pod(uid)
    return was_idle


def check_answers_few_rows_as_all(make: MakePlugin, samples: Samples) -> bool:
    """Filter, and a cached Score, on each row alone, on rows in any order, and on a hypothesis."""
    cluster = samples.cluster()
    plugin = make(cluster)
    for pod in samples.pods:
        prepared = PreparedPlugin(plugin, pod, cluster)
        for rows in _some_rows(cluster.order):
            places = [int(np.flatnonzero(cluster.order == row)[0]) for row in rows]
            view = NodeColumns(cluster, rows)
            expected = prepared.statuses(prepared.there)
            found = prepared.statuses(view)
            same(plugin, pod, [expected[place] for place in places], found, "Filter on some rows")
            as_it_is = Hypothesis(
                cluster, rows, rows[:0], np.zeros(len(rows) + 1, dtype=np.intp), np.zeros(0, dtype=np.int64)
            )
            same(
                plugin, pod, found, prepared.statuses(as_it_is), "Filter on a hypothesis that changes nothing"
            )
            if prepared.scores and plugin.depends_on is not None:
                scores = prepared.raw(prepared.there)
                same(
                    plugin, pod, [scores[place] for place in places], prepared.raw(view), "Score on some rows"
                )
    return not {Point.FILTER, Point.SCORE}.isdisjoint(points_of(type(plugin)))


def check_declares_nodes_affected_by_pods(make: MakePlugin, samples: Samples) -> bool:
    """On rows outside `nodes_affected_by_pods` Filter gives the same result whichever of their pods are
    removed."""
    cluster = samples.cluster()
    plugin = make(cluster)
    found_some = False
    for pod in samples.pods if hasattr(plugin, "nodes_affected_by_pods") else ():
        prepared = PreparedPlugin(plugin, pod, cluster)
        if not prepared.filters:
            continue
        affected = calls.nodes_affected_by_pods(prepared.step, prepared.state, pod, prepared.there)
        expected = prepared.statuses(prepared.there)
        for place in np.flatnonzero(~affected).tolist():
            found_some = True
            row = int(cluster.order[place])
            name, slots = cluster.nodes.name[row], cluster.row_pods[row]
            for gone in (slots, *([slot] for slot in slots)):
                removed = Hypothesis.on_few_rows(cluster, [row], [[(slot, -1) for slot in gone]])
                same(
                    plugin,
                    pod,
                    [expected[place]],
                    prepared.statuses(removed),
                    f"Filter without pods of {name}, which nodes_affected_by_pods leaves out",
                )
    return found_some


def _some_rows(order: IdColumn) -> list[IdColumn]:
    return [
        *(order[place : place + 1] for place in range(len(order))),
        order[::-1].copy(),
        order[1::2].copy(),
    ]


def check_computes_plain_numbers_as_columns(make: MakePlugin, samples: Samples) -> bool:
    """An elementwise plugin gives the same for one row with plain numbers as with arrays."""
    cluster = samples.cluster()
    plugin = make(cluster)
    if not plugin.elementwise:
        return False
    for pod in samples.pods:
        prepared = PreparedPlugin(plugin, pod, cluster)
        statuses = prepared.statuses(prepared.everything)
        scores = prepared.raw(prepared.everything) if prepared.scores else []
        _check_shortcuts(prepared, statuses, scores)
        for row in range(len(prepared.everything)):
            one = OneNode(cluster, row)
            if prepared.filters:
                reasons = Reasons(plugin.name)
                bits = calls.filter_one(prepared.step, prepared.state, pod, one, reasons)
                found = reasons.status(bits) if bits else None
                same(plugin, pod, statuses[row], found, "Filter on one node with plain numbers")
            if prepared.scores:
                found_score: object = prepared.step.score(prepared.state, pod, one)
                require(
                    type(found_score) is int,
                    plugin,
                    pod,
                    f"Score gave {found_score!r} for one node, no plain int",
                )
                same(plugin, pod, scores[row], found_score, "Score on one node with plain numbers")
    return True


def _check_shortcuts(
    prepared: PreparedPlugin, statuses: Sequence[Status | None], scores: Sequence[int]
) -> None:
    """`row_filter` and `row_score` agree with Filter and Score on every row."""
    plugin, pod, everything = prepared.plugin, prepared.pod, prepared.everything
    if prepared.filters:
        rejects = calls.row_shortcut(prepared.step, Point.FILTER, prepared.state, pod, everything)
        if rejects is not None:
            found = [rejects(row) for row in range(len(everything))]
            same(plugin, pod, [status is not None for status in statuses], found, "row_filter")
    if prepared.scores:
        score = calls.row_shortcut(prepared.step, Point.SCORE, prepared.state, pod, everything)
        if score is not None:
            same(plugin, pod, scores, [score(row) for row in range(len(everything))], "row_score")


def check_depends_on_what_it_declares(make: MakePlugin, samples: Samples) -> bool:
    """Cached results depend only on the pod's declared fields, the row, and objects of the declared kinds."""
    cluster = samples.cluster()
    plugin = make(cluster)
    depends_on = plugin.depends_on
    if depends_on is None:
        return False
    signature_of = PodSigner(depends_on.pod, depends_on.functions)
    identical: dict[bytes, tuple[Pod, Answers]] = {}
    others = [(what, other.cluster()) for what, other in _without_what_it_does_not_read(plugin, samples)]
    for pod in samples.pods:
        answers = _cached_part(ask(make, pod, cluster))
        known, expected = identical.setdefault(signature_of(pod), (pod, answers))
        text = f"depends_on declares no field in which it differs from {known.key}, but the results differ"
        same(plugin, pod, answers, expected, text)
        for what, other in others:
            found = _cached_part(ask(make, pod, other))
            text = f"depends_on does not declare {what}, but without them the results differ"
            same(plugin, pod, answers, found, text)
    return True


def _cached_part(answers: Answers) -> Answers:
    """Only Filter's results and raw scores of a cached plugin are cached, and PreEnqueue never is."""
    return dataclasses.replace(answers, pre_enqueue=SUCCESS, normalized={})


def _without_what_it_does_not_read(plugin: Plugin, samples: Samples) -> list[tuple[str, Samples]]:
    depends_on = plugin.depends_on
    assert depends_on is not None
    found = []
    if not depends_on.usage:
        found.append(("the pods on the node (usage=True)", samples.without(Pod)))
    kinds = {type(item) for item in samples.objects} - {Node, Pod}
    kinds -= {*depends_on.kinds, *depends_on.node_kinds}
    found.extend((f"objects of kind {kind.__name__} (kinds=…)", samples.without(kind)) for kind in kinds)
    if not depends_on.images:
        plain: list[Object] = [
            msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, images=()))
            if isinstance(item, Node)
            else item
            for item in samples.objects
        ]
        found.append(("images (images=True)", Samples(plain, samples.pods)))
    return found


def check_registers_events_that_exist(make: MakePlugin, samples: Samples) -> bool:
    """A plugin that can reject a pod registers events, and hints return True or False for any such event."""
    plugin = make(samples.cluster())
    registered = plugin.events_to_register()
    if registered is None:
        return False
    for registration in registered:
        if not isinstance(registration, ClusterEventWithHint):
            raise PluginCheckError(
                f"plugin {plugin.name}: events_to_register gave {registration!r}, no ClusterEventWithHint"
            )
        hint, event = registration.hint, registration.event
        if hint is None:
            continue
        for pod in samples.pods:
            for old, new in _changes(event.resource, event.action, pod, samples):
                answer = hint(pod, old, new)
                require(
                    isinstance(answer, bool),
                    plugin,
                    pod,
                    f"the hint for {event.resource} {event.action.name} answered {answer!r}",
                )
    return True


def _changes(resource: str, action: Action, pod: Pod, samples: Samples) -> list[tuple[Any, Any]]:
    """Objects before and after events of this kind."""
    kinds: dict[str, type[Object]] = {Resource.POD: Pod, Resource.NODE: Node}
    kind = kinds.get(resource)
    if kind is None:
        return []
    some: Sequence[Any] = [item for item in samples.objects if isinstance(item, kind)][:4]
    changes: list[tuple[Any, Any]] = []
    if action & Action.ADD:
        changes.extend((None, item) for item in some)
    if action & Action.DELETE:
        changes.extend((item, None) for item in some)
    if action & Action.UPDATE:
        changes.extend((old, new) for old in some for new in some if old.name == new.name)
        changes.extend((pod, pod) for _ in some[:1] if kind is Pod)
        changes.extend((old, _renamed(new, old)) for old, new in pairwise(some))
    return changes


def _renamed(item: Any, other: Any) -> Any:
    """The item with the name of another, so that the two are one object before and after a change."""
    names = {"name": other.metadata.name, "uid": other.metadata.uid, "namespace": other.metadata.namespace}
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, **names))


PLUGIN_CHECKS: Final[tuple[Check, ...]] = (
    check_takes_part,
    check_leaves_the_cluster_as_it_was,
    check_answers_the_same_again,
    check_keeps_scores_in_range,
    check_leaves_equal_scores_equal,
    check_scores_by_domain_as_by_row,
    check_finds_rejected_rows_as_filter,
    check_stays_idle,
    check_answers_few_rows_as_all,
    check_declares_nodes_affected_by_pods,
    check_computes_plain_numbers_as_columns,
    check_depends_on_what_it_declares,
    check_registers_events_that_exist,
)
"""All checks, if each should be a test of its own."""
