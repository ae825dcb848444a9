"""Instant queries to Prometheus, for LowNodeUtilization. https://prometheus.io/docs/prometheus/latest/querying/api/

The token is read from the secret that the policy names, or else from the service account; it is read again
for each cycle because it is rotated. Without a token there is no client, as upstream.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from bayplan.deschedule.args import PROMETHEUS, LowNodeUtilizationArgs
from bayplan.deschedule.policy import Policy
from bayplan.deschedule.usage import QueryResult

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_KEY: Final = "prometheusAuthToken"
_SECONDS: Final = 30.0
_MAX_BYTES: Final = 64 * 1024 * 1024


def queries_of(policy: Policy) -> list[str]:
    """The distinct queries of a policy's strategies."""
    found: dict[str, None] = {}
    for profile in policy.profiles:
        for config in profile.plugin_config:
            args = config.args
            if isinstance(args, LowNodeUtilizationArgs) and args.source == PROMETHEUS:
                metrics = args.metrics_utilization
                if metrics is not None and metrics.prometheus is not None:
                    found[metrics.prometheus.query] = None
    return list(found)


def account_token(directory: Path = ACCOUNT) -> str:
    """The token of the pod's service account; empty outside of a cluster."""
    try:
        return (directory / "token").read_text().strip()
    except OSError:
        return ""


def secret_token(secret: Mapping[str, Any]) -> str:
    """The token in a Secret; empty if it has none."""
    try:
        return base64.b64decode((secret.get("data") or {}).get(TOKEN_KEY, ""), validate=True).decode().strip()
    except ValueError:
        return ""


def run_queries(
    url: str, queries: Iterable[str], token: str, ca_file: Path = ACCOUNT / "ca.crt"
) -> dict[str, QueryResult]:
    """The result of each query. It blocks: call it in a thread."""
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file.exists() else None)
    return {query: _run(url, query, token, context) for query in queries}


def _run(url: str, query: str, token: str, context: ssl.SSLContext | None) -> QueryResult:
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/v1/query?query={quote(query, safe='')}",
        headers={"Authorization": f"Bearer {token}"},
    )
    if request.type not in ("http", "https"):
        return QueryResult(error=f"unsupported protocol scheme {request.type!r}")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS, context=context) as response:
            answer = json.loads(response.read(_MAX_BYTES))
    except (OSError, ValueError) as error:
        return QueryResult(error=_text_of(error))
    return result_of(answer)


def _text_of(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"client error: {error.code}" if error.code < 500 else f"server error: {error.code}"
    return str(getattr(error, "reason", error))


def result_of(answer: Any) -> QueryResult:
    """The result in a response of Prometheus."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        why = answer.get("error") if isinstance(answer, dict) else None
        return QueryResult(error=str(why or "the answer is not a query result"))
    content = answer.get("data") or {}
    kind = str(content.get("resultType", ""))
    if kind != "vector":
        return QueryResult(kind)
    samples = tuple((dict(one["metric"]), float(one["value"][1])) for one in content.get("result") or ())
    return QueryResult(kind, samples)
