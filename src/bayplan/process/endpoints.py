"""The HTTPS endpoints of a scheduler, created from its flags: probes, metrics, configuration.

`bayplan.process.serving` does not depend on the scheduler; this module passes it addresses, contents and
the clients for authentication and authorization.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from bayplan import __version__
from bayplan.api.pod import Pod
from bayplan.api.releases import Release, Stage
from bayplan.client.access import Access
from bayplan.client.kubeconfig import in_cluster_access, load_access
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.errors import ConfigError
from bayplan.metrics import SchedulerMetrics, resource_chunks
from bayplan.metrics.process_families import BUILD_INFO, FEATURE_ENABLED, VERSION_INFO
from bayplan.process import logs
from bayplan.process.serving.access import AccessControl, delegated_access
from bayplan.process.serving.pages import About, HealthCheck, Routes
from bayplan.process.serving.server import SecureServer
from bayplan.process.serving.settings import (
    authentication_settings,
    authorization_settings,
    serving_settings,
)
from bayplan.process.settings import Settings

REVIEW_SECONDS: Final = 10.0
"""The timeout and rate limit of TokenReviews and SubjectAccessReviews."""
REVIEW_QPS: Final = 50.0
REVIEW_BURST: Final = 100

ELECTION_CHECK: Final = "leaderElection"
SHUTDOWN_CHECK: Final = "shutdown"
SYNC_CHECK: Final = "sched-handler-sync"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedContent:
    """The content that a process serves. All functions are called for each response."""

    metrics: SchedulerMetrics
    pods: Callable[[], Sequence[Pod]]
    """All pods, for their resources; empty while another process leads."""
    synced: Callable[[], bool]
    """Whether all informers have synced."""
    stopping: Callable[[], bool]
    election_problem: Callable[[], str | None] | None
    """What is wrong with the leader election; None without an election."""
    queue: Callable[[str], Any] | None = None
    """The position of a pod in the scheduling queue."""


class Endpoints:
    """Serves connections of these sockets until the end of the block."""

    def __init__(self, settings: Settings, shown: ServedContent, sockets: Sequence[socket.socket]) -> None:
        self._settings = settings
        self._shown = shown
        self._sockets = sockets
        self._connections: list[Connections] = []
        self._server: SecureServer | None = None

    async def __aenter__(self) -> Endpoints:
        describe_process(self._shown.metrics, self._settings.config.release)
        try:
            # In a thread: the key of a self-signed certificate takes up to 0.3 s.
            self._server = await asyncio.to_thread(self._make_server)
            await self._server.start(self._sockets)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.close()
        for connections in self._connections:
            await connections.close()
        for each in self._sockets:
            each.close()

    def _make_server(self) -> SecureServer:
        where = serving_settings(self._settings.flags)
        return SecureServer(where, self.routes(), self._access_control())

    def routes(self) -> Routes:
        """The contents and the health checks."""
        settings, shown = self._settings, self._shown
        config = settings.completed()
        disabled = settings.flags["disabled-metrics"]
        election: list[HealthCheck] = []
        if shown.election_problem is not None:
            election = [HealthCheck(ELECTION_CHECK, shown.election_problem)]
        release = settings.config.release
        return Routes(
            about=About(version=release.patch_version, emulated=release.version),
            metrics=lambda: without(shown.metrics.exposition(), disabled),
            reset_metrics=shown.metrics.reset,
            resources=lambda: resource_chunks(shown.pods()),
            config=lambda: config,
            flags=settings.flags.texts(),
            queue=shown.queue,
            healthz=election,
            readyz=[
                *election,
                HealthCheck(SHUTDOWN_CHECK, lambda: "process is shutting down" if shown.stopping() else None),
                HealthCheck(
                    SYNC_CHECK, lambda: None if shown.synced() else "handlers are not fully synchronized"
                ),
            ],
            set_verbosity=logs.change_verbosity if settings.config.enable_profiling else None,
        )

    def _access_control(self) -> AccessControl:
        flags = self._settings.flags
        authenticator = self._reviewer("authentication", flags["authentication-kubeconfig"])
        if authenticator is None:
            log_no_reviews("authentication", "tokens and client certificates of the cluster are ignored")
        authorizer = self._reviewer("authorization", flags["authorization-kubeconfig"])
        if authorizer is None:
            log_no_reviews("authorization", "only the paths that are always allowed are accessible")
        return delegated_access(
            authentication_settings(flags),
            authorization_settings(flags),
            authentication_client=authenticator,
            authorization_client=authorizer,
        )

    def _reviewer(self, what: str, kubeconfig: str) -> Requests | None:
        """A client for reviews, from the kubeconfig or the pod's service account; None without either."""
        access: Access
        try:
            access = load_access(kubeconfig) if kubeconfig else in_cluster_access()
        except ConfigError as error:
            if kubeconfig:
                raise ConfigError(f"failed to get delegated {what} kubeconfig: {error}") from error
            return None
        connections = Connections(access)
        self._connections.append(connections)
        bucket = make_bucket(REVIEW_QPS, REVIEW_BURST)
        return Requests(connections, bucket, component="reviews", seconds=REVIEW_SECONDS)


def log_no_reviews(what: str, consequence: str) -> None:
    logs.log(
        _log,
        logging.WARNING,
        f"No --{what}-kubeconfig was given, and this process does not run in a pod: {consequence}",
    )


# Metrics


def describe_process(metrics: SchedulerMetrics, release: Release) -> None:
    """Build information, the Kubernetes version, and the enabled feature gates."""
    families, version = metrics.families, release.version
    machine = f"{platform.system().lower()}/{platform.machine()}"
    built = (
        "1",
        str(release.minor),
        f"v{release.patch_version}",
        f"bayplan-{__version__}",
        "",
        "",
        "",
        "python",
        machine,
    )
    families[BUILD_INFO][built].set(1)
    families[VERSION_INFO]["kube", version, version, release.previous_version].set(1)
    for name, feature in release.features.items():
        stage = "" if feature.stage in (Stage.GA, Stage.LOCKED) else feature.stage.upper()
        families[FEATURE_ENABLED][name, stage].set(int(name in release.gates))


def without(exposition: bytes, names: Sequence[str]) -> bytes:
    """All metrics except these families."""
    if not names:
        return exposition
    removed = {name.encode() for name in names}
    lines: list[bytes] = []
    keep = True
    for line in exposition.splitlines(keepends=True):
        if line.startswith((b"# HELP ", b"# TYPE ")):
            keep = line.split(b" ", 3)[2].strip() not in removed
        if keep:
            lines.append(line)
    return b"".join(lines)
