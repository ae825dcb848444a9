"""TLS towards the API server: whom to trust, which name to expect, what to show.

Given authorities replace the system's, as in Go. Files are looked at again for each new connection, so that
rotated certificates are used without a restart; connections that are open stay as they are, but none lives
longer than some minutes (`wire.py`, `watching.py`). Files that make no sense just now (a certificate was
replaced and its key not yet) are looked at again when they change, and until then the old ones are used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from bayplan.client.access import TLSSettings
from bayplan.errors import ConfigError

_log = logging.getLogger(__name__)

_Stamps = tuple[tuple[int, int, int], ...]


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
        self._stamps = _stamps(self._files)
        # What is wrong with the configuration is said at the start, not at the first request.
        self._context = _make(settings)

    def context(self) -> ssl.SSLContext:
        """The context for a connection that is opened now."""
        if self._files:
            stamps = _stamps(self._files)
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._context = _make(self._settings)
                except ConfigError as error:
                    _log.warning("cannot use the new certificates, going on with the old ones: %s", error)
        return self._context

    def show(self, certificate: bytes, key: bytes) -> None:
        """Shows this certificate from now on, in place of what was configured."""
        settings = replace(self._settings, cert_data=certificate, key_data=key, cert_file="", key_file="")
        self._context = _make(settings)
        self._settings = settings
        self._files = [settings.ca_file] if settings.ca_file and not settings.ca_data else []
        self._stamps = _stamps(self._files)


def _stamps(paths: list[str]) -> _Stamps:
    """What changes when a file is replaced, or missing for a moment."""
    stamps: list[tuple[int, int, int]] = []
    for path in paths:
        try:
            stat = os.stat(path)
            stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)


def _make(settings: TLSSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Go trusts exactly the certificates it is given, be they roots or not, and looks at no common name.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
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
            # PEM is ASCII but for comments around it.
            context.load_verify_locations(cadata=settings.ca_data.decode("ascii", errors="ignore"))
        else:
            context.load_verify_locations(cafile=settings.ca_file)
    except OSError as error:
        raise ConfigError(f"unable to load root certificates: {_why(error)}") from error


def _show(context: ssl.SSLContext, settings: TLSSettings) -> None:
    with (
        _as_file(settings.cert_data, settings.cert_file) as certificate,
        _as_file(settings.key_data, settings.key_file) as key,
    ):
        try:
            # An empty password: without one OpenSSL would ask at the terminal for that of an encrypted key.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            raise ConfigError(f"tls: cannot use the client certificate: {_why(error)}") from error


@contextlib.contextmanager
def _as_file(data: bytes, path: str) -> Iterator[str]:
    """The path of a file with this content; `ssl` reads certificates from nowhere else."""
    if not data:
        yield path
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by us alone, gone when loaded
        file.write(data)
        file.flush()
        yield file.name


def _why(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
