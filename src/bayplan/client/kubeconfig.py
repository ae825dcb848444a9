"""Reads the address of the API server and the credentials from a kubeconfig file, or from the pod's service
account.

As kube-scheduler does, this reads only the given file: neither `$KUBECONFIG` nor `~/.kube/config`. Unknown
fields are ignored. The texts of errors are client-go's where it has some: people search for them.

The loader of kubernetes-asyncio is not used: it reads token files once, ignores the expiry of certificates
from programs, passes programs no cluster information, leaves keys in files in `/tmp`, has other messages than
upstream, and comes with 48 MB of generated classes, which take half a second to import: as long as listing a
large cluster.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from bayplan.api.documents import parse_documents, read_file
from bayplan.api.reading import without_nulls
from bayplan.client.access import Access, ExecPlugin, environment_proxy, proxy_problem
from bayplan.errors import ConfigError, DecodeError
from bayplan.net.http_logs import shown_url
from bayplan.net.tls import TLSSettings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"

_NOTHING: Final = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)

EXEC_API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
NO_SERVER: Final = "cluster has no server defined"


# The contents of the file


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Base class of the parts of a kubeconfig."""


class _Named(_Entry, frozen=True):
    name: str = ""
    extension: dict[str, Any] = {}


class ClusterEntry(_Entry, frozen=True):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[_Named, ...] = ()


class _EnvVar(_Entry, frozen=True):
    name: str = ""
    value: str = ""


class ExecEntry(_Entry, frozen=True, rename="camel"):
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_EnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _AuthProvider(_Entry, frozen=True):
    name: str = ""


class UserEntry(_Entry, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(default={}, name="as-user-extra")
    auth_provider: _AuthProvider | None = None
    exec_plugin: ExecEntry | None = msgspec.field(default=None, name="exec")


class ContextEntry(_Entry, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Entry, frozen=True):
    name: str = ""
    cluster: ClusterEntry = ClusterEntry()


class _NamedUser(_Entry, frozen=True):
    name: str = ""
    user: UserEntry = UserEntry()


class _NamedContext(_Entry, frozen=True):
    name: str = ""
    context: ContextEntry = ContextEntry()


class Config(_Entry, frozen=True):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


# From the file to an address with credentials

EntryT = TypeVar("EntryT", ClusterEntry, UserEntry)

_log = logging.getLogger(__name__)


def load_access(
    kubeconfig: str = "",
    master: str = "",
    *,
    context: str = "",
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """How to reach the API server: by the kubeconfig file, else by the pod's service account.

    `master` overrides the address in the file, `context` its current context.

    Raises:
        ConfigError: the file is missing or invalid, or there is neither.
    """
    environ = os.environ if environ is None else environ
    if not kubeconfig and not master:
        _log.warning(
            "Neither --kubeconfig nor --master was specified. Using the in-cluster configuration. "
            "This might not work."
        )
        try:
            return in_cluster_access(environ=environ, service_account=service_account)
        except ConfigError as error:
            _log.warning("cannot use the in-cluster configuration: %s", error)
        master = environ.get("KUBERNETES_MASTER", "")
    config = read_config(Path(kubeconfig)) if kubeconfig else Config()
    if context:
        config = msgspec.structs.replace(config, current_context=context)
    return _access(config, Path(kubeconfig).parent, master, environ)


def in_cluster_access(
    *, environ: Mapping[str, str] | None = None, service_account: Path = SERVICE_ACCOUNT
) -> Access:
    """How a pod reaches the API server.

    Raises:
        ConfigError: this process does not run in a pod, or has no service account.
    """
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "unable to load in-cluster configuration, "
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
        )
    token_file, ca_file = service_account / "token", service_account / "ca.crt"
    check_readable(token_file)
    try:
        check_readable(ca_file)
    except ConfigError as error:
        _log.error("expected the certificates of the API server in %s: %s", ca_file, error)
        ca_file = Path()
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(
        server=server,
        tls=TLSSettings(ca_file=str(ca_file) if ca_file.name else ""),
        token_file=str(token_file),
        proxy=environment_proxy(server, environ),
    )


def _access(config: Config, base: Path, master: str, environ: Mapping[str, str]) -> Access:
    """The current context of a kubeconfig; paths in it are relative to the file."""
    contexts = {named.name: named.context for named in config.contexts}
    context = contexts.get(config.current_context, ContextEntry())
    user = {named.name: named.user for named in config.users}.get(context.user, UserEntry())
    cluster = {named.name: named.cluster for named in config.clusters}.get(context.cluster, ClusterEntry())
    if master:
        cluster = msgspec.structs.replace(cluster, server=master, tls_server_name="")
    cluster = _resolved(cluster, base, ("certificate_authority",))
    user = _resolved(user, base, ("client_certificate", "client_key", "token_file"))

    problems: list[str] = []
    if config.current_context and config.current_context not in contexts:
        problems.append(f"context was not found for specified context: {config.current_context}")
    problems += user_problems(context.user, user)
    problems += cluster_problems(context.cluster, cluster)
    if problems == [NO_SERVER]:
        raise ConfigError(_NOTHING)
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
        raise ConfigError(f"invalid configuration: {text}")
    if user.auth_provider is not None:
        raise ConfigError(f'no Auth Provider found for name "{user.auth_provider.name}"')

    tls = TLSSettings(
        ca_file=cluster.certificate_authority,
        ca_data=_data(cluster.certificate_authority_data, "certificate-authority-data"),
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        cert_file=user.client_certificate,
        cert_data=_data(user.client_certificate_data, "client-certificate-data"),
        key_file=user.client_key,
        key_data=_data(user.client_key_data, "client-key-data"),
    )
    server = _server(cluster.server, tls)
    return Access(
        server=server,
        tls=tls,
        token=user.token,
        token_file=user.token_file,
        username=user.username,
        password=user.password,
        exec_plugin=_exec_plugin(user.exec_plugin, cluster, server, base),
        impersonate=tuple(_impersonation(user)),
        proxy=cluster.proxy_url or environment_proxy(server, environ),
    )


def _exec_plugin(
    plugin: ExecEntry | None, cluster: ClusterEntry, server: str, base: Path
) -> ExecPlugin | None:
    if plugin is None:
        return None
    cluster_info: dict[str, Any] | None = None
    if plugin.provide_cluster_info:
        cluster_info = {
            "server": server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": cluster.certificate_authority_data or _encoded(cluster),
            "proxy-url": cluster.proxy_url,
            "config": next((e.extension for e in cluster.extensions if e.name == _EXEC_EXTENSION), None),
        }
        cluster_info = {key: value for key, value in cluster_info.items() if value}
    command = plugin.command
    if os.sep in command and not os.path.isabs(command):
        command = str(base / command)
    return ExecPlugin(
        command=command,
        api_version=plugin.api_version,
        args=plugin.args,
        env=tuple((variable.name, variable.value) for variable in plugin.env),
        install_hint=plugin.install_hint,
        needs_terminal=plugin.interactive_mode == "Always",
        cluster=cluster_info,
    )


def _encoded(cluster: ClusterEntry) -> str:
    if not cluster.certificate_authority:
        return ""
    return base64.b64encode(Path(cluster.certificate_authority).read_bytes()).decode()


def _impersonation(user: UserEntry) -> Iterable[tuple[str, str]]:
    if user.impersonate:
        yield "Impersonate-User", user.impersonate
    if user.impersonate_uid:
        yield "Impersonate-Uid", user.impersonate_uid
    for group in user.impersonate_groups:
        yield "Impersonate-Group", group
    for key, values in user.impersonate_extra.items():
        for value in values:
            yield f"Impersonate-Extra-{key}", value


def _resolved(record: EntryT, base: Path, fields: tuple[str, ...]) -> EntryT:
    """Paths are relative to the file they are in."""
    paths = {name: str(base / path) for name in fields if (path := getattr(record, name))}
    return msgspec.structs.replace(record, **paths)


def _server(server: str, tls: TLSSettings) -> str:
    if "://" not in server:
        server = f"{'https' if tls != TLSSettings() else 'http'}://{server}"
    problem = f'host must be a URL or a host:port pair: "{server}"'
    try:
        parts = urlsplit(server)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ConfigError(problem) from error
    if not valid:
        raise ConfigError(problem)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _data(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except ValueError as error:  # binascii.Error is one; so is what is raised for other than ASCII
        raise ConfigError(f"{name} is not base64: {error}") from error


def read_config(path: Path) -> Config:
    try:
        path.stat()
    except OSError as error:
        raise ConfigError(f"stat {path}: {_reason(error)}") from error
    try:
        first = next(parse_documents(read_file(path)), None)
        return Config() if first is None else msgspec.convert(without_nulls(first.content), Config)
    except OSError as error:
        raise ConfigError(f'error loading config file "{path}": {_reason(error)}') from error
    except (DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f'error loading config file "{path}": {" ".join(str(error).split())}') from error


# What is wrong with a file


def cluster_problems(name: str, cluster: ClusterEntry) -> Iterable[str]:
    if cluster == ClusterEntry():
        yield NO_SERVER
        return
    if not cluster.server:
        yield f'no server found for cluster "{name}"' if name else "default cluster has no server defined"
    if cluster.proxy_url and (problem := proxy_problem(cluster.proxy_url)):
        yield f'invalid \'proxy-url\' "{shown_url(cluster.proxy_url)}" for cluster "{name}": {problem}'
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield (
            f"certificate-authority-data and certificate-authority are both specified for {name}. "
            "certificate-authority-data will override."
        )
    yield from _unreadable("certificate-authority", cluster.certificate_authority, name)


def user_problems(name: str, user: UserEntry) -> Iterable[str]:
    has_certificate = user.client_certificate or user.client_certificate_data
    if has_certificate:
        if user.client_certificate and user.client_certificate_data:
            yield (
                f"client-cert-data and client-cert are both specified for {name}. "
                "client-cert-data will override."
            )
        if user.client_key and user.client_key_data:
            yield (
                f"client-key-data and client-key are both specified for {name}; client-key-data will override"
            )
        if not user.client_key and not user.client_key_data:
            yield (
                f"client-key-data or client-key must be specified for {name} "
                "to use the clientCert authentication method."
            )
        yield from _unreadable("client-cert", user.client_certificate, name)
        yield from _unreadable("client-key", user.client_key, name)
    if user.exec_plugin is not None:
        yield from _exec_problems(name, user.exec_plugin)
    if user.token and (user.username or user.password):
        yield (
            f"more than one authentication method found for {name}; "
            "found [token basicAuth], only one is allowed"
        )
    if not user.impersonate and (user.impersonate_uid or user.impersonate_groups or user.impersonate_extra):
        yield f"requesting uid, groups or user-extra for {name} without impersonating a user"


def _exec_problems(name: str, plugin: ExecEntry) -> Iterable[str]:
    if not plugin.command:
        yield f"command must be specified for {name} to use exec authentication plugin"
    if not plugin.api_version:
        yield f"apiVersion must be specified for {name} to use exec authentication plugin"
    elif plugin.api_version not in EXEC_API_VERSIONS:
        yield f'exec plugin: invalid apiVersion "{plugin.api_version}"'
    if any(not variable.name for variable in plugin.env):
        yield f"env variable name must be specified for {name} to use exec authentication plugin"
    if not plugin.interactive_mode and plugin.api_version == EXEC_API_VERSIONS[0]:
        yield f"interactiveMode must be specified for {name} to use exec authentication plugin"
    elif plugin.interactive_mode not in ("", "Never", "IfAvailable", "Always"):
        yield f'invalid interactiveMode for {name}: "{plugin.interactive_mode}"'


def _unreadable(what: str, path: str, name: str) -> Iterable[str]:
    if path:
        try:
            check_readable(Path(path))
        except ConfigError as error:
            yield f"unable to read {what} {path} for {name} due to {error}"


def check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigError(f"open {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
