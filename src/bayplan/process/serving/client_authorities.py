"""The CAs of client certificates: those of users, and those of front proxies.

CAs named by a flag are read from their files; the others come from the ConfigMap
kube-system/extension-apiserver-authentication, which every API server maintains. Both are read again
regularly, so that CAs can be replaced without a restart.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from bayplan.client.requests import Requests
from bayplan.errors import APIError, ConfigError
from bayplan.files import WatchedFiles
from bayplan.process.serving.settings import AuthenticationSettings, ProxySettings

CONFIG_MAP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
POLL_SECONDS: Final = 60.0
"""Interval between reads of the ConfigMap; upstream watches it."""

_log = logging.getLogger(__name__)


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class ClientAuthorities:
    """The current CAs. `version` increases when they change."""

    def __init__(self, settings: AuthenticationSettings, requests: Requests | None) -> None:
        self._settings = settings
        self._requests = None if settings.skip_lookup else requests
        self._files = {"client": settings.client_ca_file, "proxy": settings.proxy.ca_file}
        self._watched = WatchedFiles(path for path in self._files.values() if path)
        self._pem = {"client": b"", "proxy": b""}
        self.version = 0
        self.proxy: ProxySettings = settings.proxy
        """The headers in which proxies name the user."""
        self.clients: list[x509.Certificate] = []
        self.proxies: list[x509.Certificate] = []
        for which, path in self._files.items():
            if path:
                self._set(which, _read(path))

    @property
    def pem(self) -> str:
        """All of them, for the TLS layer: it accepts client certificates of any."""
        return (self._pem["client"] + b"\n" + self._pem["proxy"]).decode("ascii", errors="ignore").strip()

    @property
    def asks_cluster(self) -> bool:
        """Whether there may be CAs later, even if there are none now."""
        return self._requests is not None and not all(self._files.values())

    def is_client(self, certificate: x509.Certificate) -> bool:
        return _is_issued(certificate, self.clients)

    def is_proxy(self, certificate: x509.Certificate) -> bool:
        return _is_issued(certificate, self.proxies)

    def reload_files(self) -> None:
        """Reads the files again if one has changed. An invalid one is ignored until the next change."""
        if not self._watched.have_changed():
            return
        for which, path in self._files.items():
            if path:
                try:
                    self._set(which, _read(path))
                except ConfigError as error:
                    _log.warning("keeping the previous certificate authorities: %s", error)

    async def look_up(self) -> None:
        """Reads from the cluster what no flag sets.

        Raises:
            APIError: it could not be read, and that is not tolerated.
        """
        if self._requests is None or not self.asks_cluster:
            return
        try:
            await self._look(self._requests)
        except (APIError, ConfigError) as error:
            if not self._settings.tolerate_lookup_failure:
                raise
            _log.warning("unable to read configmap/extension-apiserver-authentication: %s", error)
            _log.warning("continuing without it: requests may be considered anonymous")

    async def poll(self) -> None:
        """Reads it again at each interval, until cancelled."""
        if self._requests is None or not self.asks_cluster:
            return
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._look(self._requests)
            except (APIError, ConfigError) as error:
                _log.warning("unable to read configmap/extension-apiserver-authentication: %s", error)

    async def _look(self, requests: Requests) -> None:
        try:
            found = msgspec.json.decode(await requests.send("GET", CONFIG_MAP), type=_ConfigMap)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"the response is not a ConfigMap: {error}") from error
        data = found.data or {}
        if not self._files["client"]:
            self._set("client", data.get("client-ca-file", "").encode())
        if not self._files["proxy"]:
            self._set("proxy", data.get("requestheader-client-ca-file", "").encode())
            self.proxy = _proxy_settings(data, self._settings.proxy)

    def _set(self, which: str, pem: bytes) -> None:
        if pem == self._pem[which] and self.version:
            return
        try:
            found = x509.load_pem_x509_certificates(pem) if pem.strip() else []
        except ValueError as error:
            raise ConfigError(f"the authorities of {which} certificates are invalid: {error}") from error
        self._pem[which] = pem
        self.version += 1
        if which == "client":
            self.clients = found
        else:
            self.proxies = found


def _proxy_settings(data: dict[str, str], default: ProxySettings) -> ProxySettings:
    """The header settings in the ConfigMap, with defaults for what is missing."""

    def names(key: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        return _names(data[key], key) if data.get(key) else otherwise

    return replace(
        default,
        allowed_names=names("requestheader-allowed-names", default.allowed_names),
        username_headers=names("requestheader-username-headers", default.username_headers),
        group_headers=names("requestheader-group-headers", default.group_headers),
        uid_headers=names("requestheader-uid-headers", default.uid_headers),
        extra_prefixes=names("requestheader-extra-headers-prefix", default.extra_prefixes),
    )


def _is_issued(certificate: x509.Certificate, authorities: list[x509.Certificate]) -> bool:
    """Whether one of them issued it. The TLS layer has checked that it is valid."""
    for authority in authorities:
        if certificate == authority:
            return True
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _names(text: str, key: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{key} is not a JSON list of names: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{key} is not a JSON list of names: {text}")
    return tuple(names)


def _read(path: str) -> bytes:
    try:
        pem = Path(path).read_bytes()
        x509.load_pem_x509_certificates(pem)
    except (OSError, ValueError) as error:
        raise ConfigError(f"unable to load the certificates in {path}: {error}") from error
    return pem
