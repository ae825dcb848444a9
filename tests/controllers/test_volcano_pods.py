"""The pods of a job are counted as they change, and the counts are those of a recount."""

from __future__ import annotations

import random

from bayplan.controllers.volcano.jobs import plan
from bayplan.controllers.volcano.pods import JobPods

from .test_volcano_jobs import pod, spec_of, task

SPEC = spec_of(task("a", 4), task("b", 3), minAvailable=1)


def told(pods: JobPods) -> object:
    """Everything that a reconcile reads."""
    job = {"metadata": {"name": "j"}, "status": {"state": {"phase": "Running"}}}
    found = plan(job, SPEC, pods, now=0.0, written="now", group_phase="Running")
    deleted = sorted(each.name for each in found.delete)
    return found.status, [(each.name, index) for each, index in found.create], deleted


def test_counts_are_those_of_a_recount() -> None:
    chance = random.Random(7)
    kept = JobPods("j")
    for _ in range(500):
        name, index = chance.choice("ab"), chance.randrange(6)
        if chance.random() < 0.3:
            kept.remove(f"j-{name}-{index}")
        else:
            phase = chance.choice(("Pending", "Running", "Succeeded", "Failed", "Odd"))
            kept.put(pod(phase, index, name, version=chance.randrange(2)))
        assert told(kept) == told(JobPods("j", kept.by_name.values()))


def test_pods_that_are_too_many_leave_after_a_task_got_smaller() -> None:
    pods = JobPods("j", [pod("Running", index, "w") for index in range(5)])
    assert pods.surplus(spec_of(task("w", 5))) == []
    assert [each.name for each in pods.surplus(spec_of(task("w", 3)))] == ["j-w-3", "j-w-4"]
