"""Every metric of the process around the scheduler by name: type, stability, labels, buckets and meaning.

They are updated by the build information, the leader election and the API client. Metrics of the operating
system (`process_*`) are read on scrape: see `exposition.py`.
"""

from __future__ import annotations

from typing import Final

from bayplan.metrics.instruments import Level, counter, exponential, gauge, histogram, specs_in

ALPHA, BETA = Level.ALPHA, Level.BETA

_REQUEST_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_REQUEST_BYTES: Final = (
    *(64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0),
    *(1048576.0, 4194304.0, 16777216.0),
)
_CERTIFICATE_AGE: Final = (
    *(600.0, 1800.0, 3600.0, 14400.0, 86400.0, 604800.0),
    *(2592000.0, 7776000.0, 15552000.0, 31104000.0, 124416000.0),
)
_WORKQUEUE_SECONDS: Final = exponential(1e-8, 10, 10)

BUILD_INFO: Final = gauge(
    "kubernetes_build_info",
    BETA,
    "Always 1, with the build information in the labels.",
    (
        "major",
        "minor",
        "git_version",
        "git_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    ),
)
FEATURE_ENABLED: Final = gauge(
    "kubernetes_feature_enabled",
    BETA,
    "Whether a feature is on (1) or off (0), by feature and stage.",
    ("name", "stage"),
)
VERSION_INFO: Final = gauge(
    "version_info",
    ALPHA,
    "Always 1, with the versions of a component in the labels.",
    ("component", "binary", "emulation", "min_compat"),
)
LEADER: Final = gauge(
    "leader_election_master_status",
    ALPHA,
    "Whether this process is the leader (1) or a standby (0), by the name of the lease.",
    ("name",),
)

REST_REQUESTS: Final = counter(
    "rest_client_requests_total", ALPHA, "Requests to the API server.", ("code", "method", "host")
)
REST_REQUEST_SECONDS: Final = histogram(
    "rest_client_request_duration_seconds",
    ALPHA,
    "Duration of requests to the API server.",
    ("verb", "host"),
    buckets=_REQUEST_SECONDS,
)
REST_RATE_LIMIT_SECONDS: Final = histogram(
    "rest_client_rate_limiter_duration_seconds",
    ALPHA,
    "Time that requests to the API server were delayed by the rate limit.",
    ("verb", "host"),
    buckets=_REQUEST_SECONDS,
)
REST_REQUEST_BYTES: Final = histogram(
    "rest_client_request_size_bytes",
    ALPHA,
    "Size of the bodies sent to the API server.",
    ("verb", "host"),
    buckets=_REQUEST_BYTES,
)
REST_RESPONSE_BYTES: Final = histogram(
    "rest_client_response_size_bytes",
    ALPHA,
    "Size of the bodies received from the API server.",
    ("verb", "host"),
    buckets=_REQUEST_BYTES,
)
REST_CERTIFICATE_AGE: Final = histogram(
    "rest_client_exec_plugin_certificate_rotation_age",
    ALPHA,
    "Seconds that a certificate from a credential plugin was in use before it was replaced.",
    buckets=_CERTIFICATE_AGE,
)
REST_CERTIFICATE_TTL: Final = gauge(
    "rest_client_exec_plugin_ttl_seconds",
    ALPHA,
    "Seconds until the first certificate from a credential plugin expires; +Inf if there is none.",
)
REST_TRANSPORTS: Final = gauge(
    "rest_client_transport_cache_entries", ALPHA, "Cached connections to API servers, by their TLS settings."
)
REST_TRANSPORT_CREATES: Final = counter(
    "rest_client_transport_create_calls_total",
    ALPHA,
    "Requests for a cached connection, by whether there was one.",
    ("result",),
)
REST_ROTATION_CALLS: Final = counter(
    "rest_client_transport_cert_rotation_gc_calls_total",
    ALPHA,
    "Times that watching a replaced client certificate was ended.",
)

WORKQUEUE_ADDS: Final = counter("workqueue_adds_total", BETA, "Items added to a work queue.", ("name",))
WORKQUEUE_DEPTH: Final = gauge("workqueue_depth", BETA, "Items in a work queue.", ("name",))
WORKQUEUE_RETRIES: Final = counter(
    "workqueue_retries_total", BETA, "Items requeued into a work queue.", ("name",)
)
WORKQUEUE_LONGEST: Final = gauge(
    "workqueue_longest_running_processor_seconds",
    BETA,
    "How long the oldest item in progress has been processed.",
    ("name",),
)
WORKQUEUE_UNFINISHED: Final = gauge(
    "workqueue_unfinished_work_seconds",
    BETA,
    "The total time that all items in progress have been processed.",
    ("name",),
)
WORKQUEUE_WAIT_SECONDS: Final = histogram(
    "workqueue_queue_duration_seconds",
    BETA,
    "Time that items spent in a work queue.",
    ("name",),
    buckets=_WORKQUEUE_SECONDS,
)
WORKQUEUE_WORK_SECONDS: Final = histogram(
    "workqueue_work_duration_seconds",
    BETA,
    "Time to process an item of a work queue.",
    ("name",),
    buckets=_WORKQUEUE_SECONDS,
)

PROCESS_SPECS: Final = specs_in(globals())
