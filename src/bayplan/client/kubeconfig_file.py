"""The contents of a kubeconfig file, and its errors; `kubeconfig.py` interprets it.

Unknown fields are ignored. The texts are client-go's where it has some: people search for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.api.documents import parse_documents
from bayplan.api.input_files import read_file
from bayplan.api.reading import without_nulls
from bayplan.client.proxies import proxy_problem
from bayplan.errors import ConfigError, DecodeError
from bayplan.net.http_logs import shown_url

EXEC_API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
NO_SERVER: Final = "cluster has no server defined"


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
            check_readable("open", Path(path))
        except ConfigError as error:
            yield f"unable to read {what} {path} for {name} due to {error}"


def check_readable(verb: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{verb} {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
