"""TLS to the API server: trusted CAs, the expected server name, and the client certificate.

Configured CAs replace the system's, as in Go. Files are checked for changes at each new connection, so that
rotated certificates are used without a restart. Open connections are not affected, but none lives longer than
some minutes (`short_requests.py`, `watching.py`). If the files do not match (a certificate was replaced, but
its key was not yet), the old ones are used until the files change again.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace

from bayplan.client.access import TLSSettings
from bayplan.errors import ConfigError
from bayplan.files import stamp
from bayplan.net.tls import client_context, show, trust, why

_log = logging.getLogger(__name__)


class ServerTLS:
    """Makes the TLS context for connections to the API server."""

    def __init__(self, settings: TLSSettings) -> None:
        if settings.insecure and (settings.ca_file or settings.ca_data):
            raise ConfigError("specifying a root certificates file with the insecure flag is not allowed")
        self.server_name = settings.server_name or None
        self._settings = settings
        self._files = [
            path
            for path, data in (
                (settings.ca_file, settings.ca_data),
                (settings.cert_file, settings.cert_data),
                (settings.key_file, settings.key_data),
            )
            if path and not data
        ]
        self._stamps = [stamp(path) for path in self._files]
        # Errors of the configuration are reported at the start, not at the first request.
        self._context = _make(settings)

    def context(self) -> ssl.SSLContext:
        """The context for a connection that is opened now."""
        if self._files:
            stamps = [stamp(path) for path in self._files]
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._context = _make(self._settings)
                except ConfigError as error:
                    _log.warning("cannot use the new certificates, continuing with the old ones: %s", error)
        return self._context

    def show(self, certificate: bytes, key: bytes) -> None:
        """Uses this client certificate from now on, instead of the configured one."""
        settings = replace(self._settings, cert_data=certificate, key_data=key, cert_file="", key_file="")
        self._context = _make(settings)
        self._settings = settings
        self._files = [settings.ca_file] if settings.ca_file and not settings.ca_data else []
        self._stamps = [stamp(path) for path in self._files]


def _make(settings: TLSSettings) -> ssl.SSLContext:
    context = client_context()
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.ca_data or settings.ca_file:
        _trust(context, settings)
    else:
        context.load_default_certs()
    if settings.cert_data or settings.cert_file:
        _show(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: TLSSettings) -> None:
    try:
        if settings.ca_data:
            trust(context, settings.ca_data)
        else:
            context.load_verify_locations(cafile=settings.ca_file)
    except OSError as error:
        raise ConfigError(f"unable to load root certificates: {why(error)}") from error


def _show(context: ssl.SSLContext, settings: TLSSettings) -> None:
    try:
        show(context, settings.cert_data or settings.cert_file, settings.key_data or settings.key_file)
    except OSError as error:
        raise ConfigError(f"tls: cannot use the client certificate: {why(error)}") from error
