"""Every built-in plugin passes the checks, and each check catches the plugin it is there for."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from bayplan.plugin import (
    Action,
    BoolColumn,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    Resource,
    Status,
    event_with_hint,
    unresolvable,
    unschedulable,
)
from bayplan.plugin._internal import RowMask
from bayplan.plugin.objects import Service
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import ask, maker
from bayplan.testing.plugin_checks import PLUGIN_CHECKS, SEEDS, Check, check_plugin
from bayplan.testing.samples import Samples, make_samples

SAMPLES = {seed: make_samples(seed) for seed in SEEDS}


@pytest.mark.parametrize("check", PLUGIN_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("plugin", BUILTIN_PLUGINS, ids=lambda plugin: plugin.name)
def test_built_in_plugins_pass(plugin: type[Plugin], check: Check) -> None:
    for samples in SAMPLES.values():
        check(maker(plugin), samples)


def test_samples_are_the_same_for_the_same_seed() -> None:
    assert make_samples(1) == make_samples(1)
    assert make_samples(1) != make_samples(2)


def test_samples_have_something_for_every_filter_and_score() -> None:
    """A check that never meets a rejection checks nothing."""
    skipping: dict[str, set[str]] = {"filter": set(), "score": set()}
    for plugin in BUILTIN_PLUGINS:
        rejecting = scoring = 0
        for samples in SAMPLES.values():
            for pod in samples.pods:
                answers = ask(maker(plugin), pod, samples.cluster())
                rejecting += len(answers.statuses)
                scoring += len(set(answers.raw.values())) > 1
        if hasattr(plugin, "filter") and not rejecting:
            skipping["filter"].add(plugin.name)
        if hasattr(plugin, "score") and not scoring:
            skipping["score"].add(plugin.name)
    assert skipping == {"filter": {"DynamicResources"}, "score": {"DynamicResources", "VolumeBinding"}}


# Plugins that do what they must not


class Nothing(Plugin):
    pass


class ChangesColumns(Plugin):
    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        mask = nodes.cluster.nodes.exists.array
        mask[0] = False
        yield Reject(False, unschedulable("never"))


class ChangesPods(Plugin):
    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        pod.labels["seen"] = "yes"


class WritesColumns(Plugin):
    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        everything = NodeColumns(nodes.cluster)
        everything.pod_count[0] = 7
        yield Reject(False, unschedulable("never"))


class Dice(Plugin):
    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.array([random.randrange(100) for _ in range(len(nodes))], dtype=np.int64)


class KeepsState(Plugin):
    """Accepts a pod only once."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.seen: set[str] = set()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        if pod.uid in self.seen:
            return unresolvable("again")
        self.seen.add(pod.uid)
        return None


class TooHigh(Plugin):
    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.full(len(nodes), 101, dtype=np.int64)


class NormalizesByPlace(Plugin):
    depends_on = Dependencies.of()

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return np.arange(len(nodes), dtype=np.int64)


class LooksAtNeighbours(Plugin):
    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(
            nodes.pod_count >= nodes.pod_count.max(initial=0), unschedulable("the fullest of those shown")
        )


class NotPlain(Plugin):
    depends_on = Dependencies.of(usage=True)
    elementwise = True

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(~(nodes.pod_count > 1), unschedulable("few pods"))


class NotWhole(Plugin):
    depends_on = Dependencies.of(usage=True)
    elementwise = True

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        return (
            nodes.pod_count % 100 if isinstance(nodes.pod_count, np.ndarray) else float(nodes.pod_count % 100)
        )


class WrongShortcutOfFilter(Plugin):
    depends_on = Dependencies.of(usage=True)
    elementwise = True

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(nodes.pod_count > 0, unschedulable("taken"))

    def row_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], bool]:
        return lambda row: False


class WrongShortcutOfScore(Plugin):
    depends_on = Dependencies.of(usage=True)
    elementwise = True

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        return nodes.minimum(nodes.pod_count, 100)

    def row_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int]:
        return lambda row: 0


class WrongRejectedRows(Plugin):
    """Does not notice that pods were added."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(nodes.pod_count > 2, unschedulable("crowded"))

    def rejected_rows(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> RowMask:
        known = state.signature.get(RowMask)
        return known or state.signature.put(RowMask(nodes.cluster.changes.clock, nodes.pod_count > 2))


class ReadsMoreOfThePod(Plugin):
    depends_on = Dependencies.of("labels")

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(bool(pod.spec.tolerations), unschedulable("tolerant"))


class ReadsUsage(Plugin):
    depends_on = Dependencies.of("labels")

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(nodes.pod_count > 0, unschedulable("taken"))


class ReadsServices(Plugin):
    depends_on = Dependencies.of("labels")

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(bool(len(nodes.cluster.objects.of(Service))), unschedulable("served"))


class ReadsImages(Plugin):
    depends_on = Dependencies.of("labels")

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(bool(nodes.cluster.nodes.images), unschedulable("pictures"))


class RegistersInvalidEvents(Plugin):
    def pre_enqueue(self, pod: Pod) -> None:
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return ["Pod/Add"]  # type: ignore[list-item]  # the mistake


class HintsMaybe(Plugin):
    def pre_enqueue(self, pod: Pod) -> None:
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [event_with_hint(Resource.NODE, Action.ADD, lambda pod, old, new: len(new.labels))]  # type: ignore[arg-type,return-value]  # the mistake


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Nothing, "plugin Nothing implements no extension point"),
        (ChangesColumns, "plugin ChangesColumns, pod default/plain: the cluster was changed"),
        (ChangesPods, "the pod was changed"),
        (WritesColumns, "assignment destination is read-only"),
        (Dice, "raw: called twice"),
        (KeepsState, "pre_filter: called twice"),
        (TooHigh, "returns an invalid score 101"),
        (NormalizesByPlace, "of scores that are all 0"),
        (LooksAtNeighbours, "Filter on some rows"),
        (NotPlain, "mask must be True, False or an array of bool"),
        (NotWhole, "Score gave"),
        (WrongShortcutOfFilter, "row_filter"),
        (WrongShortcutOfScore, "row_score"),
        (WrongRejectedRows, "rejected rows"),
        (ReadsMoreOfThePod, "depends_on declares no field in which it differs from"),
        (ReadsUsage, "statuses: depends_on does not declare the pods on the node"),
        (ReadsServices, "statuses: depends_on does not declare objects of kind Service"),
        (ReadsImages, "statuses: depends_on does not declare images"),
        (RegistersInvalidEvents, "events_to_register gave 'Pod/Add', no ClusterEventWithHint"),
        (HintsMaybe, "the hint for Node ADD answered"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
def test_a_check_catches(plugin: type[Plugin], message: str) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        check_plugin(plugin)


class Honest(NodePlugin):
    """A plugin as one would write it."""

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
        return unschedulable("noisy") if node.labels.get("disk") == "hdd" else None

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return max(0, 100 - 10 * len(node.pods))


class HonestAndCached(Honest):
    depends_on = Dependencies.of(usage=True)


@pytest.mark.parametrize("plugin", [Honest, HonestAndCached])
def test_an_honest_plugin_passes(plugin: type[Plugin]) -> None:
    check_plugin(plugin)


def test_samples_of_ones_own() -> None:
    class Annotated(Plugin):
        depends_on = Dependencies.of()

        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
            return [Reject(pod.annotations.get("example.com/skip") == "yes", unschedulable("skipped"))]

    plain, special = make_pod("a"), make_pod("b", annotations={"example.com/skip": "yes"})
    check_plugin(Annotated)
    with pytest.raises(AssertionError, match="declares no field in which it differs"):
        check_plugin(Annotated, samples=[Samples([make_node("n")], [plain, special])])


class Crowded(Plugin):
    """Rejects nodes with pods."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        return [Reject(nodes.pod_count > 0, unschedulable("has pods"))]

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
        return nodes.pod_count > 0


class WronglyUnaffected(Crowded):
    """Declares that it does not depend on the pods."""

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
        return np.zeros(len(nodes), dtype=np.bool_)


def test_a_wrong_mask_of_affected_nodes_is_found() -> None:
    check_plugin(Crowded)
    with pytest.raises(AssertionError, match="which nodes_affected_by_pods leaves out"):
        check_plugin(WronglyUnaffected)
