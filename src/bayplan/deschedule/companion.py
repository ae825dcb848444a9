"""Descheduling in the process of a scheduler: `bayplan run --deschedule policy.yaml`.

It has the scheduler's informers, configuration, credentials and lease: while the scheduler leads, cycles run
every `deschedule.interval`. The scheduler runs in the same process, so the replacement of each pod can be
nominated to the node of the plan before the pod is evicted (`scheduler/reservations.py`), and no other pod
takes the room. Plans are made in a thread, on a copy.

`process/` does not import this module. `cli/run.py` loads it by name if the flag is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar, Final

from bayplan.api.devices import ResourceClaimTemplate
from bayplan.api.meta import Object
from bayplan.api.workloads import Deployment, PriorityClass
from bayplan.client.http import KubernetesCluster
from bayplan.deschedule.copies import ClusterCopy
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.executing import Outcome, Step
from bayplan.deschedule.live import LiveCluster
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.policy import load_policy
from bayplan.deschedule.running import LEASE, PAUSE, Runner
from bayplan.deschedule.surge import make_surge
from bayplan.deschedule.times import Times
from bayplan.process.logs import log
from bayplan.process.settings import Settings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.reservations import Reservations

WATCHED: Final[tuple[type[Object], ...]] = (PriorityClass, Deployment, ResourceClaimTemplate)
"""Kinds that the scheduler has to watch besides its own."""
_LEASE_NAMESPACE: Final = "kube-system"
_log = logging.getLogger(__name__)


class Companion:
    """Runs descheduling cycles beside the scheduler.

    Raises:
        DecodeError: the policy is not valid.
        ConfigError: a plugin of it cannot be built.
    """

    kinds: ClassVar[tuple[type[Object], ...]] = WATCHED

    def __init__(self, path: str) -> None:
        self._path = path
        # Priority classes are known later. Everything else that is wrong is reported at the start.
        Descheduler(load_policy(path, lambda _: 0))

    async def run(
        self,
        settings: Settings,
        scheduler: Scheduler,
        cluster: KubernetesCluster,
        may_write: Callable[[], bool],
    ) -> None:
        """Runs cycles until it is cancelled. The informers have synced, and the scheduler is scheduling."""
        classes = {
            one.name: one.value
            for informer in scheduler.informers
            if informer.kind is PriorityClass
            for one in informer.all()
        }
        policy = load_policy(self._path, classes.get)
        for text in policy.warnings:
            log(_log, logging.WARNING, text)
        configuration = settings.config.bayplan.deschedule
        live = LiveCluster(
            cluster.connections, scheduler, ClusterCopy(settings.for_scheduler, settings.plugins)
        )
        runner = Runner(
            live,
            Descheduler(policy),
            configuration,
            is_leader=may_write,
            is_paused=lambda: live.is_paused(_LEASE_NAMESPACE, LEASE, PAUSE),
            read_usage=live.usage.read,
            write_event=live.write_event,
            on_plan=_log_plan,
            on_step=_log_step,
            room=Reservations(scheduler),
            surge=make_surge(configuration, live),
        )
        await runner.run(Times(configuration.interval.seconds))


def _log_plan(plan: Plan) -> None:
    log(
        _log,
        logging.INFO,
        "Descheduling cycle",
        moves=len(plan.moves),
        kept=len(plan.kept),
        upstreamEvictions=plan.upstream_evictions,
        emptied=list(plan.emptied),
    )
    for text in (*plan.errors, *plan.warnings):
        log(_log, logging.WARNING, text)


def _log_step(step: Step) -> None:
    level = logging.INFO if step.outcome is Outcome.MOVED else logging.WARNING
    move = step.move
    log(
        _log,
        level,
        "Descheduled pod",
        pod=move.pod,
        source=move.source,
        target=step.node or move.target,
        outcome=step.outcome.value,
        why=step.why or move.why,
    )
