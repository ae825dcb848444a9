"""Whatever an explanation says: apply it, and the plugin accepts the node or gives another cause.

`BAYPLAN_SITUATIONS=100000` tries that many situations, `BAYPLAN_FIRST_SITUATION` is the first seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.answers.explain.details import DETAILS, detail
from bayplan.answers.explain.devices import ProvideDevices, missing_devices
from bayplan.answers.explain.rejections import Rejection, rejections
from bayplan.answers.explain.remedies import (
    AddMatchingPod,
    AddResource,
    MatchLabels,
    Remedy,
    RemoveFromDomain,
    SeparatePods,
    remedy_report,
)
from bayplan.answers.explain.tables import EvaluatedPod
from bayplan.api.pod import Pod
from bayplan.framework.status import Code
from bayplan.plugins.dynamic_resources import DynamicResources
from tests.effort import LONG, LONG_RUN, examples

from .evaluating import evaluate
from .situations import Situation, apply, situation

# Like other property tests, it belongs to `make test` and to `make test-long`.
pytestmark = [LONG_RUN] if LONG else []

FIRST = int(os.environ.get("BAYPLAN_FIRST_SITUATION", "0"))
SITUATIONS = int(os.environ.get("BAYPLAN_SITUATIONS", "0")) or examples(5_000, quick=100)
PARTS = 10
NO_DETAIL = {
    "waiting for ephemeral volume controller",
    "not found",
}
"""Parts of reasons that are complete."""


@pytest.mark.parametrize("part", range(PARTS))
def test_remedies_help(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST + part, FIRST + SITUATIONS, PARTS):
        found = situation(Random(seed))
        try:
            _check(found, Random(seed), seen)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert seen["applied"] > SITUATIONS / PARTS / 4, seen


def _check(found: Situation, rng: Random, seen: Counter[str]) -> None:
    evaluated = evaluate(found.pod, found.objects)
    assert not evaluated.explanation.error, evaluated.explanation.error
    for group in rejections(evaluated.explanation):
        text, remedies = _details(evaluated, group)
        for remedy in remedies:
            assert remedy_report(remedy)["kind"] == type(remedy).__name__
        _check_nominated(found, group, seen)
        if group.status.plugin not in {*DETAILS, DynamicResources.name} or group.status.code is Code.ERROR:
            continue
        if any(part in reason for part in NO_DETAIL for reason in group.status.reasons):
            continue
        if _is_impossible(text, remedies):
            seen["impossible"] += 1
            continue
        assert remedies, f"{group} has no remedies ({text})"
        node = rng.choice(sorted({node for remedy in remedies for node in remedy.nodes}))
        assert node in group.nodes
        own = [remedy for remedy in remedies if node in remedy.nodes]
        if _contradict(own):
            seen["contradiction"] += 1
            continue
        changed = apply(own, node, found, rng)
        after = evaluate(changed.pod, changed.objects)
        seen["applied"] += 1
        for remedy in own:
            seen[type(remedy).__name__] += 1
        left = _causes_left(after, group, node)
        if left is not None:
            seen["next cause of the same plugin"] += 1
            same = {_cause(remedy) for remedy in own} & left
            assert not same, f"{text!r} on {node}: applied, and still {same}"


def _is_impossible(text: str, remedies: Sequence[Remedy]) -> bool:
    """Whether the pod's own requirements contradict each other, and the explanation says so."""
    if any(isinstance(remedy, AddMatchingPod) and remedy.impossible for remedy in remedies):
        return "no pod can match" in text
    return not remedies and text.startswith("no term can match")


def _contradict(remedies: Sequence[Remedy]) -> bool:
    """Whether different requirements, as of two volumes, need different values of a label."""
    seen: dict[str, str | None] = {}
    for remedy in remedies:
        if isinstance(remedy, MatchLabels):
            for key, label in (change for one in remedy.changes for change in one):
                if seen.setdefault(f"{id(remedy)} {key}", label) != label:
                    seen[f"{id(remedy)} {key}"] = ""
    values: dict[str, set[str | None]] = {}
    for name, label in seen.items():
        values.setdefault(name.partition(" ")[2], set()).add(label)
    several = {key for key, labels in values.items() if len(labels) > 1 or "" in labels}
    return len([one for one in remedies if isinstance(one, MatchLabels)]) > 1 and bool(several)


def _details(evaluated: EvaluatedPod, group: Rejection) -> tuple[str, list[Remedy]]:
    if group.status.plugin == DynamicResources.name:
        missing = missing_devices(evaluated.cluster, evaluated.pod, evaluated.explanation, group.nodes)
        remedies: list[Remedy] = [remedy for one in missing for remedy in one.remedies]
        return "; ".join(one.reason for one in missing), remedies
    found = detail(evaluated.framework, evaluated.pod, group)
    return found.text, list(found.remedies)


def _causes_left(after: EvaluatedPod, group: Rejection, node: str) -> set[Any] | None:
    """The causes for which the plugin rejects the node for the same reasons; None if it does not."""
    status = after.explanation.node_status.get(node)
    if status is None or status.plugin != group.status.plugin:
        return None
    if set(status.reasons).isdisjoint(group.status.reasons):
        return None
    (again,) = (one for one in rejections(after.explanation) if node in one.nodes)
    alone = Rejection(
        again.status,
        (node,),
        again.nominated and (again.nominated[again.nodes.index(node)],),
        again.fits_without_nominated and (False,),
    )
    return {_cause(remedy) for remedy in _details(after, alone)[1] if node in remedy.nodes}


def _cause(remedy: Remedy) -> Any:
    """What must not be reported again after the remedy was applied."""
    match remedy:
        case AddResource():
            return remedy.resource
        case MatchLabels():
            return "labels", remedy.origin, remedy.alternatives
        case SeparatePods():
            return "apart", remedy.own, remedy.topology_key, remedy.selector, remedy.pods
        case AddMatchingPod():
            return "near", remedy.selector
        case RemoveFromDomain():
            return "spread", remedy.topology_key, remedy.selector
        case ProvideDevices():
            # With more devices, a constraint or another request may be the next cause.
            return "devices", remedy.claim, remedy.request, bool(remedy.constraint), bool(remedy.together)
        case _:
            return _without_nodes(remedy)


def _without_nodes(remedy: Remedy) -> Any:
    return tuple(sorted((key, str(value)) for key, value in remedy_report(remedy).items() if key != "nodes"))


def _check_nominated(found: Situation, group: Rejection, seen: Counter[str]) -> None:
    """A node that would fit without its nominated pods does."""
    for node, pods, fits in zip(group.nodes, group.nominated, group.fits_without_nominated, strict=False):
        objects = [
            replace(one, status=replace(one.status, nominated_node_name=""))
            if isinstance(one, Pod) and one.key in pods
            else one
            for one in found.objects
        ]
        after = evaluate(found.pod, objects).explanation
        assert (node in after.feasible) == fits, f"{node} without {pods}: {after.node_status.get(node)}"
        seen["nominated"] += 1
