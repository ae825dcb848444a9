"""PreBind: work before a pod is bound, such as binding its volumes.

Plugins report in advance whether they have any (`pre_flight`). Neighbouring plugins that allow it run in
parallel; the first failure cancels the others. While they run the pod may be preempted: then all of them are
cancelled (`PreBinding`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from bayplan.framework.plugin_api import PreBindPlugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status, wrong_result
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.profile import PointStep
from bayplan.runtime.timing import timed, timed_wait
from bayplan.scheduler.attempt import Attempt, check, plugin_error
from bayplan.scheduler.context import Context
from bayplan.scheduler.observing import PRE_FLIGHT
from bayplan.scheduler.tasks import Tasks
from bayplan.scheduler.waiting import PreBinding

PreBindStep = PointStep[PreBindPlugin]

_SKIP: Final = Code.SKIP


def pre_flight(attempt: Attempt) -> bool:
    """Whether any PreBind plugin has work to do."""
    with_work, timer = [], attempt.timer
    state, pod, node_name = attempt.search.state, attempt.pod, attempt.node_name
    for step in attempt.profile.pre_binds:
        try:
            call = step.plugin.pre_bind_pre_flight
            if timer is not None:
                call = timed(timer, step.name, PRE_FLIGHT, call)
            answer: object = call(state, pod, node_name)
        except Exception as error:
            raise plugin_error(step, PRE_FLIGHT, error) from error
        if answer is None:
            with_work.append(step)
        elif not isinstance(answer, Status):
            wrong = wrong_result("pre_bind_pre_flight", answer, "return None, SKIP or failure(text)")
            raise plugin_error(step, PRE_FLIGHT, wrong)
        elif answer.code is _SKIP:
            continue
        elif answer.is_success:
            with_work.append(step)
        elif answer.code is Code.ERROR:
            raise plugin_error(step, PRE_FLIGHT, answer.message)
        else:
            raise AttemptError(
                f'{PRE_FLIGHT} {step.name} returned "{answer.code.label}", which is unsupported. '
                "It is supposed to return Success, Skip, or Error status",
                step.name,
                PRE_FLIGHT,
            )
    attempt.pre_binds = with_work
    return bool(with_work)


async def pre_bind(attempt: Attempt, context: Context) -> None:
    """Runs all plugins. Meanwhile the pod is in `context.pre_binding`, where it can be cancelled."""

    def stop() -> None:
        for task in attempt.running_tasks:
            task.cancel()

    uid = attempt.pod.metadata.uid
    attempt.pre_binding = context.pre_binding[uid] = PreBinding(stop)
    try:
        for group in _groups(attempt):
            await _run(attempt, group, context.tasks)
            if attempt.pre_binding.cause:
                break
        if not attempt.pre_binding.finish():
            raise AttemptError(attempt.pre_binding.cause)
    finally:
        del context.pre_binding[uid]


def _groups(attempt: Attempt) -> list[list[PreBindStep]]:
    """Plugins with work to do, in order, grouped if they may run in parallel."""
    groups: list[list[PreBindStep]] = [[]]
    for step in attempt.profile.pre_binds:
        has_work, alone = step in attempt.pre_binds, not step.declared.pre_binds_in_parallel
        if alone:
            groups.append([])
        if has_work:
            groups[-1].append(step)
        if alone:
            groups.append([])
    return [group for group in groups if group]


async def _run(attempt: Attempt, steps: list[PreBindStep], tasks: Tasks) -> None:
    running: list[asyncio.Task[None]] = []
    attempt.running_tasks = running
    try:
        for step in steps:
            task = _start(step, attempt, tasks)
            if task is not None:
                running.append(task)
        if len(running) == 1:
            await running[0]
        elif running:
            for first in asyncio.as_completed(running):
                await first
    except asyncio.CancelledError:
        # A plugin that was cancelled before its first step could not report the cause.
        if attempt.pre_binding is None or not attempt.pre_binding.cause:
            raise
    finally:
        for task in running:
            task.cancel()
        if not all(task.done() for task in running):
            # Nothing may be reverted while a plugin is still running.
            await asyncio.gather(*running, return_exceptions=True)


def _start(step: PreBindStep, attempt: Attempt, tasks: Tasks) -> asyncio.Task[None] | None:
    """Starts PreBind of one plugin. None if it ran without a task and has already finished."""
    work = _call(step, attempt)
    return tasks.begin(work) if step.built_in else asyncio.ensure_future(work)


async def _call(step: PreBindStep, attempt: Attempt) -> None:
    call = timed_wait(attempt.timer, step.name, Point.PRE_BIND, step.plugin.pre_bind)
    try:
        answer = await call(attempt.search.state, attempt.pod, attempt.node_name)
    except asyncio.CancelledError:
        if attempt.pre_binding is None or not attempt.pre_binding.cause:
            raise
        raise plugin_error(step, Point.PRE_BIND, attempt.pre_binding.cause) from None
    except Exception as error:
        raise plugin_error(step, Point.PRE_BIND, error) from error
    check(step, Point.PRE_BIND, answer)
