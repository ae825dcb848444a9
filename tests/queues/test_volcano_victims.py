"""Victims chosen by columns are those that the plain rules choose, candidate by candidate."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from bayplan.queues import tree
from bayplan.queues.volcano import victims
from bayplan.queues.volcano.accounts import Account, Entitlement, QueueSpec, accounts_by_name, open_accounts
from bayplan.queues.volcano.resources import Resources
from tests.effort import examples
from tests.queues import plain_victims as plain

SITUATIONS = examples(3000, quick=300)
CAPACITY = {"cpu": 40_000, "memory": 64 * 2**30, "gpu": 16, "pods": 200}
KINDS = ("cpu", "memory", "gpu")


@dataclass(eq=False)
class Job:
    name: str
    account: Account
    priority: int
    min_available: int
    ready: int
    allocated: Resources


@dataclass(eq=False)
class Asking:
    job: Job
    asked: Resources
    priority: int


def amounts(chance: random.Random, most: int) -> dict[str, int]:
    units = {"cpu": 500, "memory": 2**30, "gpu": 1}
    return {kind: chance.randint(0, most) * units[kind] for kind in KINDS if chance.random() < 0.6}


class Situation:
    """Running tasks on some nodes, and a job that asks for victims."""

    def __init__(self, seed: int) -> None:
        self.random = chance = random.Random(seed)
        kind = chance.choice([Entitlement.CAPACITY, Entitlement.PROPORTION])
        hierarchy = chance.random() < 0.5
        names = [f"q{number}" for number in range(chance.randint(2, 6))]
        specs = [
            QueueSpec(
                name,
                weight=chance.randint(1, 3),
                deserved=amounts(chance, 6) | ({"pods": 3} if chance.random() < 0.1 else {}),
                guarantee=amounts(chance, 2) if chance.random() < 0.4 else {},
                parent=chance.choice(["", *names[:number]]),
            )
            for number, name in enumerate(names)
        ]
        known, _ = accounts_by_name(specs, hierarchy=hierarchy)
        leaves = [account for account in known.values() if not account.children]
        shapes = [amounts(chance, 4) | {"pods": 1} for _ in range(chance.randint(1, 4))]
        self.tasks: list[tuple[int, plain.Task]] = []
        jobs = [self.job(number, chance.choice(leaves)) for number in range(chance.randint(1, 6))]
        for number in range(chance.randint(0, 25)):
            job, shape = chance.choice(jobs), chance.choice(shapes)
            task = plain.Task(f"t{number}", job, shape, chance.choice([0, 0, 5]), chance.random())
            task.is_critical = chance.random() < 0.1
            self.tasks.append((chance.randint(0, 2), task))
            job.ready += 1
            job.allocated = {each: job.allocated.get(each, 0) + shape.get(each, 0) for each in CAPACITY}
            tree.charge(job.account.queue, shape)
            if chance.random() < 0.1:
                tree.mark_leaving(job.account.queue, shape)
        for account in known.values():
            account.request = {each: amount + 1000 for each, amount in account.allocated.items()}
        open_accounts(list(known.values()), kind, CAPACITY, root=known["root"] if hierarchy else None)
        own = self.job(99, chance.choice(leaves))
        if chance.random() < 0.3:
            own = chance.choice(jobs)  # tasks of a job may go for another one of it
        self.asking = Asking(own, amounts(chance, 4) | {"pods": 1}, chance.choice([0, 5]))
        self.levels = chance.randint(0, 2) if hierarchy else 0

    def job(self, number: int, account: Account) -> Job:
        chance = self.random
        return Job(f"j{number}", account, chance.choice([0, 0, 5, 9]), chance.randint(0, 3), 0, {})

    def columns(self) -> victims.Candidates:
        tasks = [task for _, task in self.tasks]
        jobs = list(dict.fromkeys(task.job for task in tasks))
        return victims.Candidates(
            victims.JobTable(jobs),
            [task.asked for task in tasks],
            place=np.array([place for place, _ in self.tasks], dtype=np.intp),
            job=np.array([jobs.index(task.job) for task in tasks], dtype=np.intp),
            shape=np.arange(len(tasks)),
            priority=np.array([task.priority for task in tasks], dtype=np.int64),
            is_critical=np.array([task.is_critical for task in tasks], dtype=np.bool_),
        )

    def agrees(
        self, by_columns: victims.Plugin, by_task: Callable[[list[plain.Task]], list[plain.Task]]
    ) -> int:
        """Compares both on every node; returns how many tasks may go."""
        expected = {
            task.name
            for node in range(3)
            for task in by_task([task for place, task in self.tasks if place == node])
        }
        mask = by_columns(self.columns())
        found = {task.name for (_, task), may_go in zip(self.tasks, mask, strict=True) if may_go}
        assert found == expected
        return len(found)


RULES: dict[str, Callable[[Situation], int]] = {
    "gang": lambda it: it.agrees(victims.spared_by_gang, plain.spared_by_gang),
    "conformance": lambda it: it.agrees(victims.not_critical, plain.not_critical),
    "priority": lambda it: it.agrees(
        partial(victims.of_lower_priority, it.asking), partial(plain.of_lower_priority, it.asking)
    ),
    "drf": lambda it: it.agrees(
        partial(victims.of_larger_share, it.asking, capacity=CAPACITY),
        partial(plain.of_larger_share, it.asking, capacity=CAPACITY),
    ),
    "proportion": lambda it: it.agrees(victims.above_deserved, plain.above_deserved),
    "capacity": lambda it: it.agrees(
        partial(victims.reclaimable, it.asking, levels=it.levels),
        partial(plain.reclaimable, it.asking, levels=it.levels),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_columns_allow_what_the_plain_rule_allows(rule: str) -> None:
    counts = [RULES[rule](Situation(seed)) for seed in range(SITUATIONS)]
    assert sum(map(bool, counts)) > SITUATIONS // 3, "in many of them something may go"


def test_sums_above_64_bits_do_not_wrap() -> None:
    """A pod may ask for any amount that a quantity can have."""
    specs = [QueueSpec("q", deserved={"cpu": 1})]
    known, _ = accounts_by_name(specs, hierarchy=False)
    job, shape = Job("j", known["q"], 0, 0, 4, {}), {"cpu": 2**62, "pods": 1}
    for _ in range(4):
        tree.charge(job.account.queue, shape)
    open_accounts([known["q"]], Entitlement.CAPACITY, {"cpu": 2**63})
    found = victims.Candidates(
        victims.JobTable([job]),
        [shape],
        place=np.zeros(4, dtype=np.intp),
        job=np.zeros(4, dtype=np.intp),
        shape=np.zeros(4, dtype=np.intp),
        priority=np.zeros(4, dtype=np.int64),
        is_critical=np.zeros(4, dtype=np.bool_),
    )
    assert victims.reclaimable(Asking(job, {"cpu": 1}, 0), found).all()
