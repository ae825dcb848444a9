"""The life of a scheduler as a process.

    connect ─► follow the cluster ─► everything is known ─► schedule ─► told to stop:
    no new pods, bindings under way finish, their events are written, connections close.

The exit status is 0 only where a leader was told to stop. Without leader election it is 1, as
kube-scheduler's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from typing import Any, Final

from bayplan import __version__
from bayplan.client.http import KubernetesCluster
from bayplan.client.informer import Informer
from bayplan.errors import BayplanError
from bayplan.operating.logs import log, verbosity
from bayplan.operating.settings import KUBERNETES, Settings
from bayplan.scheduler.loop import Scheduler

SETTLE_SECONDS: Final = 5.0
"""For bindings under way and their events, once we are to stop. Kubernetes kills a pod after 30 s."""
PATIENCE_SECONDS: Final = 10.0
"""How often we say what we are still waiting for at the beginning."""

_log = logging.getLogger(__name__)


class FinishedError(BayplanError):
    """The process has come to its end, and it is no success."""


class Process:
    """One run of a scheduler, from its settings to its exit status."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told_to_stop = asyncio.Event()

    async def run(self) -> int:
        """Goes on until a signal comes.

        Raises:
            BayplanError: it cannot begin, or cannot go on.
        """
        self._listen_for_signals()
        log(_log, logging.INFO, "Starting Kubernetes Scheduler", version=KUBERNETES, bayplan=__version__)
        if self._settings.config.leader_election.leader_elect:
            log(_log, logging.WARNING, "Leader election is not built yet: run one replica only")
        connection = self._settings.config.client_connection
        async with KubernetesCluster(
            self._settings.access, qps=connection.qps, burst=connection.burst
        ) as cluster:
            scheduler = self._make_scheduler(cluster)
            following = asyncio.ensure_future(scheduler.follow())
            try:
                await self._schedule(scheduler, following)
            finally:
                await scheduler.close()
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        if self._settings.config.leader_election.leader_elect:
            log(_log, logging.INFO, "Requested to terminate, exiting")
            return 0
        raise FinishedError("finished without leader elect")

    def _make_scheduler(self, cluster: KubernetesCluster) -> Scheduler:
        settings = self._settings
        connection = settings.config.client_connection
        return Scheduler(
            cluster,
            settings.for_scheduler,
            plugins=settings.plugins,
            # A coroutine over HTTP must be a task: it enters time-outs (see tasks.py).
            eager=False,
            events=cluster.events(qps=connection.qps, burst=connection.burst),
            max_in_unschedulable=settings.flags["pod-max-in-unschedulable-pods-duration"].seconds,
        )

    # Signals

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self._told_to_stop.is_set():
            # Whoever asks twice does not want to wait.
            logging.shutdown()
            os._exit(1)
        self._told_to_stop.set()

    # The stages

    async def _schedule(self, scheduler: Scheduler, following: asyncio.Future[None]) -> None:
        """Until we are told to stop."""
        if not await self._before_stop(self._synced(scheduler.informers), following):
            return
        log(_log, verbosity(3), "Handlers synced")
        scheduling = asyncio.ensure_future(scheduler.schedule())
        try:
            await self._before_stop(scheduling, following)
            scheduler.stop()
            await scheduling
            if not await scheduler.settle(SETTLE_SECONDS):
                log(_log, logging.WARNING, "Some bindings or events were not finished in time")
        finally:
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)

    async def _before_stop(self, work: Any, *others: asyncio.Future[None]) -> bool:
        """Whether the work was done before we were told to stop. What breaks meanwhile is raised."""
        doing = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            ended, _ = await asyncio.wait((doing, stop, *others), return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
            return bool(doing.done())
        finally:
            stop.cancel()
            if work is not doing and not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)

    async def _synced(self, informers: Sequence[Informer[Any]]) -> None:
        """Waits until everything is known, and says from time to time what is not."""
        waiting = list(informers)
        while waiting:
            tasks = [asyncio.ensure_future(informer.synced.wait()) for informer in waiting]
            await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
            for task in tasks:
                task.cancel()
            waiting = [informer for informer in waiting if not informer.synced.is_set()]
            if waiting:
                problems = {informer.problem for informer in waiting if informer.problem}
                log(
                    _log,
                    logging.WARNING,
                    "No pod is scheduled before all of these have been listed",
                    waitingFor=", ".join(informer.kind.__name__ for informer in waiting),
                    err="; ".join(sorted(problems)) or "no answer yet",
                )
