"""All flags of `bayplan run`, in the groups of the usage text, and how their values are parsed.

They are kube-scheduler's, so that its command lines start bayplan, too, and a few of our own (a group of
settings, `--plugin`, `--tracing-config-file`, `--record` and `--deschedule`). A flag without an effect says
so in its text ("no effect"): a process in Python has no HTTP/2 and no locks to profile. The texts of errors
are those of Go's libraries, which users of kube-scheduler and their tools know.
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bayplan.config.features import parse_bool
from bayplan.framework.args import Duration
from bayplan.framework.points import TieBreak

_INTEGER: Final = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|0|[1-9][0-9_]*)")
_PLAIN_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class FlagKind:
    """The values that a flag takes.

    Args:
        metavar: the placeholder for the value in the usage text.
        parse: parses a text; raises ValueError with the reason if it is invalid.
        bare: the value of the flag without a value; None if it requires one.
        many: the flag may be repeated, and its values (tuples) are concatenated.
    """

    metavar: str
    parse: Callable[[str], Any]
    bare: str | None = None
    many: bool = False
    brackets: bool = True
    """Whether several values are shown in brackets."""


def _integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text) or text.endswith("_") or "__" in text:
            raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        digits = re.sub(r"^([+-]?)0([0-7])", r"\g<1>0o\2", text)
        value = int(digits, 0)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(f'strconv.ParseInt: parsing "{text}": value out of range')
        return value

    return parse


def _natural(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if int(text) >= 2**31:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text.replace("_", "x"))
    except ValueError:
        raise ValueError(f'strconv.ParseFloat: parsing "{text}": invalid syntax') from None


def _duration(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError:
        if _PLAIN_NUMBER.fullmatch(text):
            raise ValueError(f'time: missing unit in duration "{text}"') from None
        raise ValueError(f'time: invalid duration "{text}"') from None


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise ValueError(f'failed to parse IP: "{text}"') from None


def _tie_break(text: str) -> TieBreak:
    try:
        return TieBreak(text)
    except ValueError:
        raise ValueError(f"must be {' or '.join(TieBreak)}") from None


def _texts(text: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([text]), ())) if text else ()


def _module_levels(text: str) -> tuple[str, ...]:
    parts = tuple(part for part in text.split(",") if part)
    for part in parts:
        pattern, _, level = part.partition("=")
        if not pattern or not level:
            raise ValueError(f'"{part}" does not have the pattern=N format')
        try:
            _natural(level)
        except ValueError as error:
            raise ValueError(f'parsing verbosity in "{part}": {error}') from None
    return parts


def _integers(text: str) -> tuple[int, ...]:
    return tuple(_integer(32)(part) for part in text.split(",") if text)


def _certificate_pair(text: str) -> tuple[str, ...]:
    """`cert,key` or `cert,key:name,name`, unparsed."""
    certificate, _, key = text.partition(":")[0].partition(",")
    if not (certificate and key) or "," in key:
        raise ValueError("expected comma separated certificate and key file paths")
    return (text,)


TEXT: Final = FlagKind("string", str)
BOOLEAN: Final = FlagKind("", parse_bool, bare="true")
INTEGER: Final = FlagKind("int", _integer(64))
INTEGER_32: Final = FlagKind("int32", _integer(32))
NATURAL: Final = FlagKind("N", _natural)
NUMBER: Final = FlagKind("float32", _number)
DURATION: Final = FlagKind("duration", _duration)
ADDRESS: Final = FlagKind("ip", _address)
TIE_BREAK: Final = FlagKind("|".join(TieBreak), _tie_break)
TEXTS: Final = FlagKind("strings", _texts, many=True)
"""Separated by commas."""
EACH: Final = FlagKind("string", lambda text: (text,), many=True)
"""Unparsed, commas included."""
INTEGERS: Final = FlagKind("ints", _integers, many=True)
CERTIFICATE_PAIRS: Final = FlagKind("cert,key[:name,...]", _certificate_pair, many=True)
GATES: Final = FlagKind("A=true,B=false", lambda text: (text,), many=True, brackets=False)
MODULE_LEVELS: Final = FlagKind("pattern=N,...", _module_levels, many=True, brackets=False)
VERSION: Final = FlagKind("", str, bare="true")
"""true, raw, or a version to report."""


# The flags


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `name` is without its dashes, `letter` the short form."""

    name: str
    kind: FlagKind
    default: Any
    help: str
    letter: str = ""


def _seconds(seconds: float) -> Duration:
    return Duration.of(seconds)


_WITHOUT_CONFIG: Final = "Deprecated: with --config, clientConnection in the file is used instead."

GROUPS: Final[dict[str, tuple[Flag, ...]]] = {
    "Main": (
        Flag("config", TEXT, "", "The configuration file, a KubeSchedulerConfiguration."),
        Flag(
            "kubeconfig",
            TEXT,
            "",
            "The kubeconfig file: address of the API server, and credentials. With --config, "
            "clientConnection.kubeconfig in the file has precedence.",
        ),
        Flag("master", TEXT, "", "The address of the API server; overrides the kubeconfig."),
        Flag(
            "plugin",
            EACH,
            (),
            "An additional plugin: module:Class, path/to/file.py:Class, or the name of a library plugin. "
            "It runs at every point it implements, after the built-in ones, unless the configuration names "
            "it. May be repeated.",
        ),
        Flag(
            "record",
            TEXT,
            "",
            "Record the cluster and every decision in this file, for bayplan ui --recording; gzipped if its "
            "name ends in .gz.",
        ),
        Flag(
            "write-config-to", TEXT, "", "Write the configuration with every default to this file, and exit."
        ),
        Flag("version", VERSION, "false", "Print the Kubernetes version that is emulated, and exit."),
        Flag("help", BOOLEAN, False, "Show this text, and exit.", "h"),
    ),
    "Settings of bayplan (each overrides the BayplanConfiguration)": (
        Flag(
            "bayplan-config",
            TEXT,
            "",
            "A file with a BayplanConfiguration; replaces the one in the file of --config.",
        ),
        Flag(
            "tie-break",
            TIE_BREAK,
            TieBreak.KUBE_SCHEDULER,
            "Which of several nodes with the same score is chosen: as in kube-scheduler, or the first in the "
            "node list.",
        ),
        Flag(
            "slow-cycle-threshold",
            DURATION,
            _seconds(1),
            "Log scheduling cycles that take longer, with the plugin that is running; 0: none.",
        ),
        Flag(
            "deschedule",
            TEXT,
            "",
            "A file with a DeschedulerPolicy: pods are moved to better nodes, too, while this process leads. "
            "deschedule of the BayplanConfiguration has the interval and more.",
        ),
    ),
    "Leader election (each overrides the configuration file)": (
        Flag(
            "leader-elect",
            BOOLEAN,
            True,
            "Schedule only while holding a lease, so that several replicas can run.",
        ),
        Flag(
            "leader-elect-lease-duration",
            DURATION,
            _seconds(15),
            "How long other candidates wait after the last renewal before they acquire the lease.",
        ),
        Flag(
            "leader-elect-renew-deadline",
            DURATION,
            _seconds(10),
            "How long the leader tries to renew the lease before it gives up; less than the lease duration.",
        ),
        Flag("leader-elect-retry-period", DURATION, _seconds(2), "The time between two tries."),
        Flag("leader-elect-resource-lock", TEXT, "leases", "The kind of the lock object: only leases."),
        Flag("leader-elect-resource-name", TEXT, "kube-scheduler", "The name of the lease."),
        Flag("leader-elect-resource-namespace", TEXT, "kube-system", "The namespace of the lease."),
    ),
    "Serving": (
        Flag(
            "secure-port",
            INTEGER,
            10259,
            "The HTTPS port for probes, metrics and other endpoints; 0: no server.",
        ),
        Flag("bind-address", ADDRESS, "0.0.0.0", "The address to listen on; 0.0.0.0 or :: for all."),
        Flag(
            "cert-dir",
            TEXT,
            "",
            "The directory of kube-scheduler.crt and .key, which are created if they are missing. "
            "Without it, a self-signed certificate is created in memory.",
        ),
        Flag("tls-cert-file", TEXT, "", "The serving certificate; read again when it changes."),
        Flag("tls-private-key-file", TEXT, "", "The private key of --tls-cert-file."),
        Flag(
            "tls-sni-cert-key", CERTIFICATE_PAIRS, (), "Certificates for other host names; may be repeated."
        ),
        Flag("tls-min-version", TEXT, "", "VersionTLS12 (the default) or VersionTLS13."),
        Flag("tls-cipher-suites", TEXTS, (), "Cipher suites up to TLS 1.2; without it the defaults."),
        Flag("tls-curve-preferences", INTEGERS, (), "Curves for the key exchange, by Go's numbers."),
        Flag("permit-port-sharing", BOOLEAN, False, "Listen with SO_REUSEPORT."),
        Flag("permit-address-sharing", BOOLEAN, False, "Listen with SO_REUSEADDR."),
        Flag("http2-max-streams-per-connection", INTEGER, 0, "No effect: HTTP/1.1 is served."),
        Flag("disable-http2-serving", BOOLEAN, False, "No effect: HTTP/1.1 is served."),
        Flag("profiling", BOOLEAN, True, "Serve /debug. Deprecated: ignored with --config."),
        Flag(
            "contention-profiling", BOOLEAN, True, "No effect: there are no locks. Deprecated like the above."
        ),
    ),
    "Authentication of incoming requests": (
        Flag(
            "authentication-kubeconfig",
            TEXT,
            "",
            "The kubeconfig for TokenReviews; without it the pod's service account. Without both, tokens are "
            "ignored.",
        ),
        Flag(
            "authentication-skip-lookup",
            BOOLEAN,
            False,
            "Do not read kube-system/extension-apiserver-authentication.",
        ),
        Flag(
            "authentication-tolerate-lookup-failure",
            BOOLEAN,
            True,
            "Continue if it cannot be read; all requests may then count as anonymous.",
        ),
        Flag(
            "authentication-token-webhook-cache-ttl",
            DURATION,
            _seconds(10),
            "How long TokenReviews are cached.",
        ),
        Flag("client-ca-file", TEXT, "", "Client certificates signed by these CAs identify the user."),
        Flag(
            "requestheader-client-ca-file",
            TEXT,
            "",
            "CAs of front proxies that identify the user in headers.",
        ),
        Flag(
            "requestheader-allowed-names",
            TEXTS,
            (),
            "Common names of these proxies; without it, any name is accepted.",
        ),
        Flag("requestheader-username-headers", TEXTS, ("x-remote-user",), "Headers with the user."),
        Flag("requestheader-group-headers", TEXTS, ("x-remote-group",), "Headers with the groups."),
        Flag("requestheader-uid-headers", TEXTS, (), "Headers with the user's id."),
        Flag(
            "requestheader-extra-headers-prefix",
            TEXTS,
            ("x-remote-extra-",),
            "Prefixes of headers with further attributes.",
        ),
    ),
    "Authorization of incoming requests": (
        Flag(
            "authorization-kubeconfig",
            TEXT,
            "",
            "The kubeconfig for SubjectAccessReviews; without it the pod's service account. "
            "Without both, only the paths below are accessible.",
        ),
        Flag(
            "authorization-always-allow-paths",
            TEXTS,
            ("/healthz", "/readyz", "/livez"),
            "Paths that are accessible without authorization.",
        ),
        Flag(
            "authorization-webhook-cache-authorized-ttl",
            DURATION,
            _seconds(10),
            "How long allowed requests are cached.",
        ),
        Flag(
            "authorization-webhook-cache-unauthorized-ttl",
            DURATION,
            _seconds(10),
            "How long denied requests are cached.",
        ),
    ),
    "Requests to the API server": (
        Flag(
            "kube-api-qps",
            NUMBER,
            50.0,
            f"The maximum number of requests per second; negative: no limit. {_WITHOUT_CONFIG}",
        ),
        Flag("kube-api-burst", INTEGER_32, 100, f"The maximum number of requests at once. {_WITHOUT_CONFIG}"),
        Flag(
            "kube-api-content-type",
            TEXT,
            "application/vnd.kubernetes.protobuf",
            "No effect: requests are JSON. Deprecated.",
        ),
    ),
    "Scheduling": (
        Flag(
            "feature-gates",
            GATES,
            (),
            "The gates of Kubernetes that concern scheduling. Of those that are off by default, the gates of "
            "pod groups can be turned on with 1.37; most others are rejected: not implemented yet.",
        ),
        Flag(
            "pod-max-in-unschedulable-pods-duration",
            DURATION,
            _seconds(300),
            "How long a pod may be unschedulable before it is tried again without an event. Deprecated.",
        ),
        Flag(
            "emulated-version",
            EACH,
            (),
            "The Kubernetes version to emulate: 1.36 or 1.37. Without it, that of the API server.",
        ),
        Flag(
            "min-compatibility-version",
            EACH,
            (),
            "The oldest version of other components in the cluster, up to the emulated one. With 1.37 "
            "DRAFractionalCapacityRange is on by default.",
        ),
    ),
    "Metrics": (
        Flag(
            "show-hidden-metrics-for-version",
            TEXT,
            "",
            "The previous version: show metrics that are hidden because they are deprecated.",
        ),
        Flag(
            "tracing-config-file",
            TEXT,
            "",
            "A TracingConfiguration of Kubernetes: where traces are sent, and how many attempts are "
            "sampled. Not a flag of kube-scheduler; see docs/tracing.md.",
        ),
        Flag("disabled-metrics", TEXTS, (), "Metrics to omit, by full name."),
        Flag("allow-metric-labels", EACH, (), "Rejected: not implemented yet."),
        Flag("allow-metric-labels-manifest", TEXT, "", "Rejected: not implemented yet."),
    ),
    "Logs": (
        Flag("v", NATURAL, 0, "Log verbosity, 0 to 10.", "v"),
        Flag(
            "vmodule",
            MODULE_LEVELS,
            (),
            "Log verbosity of single files: queue=4,http*=10. Only with the text format.",
        ),
        Flag("logging-format", TEXT, "text", "text or json."),
        Flag("log-flush-frequency", DURATION, _seconds(5), "No effect: logs are not buffered."),
        Flag("log-text-split-stream", BOOLEAN, False, "Rejected: its gate (LoggingAlphaOptions) is off."),
        Flag("log-text-info-buffer-size", TEXT, "0", "Rejected, as above."),
        Flag("log-json-split-stream", BOOLEAN, False, "Rejected, as above."),
        Flag("log-json-info-buffer-size", TEXT, "0", "Rejected, as above."),
    ),
}

FLAGS: Final[dict[str, Flag]] = {flag.name: flag for flags in GROUPS.values() for flag in flags}
LETTERS: Final[dict[str, Flag]] = {flag.letter: flag for flag in FLAGS.values() if flag.letter}
