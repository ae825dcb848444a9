"""The gRPC server of the estimator: Karmada's protocol, TLS with client certificates, metrics.

`grpcio` is an extra (`bayplan[fleet]`), imported here only. Requests are answered in the thread of the
event loop, between two changes of the clusters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.errors import BayplanError, ConfigError
from bayplan.fleet.estimator.answers import Estimates
from bayplan.fleet.estimator.live import LiveMember
from bayplan.fleet.estimator.wire import OBJECT_KEY, SERVICE, encode_count

PORT: Final = 10352
METRIC: Final = "bayplan_fleet_estimates"
_NO_GRPC: Final = "bayplan fleet estimator needs grpcio: install bayplan[fleet]"
_NO_PAIR: Final = "--tls-cert-file and --tls-private-key-file have to be given together"
_NO_CERTIFICATE: Final = "--client-ca-file needs --tls-cert-file and --tls-private-key-file"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where to listen, and whom to trust."""

    address: str = "0.0.0.0"
    port: int = PORT
    """0: any free port."""
    cert_file: str = ""
    key_file: str = ""
    """Empty: without TLS."""
    client_ca_file: str = ""
    """Clients need a certificate signed by one of these CAs; empty: any client may connect."""
    metrics_port: int | None = None

    def check(self) -> None:
        """Raises ConfigError: they contradict each other."""
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigError(_NO_PAIR)
        if self.client_ca_file and not self.cert_file:
            raise ConfigError(_NO_CERTIFICATE)


class EstimateMetrics(Collector):
    """How requests were answered, as Prometheus metrics."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates

    def collect(self) -> Iterable[Metric]:
        text = "Answers to Karmada, by what they were computed from: the pod template, or requests alone."
        family = CounterMetricFamily(METRIC, text, labels=["cluster", "method", "source"])
        for labels, count in self._estimates.answered.items():
            family.add_metric(labels, count)
        yield family


class EstimatorServer:
    """Serves estimates until it is stopped."""

    def __init__(self, estimates: Estimates, settings: ServerSettings) -> None:
        settings.check()
        self._estimates, self._settings = estimates, settings
        self._server: Any = None
        self.port = 0

    async def start(self) -> None:
        """Begins to listen.

        Raises:
            ConfigError: grpcio is not installed, or a file or port cannot be used.
        """
        try:
            import grpc
        except ImportError as error:
            raise ConfigError(_NO_GRPC) from error
        estimates = self._estimates
        methods = {
            "MaxAvailableReplicas": lambda data, name: estimates.max_available_replicas(data, name),
            "MaxAvailableComponentSets": lambda data, name: estimates.max_available_sets(data),
            "GetUnschedulableReplicas": lambda data, name: estimates.unschedulable_replicas(data),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(_handler(answer, grpc.StatusCode.UNKNOWN))
            for name, answer in methods.items()
        }
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        where = f"{self._settings.address}:{self._settings.port}"
        try:
            credentials = self._credentials(grpc)
            if credentials is None:
                self.port = self._server.add_insecure_port(where)
            else:
                self.port = self._server.add_secure_port(where, credentials)
        except (RuntimeError, OSError) as error:
            raise ConfigError(f"cannot listen on {where}: {error}") from error
        await self._server.start()
        if self._settings.metrics_port is not None:
            registry = CollectorRegistry()
            registry.register(EstimateMetrics(estimates))
            start_http_server(self._settings.metrics_port, self._settings.address, registry)
        _log.info("serving estimates on %s:%d", self._settings.address, self.port)

    def _credentials(self, grpc: Any) -> Any:
        settings = self._settings
        if not settings.cert_file:
            return None
        pair = Path(settings.key_file).read_bytes(), Path(settings.cert_file).read_bytes()
        roots = Path(settings.client_ca_file).read_bytes() if settings.client_ca_file else None
        return grpc.ssl_server_credentials(
            [pair], root_certificates=roots, require_client_auth=roots is not None
        )

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(1.0)


def _handler(answer: Callable[[bytes, str], int], failed: Any) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def handle(request: bytes, context: Any) -> bytes:
        named = [value for key, value in context.invocation_metadata() if key == OBJECT_KEY]
        try:
            return encode_count(answer(request, named[0] if named else ""))
        except BayplanError as error:
            await context.abort(failed, f"failed to estimate replicas: {error}")
            raise AssertionError("abort raises") from error

    return handle


async def serve(members: Sequence[LiveMember], settings: ServerSettings) -> None:
    """Watches the members and serves estimates until cancelled."""
    server = EstimatorServer(Estimates(members), settings)
    await server.start()
    try:
        await asyncio.gather(*(one.run() for one in members))
    finally:
        await server.stop()
