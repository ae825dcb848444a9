"""TLS towards one extender: trusted CAs, expected server name, client certificate.

The settings have the same meaning as in kube-scheduler: given CAs replace the system's; HTTPS without any CA
disables verification; a client certificate needs both its parts or is not used. Certificates that come only
from files are read again when the files change, so that rotation needs no restart; everything else is read
once.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from bayplan.errors import ConfigError
from bayplan.extender.settings import ExtenderSettings, TLSSettings
from bayplan.files import Stamp, stamp
from bayplan.net.tls import client_context, show, trust, why

_PREFIX: Final = "couldn't build extenders: "
_BAD_CA: Final = "unable to load root certificates: {why}"
_BAD_PAIR: Final = "tls: {why}"


class ExtenderTLS:
    """Creates the TLS context for connections to one extender."""

    def __init__(self, settings: ExtenderSettings) -> None:
        tls = settings.tls_config
        has_ca = tls is not None and bool(tls.ca_file or tls.ca_data)
        self._insecure = (tls is not None and tls.insecure) or (settings.enable_https and not has_ca)
        self._ca = _ca(tls) if tls is not None and has_ca else None
        self._tls = tls if tls is not None and _has_pair(tls) else None
        self.server_name = (tls.server_name if tls is not None else "") or None
        """The server name to request and expect, if it differs from the one in the URL."""
        self._from_files = self._tls is not None and not (self._tls.cert_data or self._tls.key_data)
        self._stamps: list[Stamp] = []
        self._context: ssl.SSLContext | None = None
        if self._ca is not None or (self._tls is not None and not self._from_files):
            # Configuration errors are reported at the start, not at the first call.
            self._context = self._make(with_pair=not self._from_files)

    def context(self) -> ssl.SSLContext:
        """The context for a call that is made now.

        Raises:
            OSError: the files of the client certificate cannot be read, or do not match.
        """
        if self._from_files and self._tls is not None:
            stamps = [stamp(path) for path in (self._tls.cert_file, self._tls.key_file)]
            if stamps != self._stamps:
                self._context = self._make()
                self._stamps = stamps
        if self._context is None:
            self._context = self._make()
        return self._context

    def _make(self, *, with_pair: bool = True) -> ssl.SSLContext:
        context = client_context()
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self._ca is None:
            context.load_default_certs()
        else:
            _trust(context, self._ca)
        if self._tls is not None and with_pair:
            _show(context, self._tls, self._from_files)
        return context


def _has_pair(tls: TLSSettings) -> bool:
    return bool(tls.cert_file or tls.cert_data) and bool(tls.key_file or tls.key_data)


def _ca(tls: TLSSettings) -> bytes:
    if tls.ca_data:
        return tls.ca_data
    try:
        return Path(tls.ca_file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{_PREFIX}open {tls.ca_file}: {(error.strerror or 'failed').lower()}") from error


def _trust(context: ssl.SSLContext, ca: bytes) -> None:
    try:
        trust(context, ca)
    except ssl.SSLError as error:
        raise ConfigError(_PREFIX + _BAD_CA.format(why=why(error))) from error


def _show(context: ssl.SSLContext, tls: TLSSettings, from_files: bool) -> None:
    try:
        show(context, tls.cert_data or tls.cert_file, tls.key_data or tls.key_file)
    except OSError as error:
        if from_files:
            raise
        raise ConfigError(_PREFIX + _BAD_PAIR.format(why=why(error))) from error
