"""Preemption against a plain version of it: one node, one pod and one question at a time.

Where the search evaluates hypotheses of all nodes at once, the plain version builds a cluster in which the
pods are really deleted, and runs the filters there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import Nomination
from bayplan.framework.status import Code, Status
from bayplan.plugin import compile_selector
from bayplan.preemption.victims import NO_VICTIMS
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.pods import start_nanos
from tests.effort import examples

from .generated import FLAVORS, lives
from .life import Life
from .pools import RANKED


class PlainPreemption:
    """The rule as the specification has it."""

    def __init__(self, life: Life, pod: Pod) -> None:
        self.life = life
        self.pod = pod
        self.cluster = life.cores[0].cluster

    def status(self, name: str, gone: set[str]) -> Status | None:
        """The status of a node where these pods are really deleted."""
        core = SchedulingCore(cache=False)
        for lister in self.cluster.objects._listers.values():
            for item in lister:
                core.cluster.objects.put(item)
        for node in self.life.nodes.values():
            core.cluster.set_node(node)
        for other, node_name in self.life.running.values():
            if other.uid not in gone:
                core.cluster.add_pod(other, node_name)
        for other in self.life.waiting.values():
            core.cluster.nominate(other, self.cluster.nominated_node(other.uid) or "")
        framework = core.frameworks[self.pod.spec.scheduler_name]
        search = framework.begin(self.pod)
        rejected = framework.pre_filter(search)
        assert rejected is None
        search.results.update()
        return framework.filtering.node_statuses(search).status(core.cluster.nodes.row_of[name])

    def victims(self, name: str) -> Status | Loss:
        here = list(self.cluster.pods_on(self.cluster.nodes.row_of[name]))
        lower = [other for other in here if other.priority < self.pod.priority]
        if not lower:
            return NO_VICTIMS
        gone = {other.uid for other in lower}
        status = self.status(name, gone)
        if status is not None:
            return status
        lower.sort(key=lambda other: (-other.priority, start_nanos(other)))
        violating = self.violating(lower)
        victims: list[Pod] = []
        violations = 0
        for group in (violating, [other for other in lower if other not in violating]):
            for other in group:
                if self.status(name, gone - {other.uid}) is None:
                    gone.discard(other.uid)
                else:
                    victims.append(other)
                    violations += other in violating
        victims.sort(key=lambda other: (-other.priority, start_nanos(other)))
        return Loss(name, tuple(victims), violations)

    def violating(self, pods: Sequence[Pod]) -> list[Pod]:
        budgets = list(self.cluster.objects.of(PodDisruptionBudget))
        allowed = [budget.status.disruptions_allowed for budget in budgets]
        found = []
        for pod in pods:
            violates = False
            for place, budget in enumerate(budgets):
                selector = compile_selector(budget.spec.selector)
                if (
                    budget.namespace == pod.namespace
                    and pod.labels
                    and not selector.is_empty
                    and selector.matches(pod.labels)
                ):
                    allowed[place] -= 1
                    violates = violates or allowed[place] < 0
            if violates:
                found.append(pod)
        return found


@dataclass(frozen=True)
class Loss:
    node: str
    victims: tuple[Pod, ...]
    violations: int

    @property
    def order(self) -> tuple[int, ...]:
        highest = self.victims[0].priority
        return (
            self.violations,
            highest,
            sum(victim.priority + 2**31 for victim in self.victims),
            len(self.victims),
            -min(start_nanos(victim) for victim in self.victims if victim.priority == highest),
        )


def least(losses: Iterable[Loss]) -> Loss | None:
    return min(losses, key=lambda loss: loss.order, default=None)


def is_quirky(pod: Pod, life: Life) -> bool:
    """Spreading counts a pod being deleted once it is added or removed, and not before, as upstream."""
    spreads = bool(pod.spec.topology_spread_constraints)
    return spreads and any(other.is_terminating for other, _ in life.running.values())


@pytest.mark.parametrize("flavor", ["crowded", "fought over"])
@settings(max_examples=examples(40), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_victims_agree_with_the_plain_rule(flavor: str, data: st.DataObject) -> None:
    life = Life(SchedulingCore())
    core = life.cores[0]
    for event in data.draw(lives(FLAVORS[flavor], most=30)):
        life.play(event)
    for number in range(2):
        shape = RANKED[data.draw(st.integers(0, len(RANKED) - 1))]
        pod = shape.pod(f"incoming-{number}", priority=data.draw(st.sampled_from((100, 50))))
        decision = core.decide(pod)
        diagnosis, answer = decision.diagnosis, decision.post_filter
        if diagnosis is None or answer is None or diagnosis.pre_filter_message or is_quirky(pod, life):
            continue
        plain = PlainPreemption(life, pod)
        names = [core.cluster.nodes.name[row] for row in core.cluster.order]
        tried = [
            name
            for name in names
            if diagnosis.status(core.cluster.nodes.row_of[name]).code is Code.UNSCHEDULABLE
        ]
        results = [plain.victims(name) for name in tried]
        best = least(result for result in results if isinstance(result, Loss))
        if best is None:
            assert answer.eviction is None
            assert answer.nomination == Nomination("")
            reasons = [
                reason for result in results if isinstance(result, Status) for reason in result.reasons
            ]
            for reason in set(reasons):
                assert f"{reasons.count(reason)} {reason}" in answer.status.message
        else:
            assert answer.eviction is not None
            assert (answer.eviction.node_name, answer.eviction.victims, answer.eviction.pdb_violations) == (
                best.node,
                best.victims,
                best.violations,
            )
